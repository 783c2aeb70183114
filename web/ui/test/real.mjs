// Drives the router's page of a real daemon, and prints what it found as JSON.
// cmd/unbloat's TestPageOfDaemon calls it:
//   node real.mjs URL '{"token":"…","width":…,"height":…,"scheme":"light","shots":"DIR"|""}'
import { begin } from "./checks.mjs";

const [url, options] = process.argv.slice(2);
const o = { flow: "real", token: "", width: 1280, height: 900, scheme: "light", motion: "reduce", language: "en-US", shots: "", ...JSON.parse(options ?? "{}") };
const { page, found, close, shoot, shown, until, text, step, open, look } = await begin(o);
const speeds = () => page.evaluate(() => [document.getElementById("down")?.value, document.getElementById("up")?.value]);

try {
  await page.goto(url, { waitUntil: "load" });
  await shown("#token");
  await look("first");
  await page.fill("#token", o.token);
  await page.fill("#password", "long enough");
  await page.fill("#again", "long enough");
  await page.keyboard.press("Enter");
  await shown("#sentence");
  step("cookies", (await page.context().cookies()).map((c) => `${c.name} ${c.secure} ${c.httpOnly} ${c.sameSite}`));
  await until(() => document.documentElement.dataset.link === "live");
  step("sentence", await text("#sentence"));
  step("limits", await text('[data-key="ways"]'));
  await look("now");

  if (o.brief) {
    await page.click("#out");
    await shown('form[data-do="login"]');
    console.log(JSON.stringify(found));
    await close();
    process.exit(0);
  }
  // New speeds, kept.
  await open("line");
  step("speeds", await speeds());
  await page.fill("#up", "8");
  await page.keyboard.press("Enter");
  await shown("#waiting");
  step("question", await text("#waiting"));
  await look("waiting");
  await page.click("#keep");
  await until(() => document.getElementById("notice")?.className.includes("good") === true);
  step("kept", await text("#notice p"));
  await until(() => document.getElementById("waiting") === null && document.getElementById("up")?.disabled === false);
  step("keptSpeeds", await speeds());

  // Off, and nobody answers.
  await page.click("#onoff");
  await shown("#waiting");
  await until(() => document.getElementById("onoff")?.dataset.do === "on");
  step("off", await text('[data-key="shaping"]'));
  await until(() => document.getElementById("notice")?.className.includes("bad") === true);
  step("undone", await text("#notice p"));
  await until(() => document.getElementById("onoff")?.dataset.do === "off" && document.getElementById("onoff")?.disabled === false);
  await look("line");

  // A test at night is in the schedule at once; other speeds that hold now wait.
  const plan = async (kind, fill) => {
    if (!(await page.locator("#plan-do").isVisible())) await page.locator('[data-key="plan"] summary').click();
    await page.selectOption("#plan-do", kind);
    for (const [id, value] of Object.entries(fill)) await page.fill(`#${id}`, value);
    await page.click('form[data-do="plan"] button[type="submit"]');
  };
  await shown('[data-key="schedule"]');
  await plan("test", { "plan-from": "03:30" });
  await until(() => document.querySelectorAll(".entry").length === 1);
  step("planned", await text(".entry > span:first-child"));
  await plan("rates", { "plan-from": "00:00", "plan-to": "23:59", "plan-down": "30" });
  await shown("#waiting");
  step("plannedNow", await text("#waiting p"));
  await page.click("#undo");
  await until(() => document.querySelectorAll(".entry").length === 1);
  step("plannedAfter", await text(".entry > span:first-child"));
  await look("schedule");

  // A test with its live view, stopped; a tuning, stopped; and a test to its end.
  const live = async (kind) => {
    await page.click(`#run-${kind}`);
    await shown(".running");
    // Something is measured: the line carries what the test sends.
    await until(() => [...document.querySelectorAll(".running .tiles .num")].slice(1).some((x) => parseFloat(x.textContent.replaceAll(",", "")) > 1));
    step(`${kind}Live`, await text(".running"));
    await look(`${kind}-live`);
  };
  const ended = async () => {
    await shown('[data-key="ended"]');
    await until(() => document.getElementById("run-test")?.disabled === false);
    return text('[data-key="ended"]');
  };
  for (const kind of ["test", "tune"]) {
    await live(kind);
    await page.click('[data-do="stop"]');
    step(`${kind}Stopped`, await ended());
  }
  await page.click("#run-test");
  await shown(".running");
  step("result", await ended());
  await until(() => document.querySelector('[data-key="history"] details') !== null);
  step("history", await text('[data-key="history"]'));
  await look("result");

  await open("who");
  step("who", await text("#view"));
  await look("who");
  await open("health");
  await shown("#check");
  await until(() => document.querySelectorAll(".events > li").length >= 4);
  step("health", await text('[data-key="doctor"]'));
  step("events", await text(".events"));
  await look("health");
  await page.click("#out");
  await shown('form[data-do="login"]');
  console.log(JSON.stringify(found));
} catch (e) {
  await shoot("failed", true);
  console.error(JSON.stringify(found, null, 1));
  throw e;
} finally {
  await close();
}
