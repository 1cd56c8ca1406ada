/** amplint in VS Code: the client of `amplint lsp`, its commands, and its item in the status bar. */

import * as vscode from "vscode";
import { LanguageClient, type LanguageClientOptions, type Middleware } from "vscode-languageclient/node";
import { fixNotebooksThatBeginWithText } from "./notebooks";
import { Ports } from "./port";
import { findProgram } from "./program";
import { Status } from "./status";

const INSTALL = "pip install 'amplint[lsp]', or '.[lsp]' in a checkout";

let client: LanguageClient | undefined;
let output: vscode.LogOutputChannel;
let status: Status;
/** Starts and stops happen one after the other. */
let turn: Promise<void> = Promise.resolve();

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  output = vscode.window.createOutputChannel("amplint", { log: true });
  status = new Status(context.subscriptions);
  new Ports(() => client, context.subscriptions);
  fixNotebooksThatBeginWithText(context.subscriptions);
  context.subscriptions.push(
    output,
    vscode.commands.registerCommand("amplint.restart", restart),
    vscode.commands.registerCommand("amplint.showLog", () => output.show()),
    vscode.commands.registerCommand("amplint.menu", menu),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("amplint.path") || event.affectsConfiguration("amplint.enable")) {
        void restart();
      }
    }),
  );
  await restart();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

function restart(): Promise<void> {
  turn = turn.then(stop).then(start);
  return turn;
}

async function stop(): Promise<void> {
  const stopped = client;
  client = undefined;
  status.set("stopped", "amplint is not running");
  try {
    await stopped?.dispose();
  } catch (error) {
    output.warn(`the server did not stop well: ${error}`);
  }
}

async function start(): Promise<void> {
  if (!vscode.workspace.getConfiguration("amplint").get<boolean>("enable", true)) {
    status.set("stopped", "amplint is switched off (amplint.enable)");
    return;
  }
  status.set("starting", "amplint is starting");
  const program = await findProgram();
  if (!program) {
    output.info(`looked for amplint in the selected Python environment, .venv, venv and ${process.env.PATH}`);
    failed(`amplint with its language server was not found. Install it (${INSTALL}), or set amplint.path.`);
    return;
  }
  const { command, args } = program;
  output.info(`running ${[command, ...args].join(" ")}`);
  const started = new LanguageClient("amplint", "amplint", { command, args }, options());
  try {
    await started.start();
  } catch (error) {
    failed(`${command} could not be started as a language server: ${error}`);
    return;
  }
  client = started;
  const { name, version } = started.initializeResult?.serverInfo ?? { name: "amplint", version: "" };
  status.set("running", `${name} ${version} (${command})`);
}

function failed(problem: string): void {
  output.error(problem);
  status.set("stopped", problem);
  void vscode.window.showErrorMessage(problem, "Show the Log", "Open Settings").then((answer) => {
    if (answer === "Show the Log") {
      output.show();
    } else if (answer === "Open Settings") {
      void vscode.commands.executeCommand("workbench.action.openSettings", "amplint.path");
    }
  });
}

function options(): LanguageClientOptions {
  return {
    documentSelector: [
      { language: "python", scheme: "file" },
      { language: "python", scheme: "untitled" },
      { language: "python", notebook: "*" },
    ],
    initializationOptions: vscode.workspace.getConfiguration("amplint"),
    synchronize: { configurationSection: "amplint" },
    outputChannel: output,
    diagnosticPullOptions: { onChange: true },
    middleware,
  };
}

const middleware: Middleware = {
  // VS Code would ask again every two seconds; "Check All Files of the Workspace" is there for that.
  provideWorkspaceDiagnostics: () => ({ items: [] }),

  // Commands of the server, which the palette calls without arguments.
  async executeCommand(command, args, next) {
    const editor = vscode.window.activeTextEditor;
    if (args.length === 0 && command !== "amplint.checkWorkspace") {
      const uri = editor?.document.uri ?? vscode.window.activeNotebookEditor?.notebook.uri;
      if (!uri || (!editor && command === "amplint.explainFlow")) {
        return undefined;
      }
      args = [uri.toString()];
      if (editor && command === "amplint.explainFlow") {
        args.push(editor.selection.active.line);
      }
    }
    const answer = await next(command, args);
    await told(command, answer);
    return answer;
  },
};

/** Show what a command of the server answered. */
async function told(command: string, answer: unknown): Promise<void> {
  if (command === "amplint.explainFlow") {
    output.show(true); // where the server has written it
  } else if (command === "amplint.showSettings") {
    output.info(JSON.stringify(answer, null, 2));
    output.show(true);
  } else if (command === "amplint.fixAll" && answer === false) {
    void vscode.window.showInformationMessage("amplint: nothing in this file can be fixed safely.");
  } else if (command === "amplint.checkWorkspace" && answer) {
    const { files, findings } = answer as { files: number; findings: number };
    await vscode.commands.executeCommand("workbench.actions.view.problems");
    void vscode.window.showInformationMessage(`amplint: ${findings} findings in ${files} files.`);
  }
}

async function menu(): Promise<void> {
  const running = client !== undefined;
  const entries = [
    { label: "$(git-compare) Port this file, with a preview", command: "amplint.port", needs: true },
    { label: "$(wand) Fix all that is safe in this file", command: "amplint.fixAll", needs: true },
    { label: "$(search) Check all files of the workspace", command: "amplint.checkWorkspace", needs: true },
    { label: "$(question) Explain dtypes and loss scaling at the cursor", command: "amplint.explainFlow", needs: true },
    { label: "$(settings) Show the settings in force for this file", command: "amplint.showSettings", needs: true },
    { label: "$(output) Show the log", command: "amplint.showLog", needs: false },
    { label: "$(refresh) Restart the server", command: "amplint.restart", needs: false },
  ].filter((each) => running || !each.needs);
  const chosen = await vscode.window.showQuickPick(entries, { placeHolder: "amplint" });
  if (chosen) {
    await vscode.commands.executeCommand(chosen.command);
  }
}
