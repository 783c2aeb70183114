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
  await until(() => document.documentElement.dataset.link === "live");
  step("sentence", await text("#sentence"));
  step("limits", await text('[data-key="ways"]'));
  await look("now");

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
