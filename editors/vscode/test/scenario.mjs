// A user's minute in VS Code with sample/train.py, in a browser that is connected to code-server.
//
// What was seen is written as JSON to $SEEN, and screenshots into $SCREENSHOTS. Run by tests/editors/test_vscode.py,
// which starts the server: $URL opens the project, which is the folder $PROJECT. $CHROMIUM is the browser.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { chromium } from "playwright-core";

const { URL: url, PROJECT: project, SEEN: seenFile, SCREENSHOTS: screenshots, CHROMIUM: executablePath } = process.env;
const file = path.join(project, "train.py");
const seen = {};

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
});
const page = await browser.newPage({ viewport: { width: 1100, height: 720 } });
page.setDefaultTimeout(30_000);

const squiggles = page.locator(".squiggly-error");
const editor = page.locator(".editor-instance .monaco-editor").first();

async function screenshot(name) {
  if (screenshots) {
    await mkdir(screenshots, { recursive: true });
    await page.waitForTimeout(500); // for what fades in
    await page.screenshot({ path: path.join(screenshots, `vscode-${name}.png`) });
  }
}

async function until(what, condition) {
  for (let tries = 0; tries < 300; tries++) {
    const answer = await condition();
    if (answer) {
      return answer;
    }
    await page.waitForTimeout(100);
  }
  throw new Error(`waited in vain for ${what}`);
}

/** The text as it is in the editor: saved, and read from the disk. */
async function text() {
  await page.keyboard.press("Control+s");
  await page.waitForSelector(".tab.active:not(.dirty)");
  return readFile(file, "utf-8");
}

async function command(title) {
  await page.keyboard.press("F1");
  await page.waitForSelector(".quick-input-widget input");
  await page.keyboard.type(title);
  await page.locator(".quick-input-list .monaco-list-row", { hasText: title }).first().click();
}

async function goTo(line, column) {
  await page.keyboard.press("Control+g");
  await page.waitForSelector(".quick-input-widget input");
  await page.keyboard.type(`${line}:${column}`);
  await page.keyboard.press("Enter");
  await page.locator(".quick-input-widget").waitFor({ state: "hidden" });
}

function plain(shown) {
  return shown.replaceAll("\u00a0", " ");
}

async function problems() {
  const rows = await page.locator(".markers-panel .monaco-list-row").allInnerTexts();
  return rows.map((row) => plain(row).replaceAll("\n", " "));
}

async function scenario() {
  await page.goto(url, { waitUntil: "domcontentloaded" });
  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: "train.py" }).dblclick();
  await editor.locator(".view-lines").waitFor();
  await squiggles.first().waitFor();
  seen.squiggles = await squiggles.count();
  seen.status = plain(await page.locator("#amplint\\.amplint\\.amplint\\.status, [id*='amplint.status']").first().innerText());

  await command("Problems: Focus on Problems View");
  await page.locator(".markers-panel .monaco-list-row", { hasText: "AMP201" }).first().waitFor();
  seen.problems = await problems();

  await until("inlay hints", async () => plain(await editor.innerText()).includes("float16 (autocast)"));
  seen.hints = (await editor.locator(".view-line").allInnerTexts()).map(plain).filter((line) => /\(autocast\)|scaled/.test(line));
  await screenshot("findings");
  await page.keyboard.press("Control+j");
  await page.locator(".markers-panel").waitFor({ state: "hidden" });

  await editor.locator(".view-line", { hasText: "clip_grad_norm_" }).click();
  await goTo(18, 20);
  await command("Show or Focus Hover");
  const hover = page.locator(".monaco-hover:visible", { hasText: "clip-before-unscale" }).first();
  await hover.waitFor();
  seen.hover = plain(await hover.innerText());
  await screenshot("hover");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");

  seen.before = await text();
  await goTo(18, 20);
  await page.keyboard.press("Control+.");
  const offered = page.locator(".action-widget .monaco-list-row");
  await offered.filter({ hasText: "scaler.unscale_(optimizer)" }).first().waitFor();
  seen.offered = (await offered.allInnerTexts()).map(plain);
  await screenshot("quick-fix");
  await offered.filter({ hasText: "scaler.unscale_(optimizer)" }).first().click();
  await until("the quick fix", async () => (await text()) !== seen.before);
  seen.after_fix = await text();
  await squiggles.first().waitFor({ state: "detached" });

  await page.keyboard.press("Control+z");
  await until("undo", async () => (await text()) === seen.before);
  seen.after_undo = await text();
  await squiggles.first().waitFor();

  await command("amplint: Fix All That Is Safe in This File");
  await until("fix all", async () => (await text()) !== seen.before);
  seen.after_fix_all = await text();
  await page.keyboard.press("Control+z");
  await until("undo", async () => (await text()) === seen.before);
  seen.after_second_undo = await text();

  await command("amplint: Port This File to All Devices");
  await page.locator(".monaco-diff-editor .char-insert, .monaco-diff-editor .line-insert").first().waitFor();
  seen.preview = plain(await page.locator(".modified-in-monaco-diff-editor .view-lines:not(.line-delete)").innerText());
  await screenshot("port");
  await page.locator(".editor-actions .action-label[aria-label^='Apply the Port']").click();
  await until("the port", async () => (await text()) !== seen.before);
  seen.after_port = await text();
  seen.editors_after_port = await page.locator(".tabs-container .tab").count();
}

try {
  await scenario();
} catch (error) {
  seen.problem = String(error.stack ?? error);
  await screenshot("problem");
} finally {
  await writeFile(seenFile, JSON.stringify(seen, null, 2));
  await browser.close();
}
