/** "Port this file": the ported text beside the file as it is, to be applied or discarded. */

import * as vscode from "vscode";
import {
  CodeActionRequest,
  CodeActionResolveRequest,
  Command,
  type CodeAction,
  type LanguageClient,
} from "vscode-languageclient/node";

export const SCHEME = "amplint-port";
const FIX_ALL = "source.fixAll.amplint";

interface Port {
  document: vscode.TextDocument;
  version: number;
  edits: vscode.TextEdit[];
  text: string;
}

export class Ports implements vscode.TextDocumentContentProvider {
  private readonly ports = new Map<string, Port>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;

  constructor(
    private readonly client: () => LanguageClient | undefined,
    subscriptions: vscode.Disposable[],
  ) {
    subscriptions.push(
      this.changed,
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.commands.registerCommand("amplint.port", () => this.preview()),
      vscode.commands.registerCommand("amplint.applyPort", (uri?: vscode.Uri) => this.apply(uri)),
      vscode.commands.registerCommand("amplint.discardPort", (uri?: vscode.Uri) => this.close(this.shown(uri))),
      vscode.window.tabGroups.onDidChangeTabs(() => this.forgetClosed()),
    );
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.ports.get(uri.toString())?.text ?? "";
  }

  /** Show what porting would make of the file that is edited. */
  private async preview(): Promise<void> {
    const client = this.client();
    const document = vscode.window.activeTextEditor?.document;
    if (!client || document?.languageId !== "python") {
      return;
    }
    const version = document.version;
    const edits = await portOf(client, document);
    if (!edits?.length) {
      void vscode.window.showInformationMessage("amplint: nothing in this file is to be ported.");
      return;
    }
    const uri = document.uri.with({ scheme: SCHEME, query: document.uri.scheme });
    this.ports.set(uri.toString(), { document, version, edits, text: applied(document, edits) });
    this.changed.fire(uri);
    void vscode.commands.executeCommand("setContext", "amplint.previewing", true);
    const name = vscode.workspace.asRelativePath(document.uri);
    await vscode.commands.executeCommand("vscode.diff", document.uri, uri, `${name} (now ↔ ported)`, { preview: true });
    const answer = await vscode.window.showInformationMessage(`amplint: port ${name}?`, "Apply", "Discard");
    if (answer === "Apply") {
      await this.apply(uri);
    } else if (answer === "Discard") {
      await this.close(uri.toString());
    }
  }

  /** Make the file what the preview shows. */
  private async apply(uri?: vscode.Uri): Promise<void> {
    const key = this.shown(uri);
    const port = key === undefined ? undefined : this.ports.get(key);
    if (!port) {
      return;
    }
    const { document, version, edits } = port;
    await this.close(key);
    if (document.isClosed || document.version !== version) {
      void vscode.window.showWarningMessage("amplint: the file has changed since it was ported. Port it again.");
      return;
    }
    const edit = new vscode.WorkspaceEdit();
    edit.set(document.uri, edits);
    await vscode.workspace.applyEdit(edit);
    await vscode.window.showTextDocument(document);
  }

  /** The preview that is meant: the given one, the one that is looked at, or the only one. */
  private shown(uri?: vscode.Uri): string | undefined {
    for (const each of [uri, vscode.window.activeTextEditor?.document.uri]) {
      if (each && this.ports.has(each.toString())) {
        return each.toString();
      }
    }
    return this.ports.size === 1 ? [...this.ports.keys()][0] : undefined;
  }

  private async close(key: string | undefined): Promise<void> {
    await vscode.window.tabGroups.close(previews().filter((tab) => keyOf(tab) === key));
    this.forgetClosed();
  }

  private forgetClosed(): void {
    const open = new Set(previews().map(keyOf));
    for (const key of this.ports.keys()) {
      if (!open.has(key)) {
        this.ports.delete(key);
      }
    }
    void vscode.commands.executeCommand("setContext", "amplint.previewing", this.ports.size > 0);
  }
}

function previews(): vscode.Tab[] {
  return vscode.window.tabGroups.all.flatMap((group) => group.tabs.filter((tab) => keyOf(tab) !== undefined));
}

function keyOf(tab: vscode.Tab): string | undefined {
  const input = tab.input;
  return input instanceof vscode.TabInputTextDiff && input.modified.scheme === SCHEME
    ? input.modified.toString()
    : undefined;
}

/** The edits of a document that the server would make to fix all that is safe. */
async function portOf(client: LanguageClient, document: vscode.TextDocument): Promise<vscode.TextEdit[] | undefined> {
  const whole = new vscode.Range(document.positionAt(0), document.positionAt(document.getText().length));
  const offered = await client.sendRequest(CodeActionRequest.type, {
    textDocument: client.code2ProtocolConverter.asTextDocumentIdentifier(document),
    range: client.code2ProtocolConverter.asRange(whole),
    context: { diagnostics: [], only: [FIX_ALL] },
  });
  const action = offered?.find((each): each is CodeAction => !Command.is(each) && each.kind === FIX_ALL);
  if (!action) {
    return undefined;
  }
  const { edit } = action.edit ? action : await client.sendRequest(CodeActionResolveRequest.type, action);
  return (await client.protocol2CodeConverter.asWorkspaceEdit(edit))?.get(document.uri);
}

function applied(document: vscode.TextDocument, edits: vscode.TextEdit[]): string {
  let text = document.getText();
  const places = edits.map((edit) => ({
    start: document.offsetAt(edit.range.start),
    end: document.offsetAt(edit.range.end),
    content: edit.newText,
  }));
  // From the last to the first, so that offsets hold; of several at one place the first given comes first.
  for (const { start, end, content } of places.reverse().sort((one, other) => other.start - one.start)) {
    text = text.slice(0, start) + content + text.slice(end);
  }
  return text;
}
