// Drives OPNsense's page of unbloat in a headless Chromium, on a stand-in of what
// OPNsense gives its pages, as a person would, and prints what it found as JSON.
// contrib/apps' TestOPNsensePage calls it:
//   node opnsense.mjs URL '{"width":…,"height":…,"shots":"DIR"|""}'
import { join } from "node:path";
import { launch, unnamedControls } from "./visitor.mjs";

const [url, text] = process.argv.slice(2);
const o = { width: 1280, height: 900, scheme: "light", motion: "no-preference", shots: "", ...JSON.parse(text ?? "{}") };
const { context, close } = await launch(o);
const found = { errors: [], spills: [], unnamed: [] };
try {
  const page = context.pages()[0] ?? (await context.newPage());
  page.setDefaultTimeout(60_000); // the programs behind the page may have to wait for a processor
  page.on("console", (m) => m.type() === "error" && found.errors.push(m.text()));
  page.on("pageerror", (e) => found.errors.push(String(e)));
  const look = async (name) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) found.spills.push(`${name}: ${wide} px`);
    found.unnamed.push(...(await page.evaluate(unnamedControls)).map((c) => `${name}: ${c}`));
    if (o.shots) await page.screenshot({ path: join(o.shots, `opnsense-${o.width}-${name}.png`), fullPage: true });
  };
  const press = (name) => page.getByRole("button", { name, exact: true }).click();
  const tab = (name) => page.locator("#maintabs").getByText(name, { exact: true }).click();
  const state = page.locator("#lines-now tbody td:nth-child(2)");
  await page.goto(url);
  const row = page.locator("#grid-lines tbody tr").first();
  await row.getByText("wan", { exact: true }).waitFor();
  found.line = (await row.locator("td:visible").allInnerTexts()).map((t) => t.trim());
  await look("lines");

  // A speed is changed, and applied.
  await row.getByRole("button", { name: "Edit" }).click();
  const up = page.locator("#DialogLine").getByLabel("Upload, Mbit/s", { exact: true });
  await up.waitFor();
  await page.locator("#DialogLine.in").waitFor();
  await look("line");
  await up.fill("8");
  await page.locator("#btn_DialogLine_save").click();
  await page.locator("#unbloatChangeMessage").waitFor();
  await row.getByText("8", { exact: true }).waitFor();
  await page.locator(".modal-backdrop").waitFor({ state: "detached" });
  await press("Apply");
  await page.locator("#unbloatChangeMessage").waitFor({ state: "hidden" });
  await tab("Schedule");
  await page.locator("#schedule.in").waitFor();
  await look("schedule");
  await tab("Settings");
  await page.locator("#settings.in").waitFor();
  await look("settings");

  // Off and on, and what the router has meanwhile.
  const shows = (says) => state.filter({ hasText: says }).waitFor();
  await tab("Status");
  await shows("in place");
  found.queues = await page.locator("#queues tbody th").allInnerTexts();
  await look("status");
  await press("Turn off");
  await shows("off");
  found.off = await page.locator("#queues tbody th").count();
  await press("Turn on");
  await shows("in place");
  found.markup = await page.locator("#lines-now b, #queues b").count();

  // From here into unbloat's own page.
  await press("Open the page of unbloat");
  await page.locator("#sentence").waitFor();
  found.entered = await page.locator("#sentence").innerText();
  found.hash = new URL(page.url()).hash;
  console.log(JSON.stringify(found));
} finally {
  await close();
}
