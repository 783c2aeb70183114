// Drives LuCI's page of unbloat in a headless Chromium, on a stand-in of LuCI, as a
// person would, and prints what it found as JSON. cmd/unbloat's TestLuCI calls it:
//   node luci.mjs URL '{"width":…,"height":…,"scheme":"light","language":"en","shots":"DIR"|"","brief":false}'
// A brief visit ends after the first trial.
// At URL + "stop" the test ends the daemon.
import { join } from "node:path";
import { faintTexts, launch, unnamedControls } from "./visitor.mjs";

const [url, text] = process.argv.slice(2);
const o = { width: 1280, height: 900, scheme: "light", motion: "no-preference", language: "en-US", shots: "", brief: false, ...JSON.parse(text ?? "{}") };
const german = o.language.startsWith("de");
const say = (en, de) => (german ? de : en);
const { context, close } = await launch(o);
const found = { errors: [], spills: [], faint: [], unnamed: [] };
try {
  const page = context.pages()[0] ?? (await context.newPage());
  page.on("console", (m) => m.type() === "error" && found.errors.push(m.text()));
  page.on("pageerror", (e) => found.errors.push(String(e)));
  const look = async (name) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) found.spills.push(`${name}: ${wide} px`);
    found.faint.push(...(await page.evaluate(faintTexts)).map((t) => `${name}: ${t}`));
    found.unnamed.push(...(await page.evaluate(unnamedControls)));
    if (o.shots) await page.screenshot({ path: join(o.shots, `luci-${o.width}-${german ? "de" : "en"}-${name}.png`), fullPage: true });
  };
  const press = (en, de) => page.getByRole("button", { name: say(en, de), exact: true }).click();
  const trial = page.locator(".alert-message.warning", { hasText: say("This is a trial.", "Dies ist ein Versuch.") });
  const state = page.locator("p[role=status]").first();
  const cell = (row, column) => page.locator(`table tr:nth-child(${row}) td:nth-of-type(${column})`);
  await page.goto(`${url}?session=admin`);
  await state.waitFor();
  await page.waitForFunction((want) => document.querySelector("p[role=status]").textContent === want, say("The line is shaped.", "Die Leitung wird begrenzt."));
  found.listen = await page.locator('[id$=".listen"]').inputValue();
  found.title = await page.locator("h3").first().innerText();
  found.before = [await cell(2, 1).innerText(), await cell(2, 2).innerText(), await cell(2, 3).innerText()];
  await look("line");

  // Speeds are tried: undone at once, then kept.
  const down = page.getByLabel("Download (Mbit/s)", { exact: true });
  await down.fill("0");
  await press("Try these speeds", "Diese Geschwindigkeiten versuchen");
  found.refused = await page.locator("#notes .alert-message").innerText();
  await page.evaluate(() => document.getElementById("notes").replaceChildren());
  await down.fill("40.5");
  await press("Try these speeds", "Diese Geschwindigkeiten versuchen");
  await trial.waitFor({ state: "visible" });
  found.trial = await trial.innerText();
  await page.waitForFunction(() => /\d/.test(document.querySelector("[role=timer]").textContent)); // it counts
  found.tried = await cell(2, 1).innerText();
  await look("trial");
  await page.reload(); // a page that is opened again knows of it
  await trial.waitFor({ state: "visible" });
  await press("Undo it now", "Jetzt zurücknehmen");
  await trial.waitFor({ state: "hidden" });
  found.undone = await cell(2, 1).innerText();
  if (o.brief) await enter();
  else await rest();
  console.log(JSON.stringify(found));

  // From LuCI into the router's page, without another login: as who may change things,
  // and as who may look. The ticket is good once, and not in the address.
  async function enter() {
    found.entered = [];
    for (const session of ["admin", "viewer"]) {
      await page.goto(`${url}?session=${session}`);
      await state.waitFor();
      await press("Open the page of unbloat", "Die Seite von unbloat öffnen");
      await page.locator("#sentence").waitFor();
      found.entered.push(`${session} ${new URL(page.url()).hash} ${(await page.locator("#read-only").count()) > 0}`);
      await page.locator("#out").click();
      await page.locator("#password").waitFor();
    }
    found.errors = found.errors.filter((e) => !/Access denied/.test(e));
  }

  async function rest() {
    await down.fill("40.5");
    await press("Try these speeds", "Diese Geschwindigkeiten versuchen");
    await trial.waitFor({ state: "visible" });
    await press("Keep it", "Behalten");
    await trial.waitFor({ state: "hidden" });
    await page.waitForFunction((want) => document.querySelector("table tr:nth-child(2) td:nth-of-type(1)").textContent === want, found.tried);
    found.kept = [await cell(2, 1).innerText(), await cell(2, 2).innerText()];

    // Settings go LuCI's own way.
    await page.locator('[id="cbid.unbloat.home.up"]').fill("9 Mbit/s");
    await page.locator("#apply").click();
    await page.waitForFunction((want) => document.querySelector("table tr:nth-child(3) td:nth-of-type(2)").textContent === want, german ? "9 Mbit/s" : "9 Mbit/s", { timeout: 30_000 });
    found.settings = await cell(3, 2).innerText();

    // Measuring takes long: it is begun, and asked for.
    const measured = page.locator("p[role=status]").nth(1);
    await press("Measure the line", "Die Leitung messen");
    await measured.filter({ hasText: "measured" }).waitFor();
    await look("measuring");
    await measured.filter({ hasText: "Grade" }).waitFor({ timeout: 30_000 });
    found.measured = await measured.innerText();
    await press("Find the best speeds", "Die besten Geschwindigkeiten finden");
    await measured.filter({ hasText: "best speeds" }).waitFor();
    await press("Stop", "Anhalten");
    await measured.filter({ hasText: "stopped" }).waitFor();
    found.ended = await measured.innerText();

    // Off and on.
    await press("Turn off", "Ausschalten");
    await page.waitForFunction((want) => document.querySelector("p[role=status]").textContent === want, say("It is off: the line is not shaped.", "Aus: Die Leitung wird nicht begrenzt."));
    await look("off");
    await press("Turn on", "Einschalten");
    await page.waitForFunction((want) => document.querySelector("p[role=status]").textContent === want, say("The line is shaped.", "Die Leitung wird begrenzt."));

    // For an hour: off, and back by hand; a machine first.
    await press("Off for an hour", "Eine Stunde aus");
    await page.waitForFunction((want) => document.querySelector("p[role=status]").textContent.includes(want), say("It is on again by itself at", "geht es von selbst wieder an"));
    found.hour = await state.innerText();
    await look("hour");
    await press("Turn on", "Einschalten");
    await page.waitForFunction((want) => document.querySelector("p[role=status]").textContent === want, say("The line is shaped.", "Die Leitung wird begrenzt."));
    await page.getByLabel(say("This machine first, for an hour", "Dieses Gerät zuerst, für eine Stunde"), { exact: true }).fill("192.168.1.20");
    await press("First for an hour", "Eine Stunde zuerst");
    found.first = await page.locator("#notes .alert-message").innerText();

    // Who may only look changes nothing, and is told so.
    await page.goto(`${url}?session=viewer`);
    await state.waitFor();
    await press("Turn off", "Ausschalten");
    found.denied = await page.locator("#notes .alert-message").innerText();
    found.still = await state.innerText();

    // Without a daemon the page says so.
    await page.request.post(`${url}stop`);
    const problem = page.locator("#view .alert-message.warning").first();
    await problem.waitFor({ state: "visible", timeout: 30_000 });
    found.stopped = await problem.innerText();
    await look("stopped");
  }
} finally {
  await close();
}
