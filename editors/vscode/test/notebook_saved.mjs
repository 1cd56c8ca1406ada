// train.ipynb in VS Code with fixes on saving.

import { openProject, page, play, seen, text, textOnce } from "./driver.mjs";

async function scenario() {
  await openProject("train.ipynb");
  await page.locator(".notebookOverlay .view-line", { hasText: "matplotlib" }).click();
  await page.keyboard.press("End");
  await page.keyboard.type("  # saved");
  await page.waitForTimeout(1000); // for the check
  seen.saved = await textOnce("a fix", (now) => !now.includes("torch.cuda.amp"), "train.ipynb");
}

await play(scenario);
