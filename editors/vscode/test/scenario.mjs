// A user's minute in VS Code with sample/train.py: findings, hints, hover, a fix, undo, all fixes, undo, a port.

import { command, editor, goTo, openProject, page, plain, play, problems, screenshot, seen, squiggles, text, textOnce, until } from "./driver.mjs";

async function scenario() {
  await openProject();
  seen.squiggles = await squiggles.count();
  const status = page.locator("[id*='amplint.status']").first();
  seen.status = await until("a count in the status bar", async () => plain(await status.innerText()).match(/amplint \d+/)?.[0]);

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
  seen.after_fix = await textOnce("the quick fix", (now) => now !== seen.before);
  await squiggles.first().waitFor({ state: "detached" });

  await page.keyboard.press("Control+z");
  seen.after_undo = await textOnce("undo", (now) => now === seen.before);
  await squiggles.first().waitFor();

  await command("amplint: Fix All That Is Safe in This File");
  seen.after_fix_all = await textOnce("fix all", (now) => now !== seen.before);
  await page.keyboard.press("Control+z");
  seen.after_second_undo = await textOnce("undo", (now) => now === seen.before);

  await command("amplint: Port This File to All Devices");
  await page.locator(".monaco-diff-editor .char-insert, .monaco-diff-editor .line-insert").first().waitFor();
  seen.preview = plain(await page.locator(".modified-in-monaco-diff-editor .view-lines:not(.line-delete)").innerText());
  await screenshot("port");
  await page.locator(".editor-actions .action-label[aria-label^='Apply the Port']").click();
  seen.after_port = await textOnce("the port", (now) => now !== seen.before);
  seen.editors_after_port = await page.locator(".tabs-container .tab").count();
}

await play(scenario);
