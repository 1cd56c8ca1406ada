// The commands of the extension, and fixes on saving.

import { command, goTo, openProject, page, plain, play, seen, until } from "./driver.mjs";

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
  seen.said = plain(await page.locator(".notification-list-item-message", { hasText: "findings in" }).first().innerText());
  const other = page.locator(".explorer-folders-view .monaco-list-row", { hasText: "other.py" });
  seen.other = await until("a mark at other.py", async () => (await other.innerHTML()).match(/(\d+) problems? in this file/)?.[1]);

  await other.dblclick();
  await page.locator(".tab.active", { hasText: "other.py" }).waitFor();
  await page.waitForTimeout(3000); // the editor asks for its findings again
  seen.opened = plain(await page.locator("[id*='amplint.status']").first().innerText()).trim();

  await page.keyboard.press("Control+End");
  await page.keyboard.type("# saved");
  await page.keyboard.press("Control+s");
  await until("all to be fixed", async () => !/problems? in this file/.test(await other.innerHTML()));
}

await play(scenario);
