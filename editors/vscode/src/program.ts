/** Where amplint is: what to run as the language server. */

import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import * as vscode from "vscode";

export interface Program {
  command: string;
  args: string[];
}

/** The program to run, or null where there is none. */
export async function findProgram(): Promise<Program | null> {
  const given = vscode.workspace.getConfiguration("amplint").get<string>("path", "").trim();
  if (given) {
    return programAt(expand(given));
  }
  for (const python of [await selectedPython(), ...environmentsOfWorkspace()]) {
    if (python && (await isRunnable(python)) && (await hasServer(python))) {
      return programAt(python);
    }
  }
  for (const folder of (process.env.PATH ?? "").split(path.delimiter)) {
    const file = path.join(folder, process.platform === "win32" ? "amplint.exe" : "amplint");
    if (folder && (await isRunnable(file))) {
      return programAt(file);
    }
  }
  return null;
}

function programAt(file: string): Program {
  const isPython = /^(python|pypy)[\d.]*(\.exe)?$/i.test(path.basename(file));
  return { command: file, args: isPython ? ["-m", "amplint", "lsp"] : ["lsp"] };
}

function expand(given: string): string {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? "";
  return given.replace(/^~(?=$|[\\/])/, os.homedir()).replaceAll("${workspaceFolder}", folder);
}

/** The interpreter that the Python extension has selected. */
async function selectedPython(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension("ms-python.python");
  if (!extension) {
    return undefined;
  }
  try {
    const { environments } = await extension.activate();
    const selected = environments.getActiveEnvironmentPath(vscode.workspace.workspaceFolders?.[0]?.uri);
    const resolved = await environments.resolveEnvironment(selected);
    return resolved?.executable.uri?.fsPath;
  } catch {
    return undefined; // another extension's trouble
  }
}

function environmentsOfWorkspace(): string[] {
  const python = process.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"];
  return (vscode.workspace.workspaceFolders ?? []).flatMap((folder) =>
    [".venv", "venv"].map((name) => path.join(folder.uri.fsPath, name, ...python)),
  );
}

async function isRunnable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function hasServer(python: string): Promise<boolean> {
  const question = "import sys; from importlib.util import find_spec as f; sys.exit(not (f('amplint') and f('pygls')))";
  return new Promise((resolve) => execFile(python, ["-c", question], (error) => resolve(!error)));
}
