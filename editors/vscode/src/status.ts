/** The item in the status bar: whether the server runs, and how much it found in the file that is shown. */

import * as vscode from "vscode";
import { SCHEME } from "./port";

export type Health = "starting" | "running" | "stopped";

export class Status {
  private readonly item = vscode.window.createStatusBarItem("amplint.status", vscode.StatusBarAlignment.Right, 90);
  private health: Health = "stopped";
  private about = "";

  constructor(subscriptions: vscode.Disposable[]) {
    this.item.name = "amplint";
    this.item.command = "amplint.menu";
    subscriptions.push(
      this.item,
      vscode.window.onDidChangeActiveTextEditor(() => this.show()),
      vscode.languages.onDidChangeDiagnostics(() => this.show()),
    );
  }

  set(health: Health, about: string): void {
    this.health = health;
    this.about = about;
    void vscode.commands.executeCommand("setContext", "amplint.running", health === "running");
    this.show();
  }

  private show(): void {
    const document = vscode.window.activeTextEditor?.document;
    const isPython = document?.languageId === "python" && document.uri.scheme !== SCHEME;
    if (!isPython && this.health !== "stopped") {
      this.item.hide();
      return;
    }
    const found = document ? ours(document.uri).length : 0;
    const icon = { starting: "$(loading~spin)", running: found ? "$(warning)" : "$(pass)", stopped: "$(error)" };
    this.item.text = `${icon[this.health]} amplint${this.health === "running" && found ? ` ${found}` : ""}`;
    const findings = found === 1 ? "1 finding in this file" : `${found} findings in this file`;
    this.item.tooltip = this.health === "running" ? `${this.about}\n${findings}` : this.about;
    this.item.show();
  }
}

/** The findings of amplint in a document. */
export function ours(uri: vscode.Uri): vscode.Diagnostic[] {
  return vscode.languages.getDiagnostics(uri).filter((each) => each.source === "amplint");
}
