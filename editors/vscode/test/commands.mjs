// The commands of the extension, and fixes on saving.

import { command, goTo, openProject, page, plain, play, problems, seen, text, until } from "./driver.mjs";

async function output() {
  return plain(await page.locator(".output-view-container, .panel .view-lines").last().innerText());
}

async function scenario() {
  await openProject();
  await goTo(15, 14);
  await command("amplint: Explain Dtypes and Loss Scaling at the Cursor");
  seen.explained = await until("an explanation", async () => {
    const shown = await output();
    return shown.includes("logits") && shown;
  });

  await command("amplint: Show the Settings in Force for This File");
  seen.settings = await until("settings", async () => {
    const shown = await output();
    return shown.includes('"min-confidence"') && shown;
  });

  await command("amplint: Check All Files of the Workspace");
  await page.locator(".markers-panel .monaco-list-row", { hasText: "other.py" }).first().waitFor();
  seen.workspace = await problems();
  seen.said = plain(await page.locator(".notification-list-item-message", { hasText: "findings in" }).first().innerText());
  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: "other.py" }).dblclick();
  await page.locator(".tab.active", { hasText: "other.py" }).waitFor();
  await page.waitForTimeout(3000); // its findings are asked for again
  seen.opened = await problems();

  await page.keyboard.press("End");
  await page.keyboard.type("  # saved");
  await page.keyboard.press("Control+s");
  await page.locator(".markers-panel .monaco-list-row", { hasText: "other.py" }).first().waitFor({ state: "detached" });
  seen.saved = true;
}

await play(scenario);
