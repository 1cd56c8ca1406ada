// train.ipynb in VS Code: findings in the cells, hints, hover, a fix in one cell, undo, all fixes of the notebook.

import { command, openProject, page, plain, play, problems, screenshot, seen, squiggles, text, textOnce, until } from "./driver.mjs";

const NOTEBOOK = "train.ipynb";
const cells = page.locator(".notebookOverlay .cell-list-container .monaco-editor");

/** The cells of a notebook, which VS Code may write in another way than they were written before. */
function sources(notebook) {
  return JSON.stringify(JSON.parse(notebook).cells.map((cell) => [cell.source].flat().join("")));
}

function isAsBefore(notebook) {
  return sources(notebook) === sources(seen.before);
}

async function scenario() {
  await openProject(NOTEBOOK);
  seen.squiggles = await squiggles.count();
  await command("Problems: Focus on Problems View");
  await page.locator(".markers-panel .monaco-list-row", { hasText: "AMP201" }).first().waitFor();
  seen.problems = await problems();
  await page.keyboard.press("Control+j");
  await page.locator(".markers-panel").waitFor({ state: "hidden" });

  await until("inlay hints", async () => plain((await cells.allInnerTexts()).join("\n")).includes("float16 (autocast)"));
  await screenshot("notebook");

  seen.before = await text(NOTEBOOK);
  await cells.locator(".view-line", { hasText: "clip_grad_norm_" }).click();
  await page.keyboard.press("Home");
  await command("Show or Focus Hover");
  const hover = page.locator(".monaco-hover:visible", { hasText: "clip-before-unscale" }).first();
  await hover.waitFor();
  seen.hover = plain(await hover.innerText());
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");

  await cells.locator(".view-line", { hasText: "clip_grad_norm_" }).click();
  await page.keyboard.press("Home");
  await page.keyboard.press("Control+.");
  const offered = page.locator(".action-widget .monaco-list-row");
  await offered.filter({ hasText: "scaler.unscale_(optimizer)" }).first().waitFor();
  seen.offered = (await offered.allInnerTexts()).map(plain);
  await offered.filter({ hasText: "scaler.unscale_(optimizer)" }).first().click();
  seen.after_fix = await textOnce("the quick fix", (now) => !isAsBefore(now), NOTEBOOK);

  await page.keyboard.press("Control+z");
  seen.after_undo = await textOnce("undo", isAsBefore, NOTEBOOK);

  await cells.locator(".view-line", { hasText: "clip_grad_norm_" }).click();
  await command("amplint: Fix All That Is Safe in This File");
  seen.after_fix_all = await textOnce("fix all", (now) => !isAsBefore(now), NOTEBOOK);
}

await play(scenario);
