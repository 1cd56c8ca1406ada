/** Fixes on saving a notebook that begins with text. */

import * as vscode from "vscode";

const FIX_ALL = vscode.CodeActionKind.Empty.append("notebook.source.fixAll.amplint");

/** VS Code asks the first cell only for what is to be done to the whole notebook, and the server knows no text cells. */
export function fixNotebooksThatBeginWithText(subscriptions: vscode.Disposable[]): void {
  const provider: vscode.CodeActionProvider = {
    async provideCodeActions(document, _range, context) {
      const notebook = vscode.workspace.notebookDocuments.find((each) =>
        each.getCells().some((cell) => cell.document.uri.toString() === document.uri.toString()),
      );
      const cell = notebook?.getCells().find(({ document }) => document.languageId === "python");
      if (!cell || !context.only?.contains(FIX_ALL)) {
        return [];
      }
      const start = new vscode.Range(0, 0, 0, 0);
      return vscode.commands.executeCommand<vscode.CodeAction[]>(
        "vscode.executeCodeActionProvider",
        cell.document.uri,
        start,
        FIX_ALL.value,
        1, // with the edit
      );
    },
  };
  subscriptions.push(
    vscode.languages.registerCodeActionsProvider({ language: "markdown", scheme: "vscode-notebook-cell" }, provider, {
      providedCodeActionKinds: [FIX_ALL],
    }),
  );
}
