// A browser that is connected to code-server, and what a user does in it.
//
// What was seen is written as JSON to $SEEN, and screenshots into $SCREENSHOTS. Run by tests/editors/test_vscode.py,
// which starts the server: $URL opens the project, which is the folder $PROJECT. $CHROMIUM is the browser.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { chromium } from "playwright-core";

const { URL: url, PROJECT: project, SEEN: seenFile, SCREENSHOTS: screenshots, CHROMIUM: executablePath } = process.env;
export const seen = {};

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
});
export const page = await browser.newPage({ viewport: { width: 1100, height: 720 } });
page.setDefaultTimeout(30_000);

export const squiggles = page.locator(".squiggly-error");
export const editor = page.locator(".editor-instance .monaco-editor").first();

export async function screenshot(name) {
  if (screenshots) {
    await mkdir(screenshots, { recursive: true });
    await page.waitForTimeout(500); // for what fades in
    await page.screenshot({ path: path.join(screenshots, `vscode-${name}.png`) });
  }
}

export async function until(what, condition) {
  for (let tries = 0; tries < 300; tries++) {
    const answer = await condition();
    if (answer) {
      return answer;
    }
    await page.waitForTimeout(100);
  }
  throw new Error(`waited in vain for ${what}`);
}

/** The text as it is in the editor, of train.py or another file: saved, and read from the disk. */
export async function text(name = "train.py") {
  await page.keyboard.press("Control+s");
  await page.waitForSelector(".tab.active:not(.dirty)");
  return until("a file that is not being written", async () => {
    const now = await readFile(path.join(project, name), "utf-8");
    return (!name.endsWith(".ipynb") || isJson(now)) && now;
  });
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The text of the editor, as soon as it is (or is not any more) another. */
export function textOnce(what, condition, name = "train.py") {
  return until(what, async () => {
    const now = await text(name);
    return condition(now) && now;
  });
}

export async function command(title) {
  await page.keyboard.press("F1");
  await page.waitForSelector(".quick-input-widget input");
  await page.keyboard.type(title);
  await page.locator(".quick-input-list .monaco-list-row", { hasText: title }).first().click();
}

export async function goTo(line, column) {
  await page.keyboard.press("Control+g");
  await page.waitForSelector(".quick-input-widget input");
  await page.keyboard.type(`${line}:${column}`);
  await page.keyboard.press("Enter");
  await page.locator(".quick-input-widget").waitFor({ state: "hidden" });
}

export function plain(shown) {
  return shown.replaceAll("\u00a0", " ");
}

export async function problems() {
  const rows = await page.locator(".markers-panel .monaco-list-row").allInnerTexts();
  return rows.map((row) => plain(row).replaceAll("\n", " "));
}

/** Open a file of the project, and wait until something is found in it. */
export async function openProject(name = "train.py") {
  await page.goto(url, { waitUntil: "domcontentloaded" });
  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: name }).dblclick();
  await squiggles.first().waitFor();
}

/** Let a user do something, and write down what was seen. */
export async function play(scenario) {
  try {
    await scenario();
  } catch (error) {
    seen.problem = String(error.stack ?? error);
    await screenshot("problem");
  } finally {
    await writeFile(seenFile, JSON.stringify(seen, null, 2));
    await browser.close();
  }
}
