// Drives the router's page in a headless Chromium as its people would, against the
// stand-in, and prints what it found as JSON. web/ui's tests call it:
//   node page.mjs '{"flow":"first|mend|undo|gone|idle|looks|viewer|cards|pictures|own|day|dossier","width":…,"height":…,"scheme":"light","language":"en-US","shots":"DIR"|""}'
import { join } from "node:path";
import { tabTo } from "../../test/visitor.mjs";
import { begin } from "./checks.mjs";
import { busyHome, idleHome, standIn, twoLines } from "./standin.mjs";

const o = { flow: "looks", width: 1280, height: 900, scheme: "light", motion: "reduce", language: "en-US", shots: "", ...JSON.parse(process.argv[2] ?? "{}") };
const server = await standIn(new URL("../dist", import.meta.url).pathname, { idle: idleHome, lines: twoLines }[o.flow]?.() ?? busyHome());
const { page, found, close, shoot, shown, until, text, step, focused, open, look } = await begin(o);

async function login(password = server.home.password) {
  await page.goto(server.url, { waitUntil: "load" });
  await shown("#password");
  await page.fill("#password", password);
  await page.keyboard.press("Enter");
  await shown("#sentence");
}

const flows = {
  // The page is new: the token of the router, a password, and then it shows the line.
  async first() {
    server.home.firstRun = true;
    await page.goto(server.url, { waitUntil: "load" });
    await shown("#token");
    await look("first");
    const go = async (token, password, again) => {
      await page.fill("#token", token);
      await page.fill("#password", password);
      await page.fill("#again", again);
      await page.keyboard.press("Enter");
    };
    await go("wrong", "long enough", "not the same");
    await until(() => document.getElementById("door-wrong").textContent !== "");
    step("different", await text("#door-wrong"));
    await go("wrong", "long enough", "long enough");
    await until((t) => ![t, ""].includes(document.getElementById("door-wrong").textContent), found.steps.different);
    step("wrongToken", await text("#door-wrong"));
    await go("ABCD EFGH IJKL".toLowerCase(), "long enough", "long enough");
    await shown("#sentence");
    step("sentence", await text("#sentence"));
    await look("now");
    await page.click("#out");
    await shown("#password");
    step("leftBehind", await page.evaluate(() => document.body.innerText.includes("laptop")));
    await page.fill("#password", "not it");
    await page.keyboard.press("Enter");
    await until(() => document.getElementById("door-wrong").textContent !== "");
    step("wrongPassword", await text("#door-wrong"));
    await look("login");
    await page.fill("#password", "long enough");
    await page.keyboard.press("Enter");
    await shown("#sentence");
  },

  // A bad line: shaping is off and calls break up. By keyboard: turn it on, keep it,
  // and mend what the doctor finds.
  async mend() {
    Object.assign(server.home.wan, { on: false, kept: "suspended", grade: { grade: "F", p95_ms: 612, seconds: 600 } });
    for (const w of ["down", "up"]) Object.assign(server.home.wan[w], { rate_bps: 0, capacity_bps: 0, why: null });
    server.home.wan.up.delay_ms = 540;
    await login();
    step("bad", await text("#sentence"));
    await look("bad");
    await page.evaluate(() => document.activeElement?.blur());
    await tabToText("Line");
    await page.keyboard.press("Enter");
    await shown("#onoff");
    await tabTo(page, "onoff");
    await page.keyboard.press("Enter");
    await shown("#waiting");
    step("focus", await focused());
    step("question", await text("#waiting"));
    await look("waiting");
    server.home.wan.up.delay_ms = 4;
    server.home.wan.grade = { grade: "A", p95_ms: 9, seconds: 60 };
    await page.keyboard.press("Tab");
    step("next", await focused());
    await page.keyboard.press("Enter");
    await shown("#notice");
    step("kept", await text("#notice p"));
    step("pending", server.home.wan.pending);
    await open("health");
    await shown('[data-do="mend"]');
    await look("findings");
    await page.click('[data-do="mend"]');
    await until(() => document.querySelector('[data-do="mend"]') === null);
    step("mended", await text('[data-key="doctor"]'));
    await open("now");
    await until(() => document.getElementById("sentence").textContent.includes("clear")); // with the next second's news
    step("good", await text("#sentence"));
  },

  // Two lines: one is chosen, and every part is about it; a change of the other is named.
  async lines() {
    await login();
    step("choices", await page.evaluate(() => [...document.querySelectorAll("#wan option")].map((x) => x.textContent)));
    step("first", await text("#sentence"));
    await look("first-line");
    await tabTo(page, "wan");
    await page.selectOption("#wan", { index: 1 });
    await shown('[data-view="now"][data-key$="wwan0"]');
    step("second", await text("#view"));
    step("focus", await focused());
    await look("second-line");
    await open("line");
    step("speeds", await page.evaluate(() => `${document.getElementById("down").value} ${document.getElementById("up").value}`));
    await until(() => document.querySelectorAll(".entry").length > 0);
    step("entries", await page.locator(".entry").allInnerTexts());
    step("follows", await page.evaluate(() => document.querySelector('input[name="follow"]').disabled));
    await look("second-settings");
    // Somebody else changes the first line meanwhile.
    await page.evaluate(async () => {
      const s = await (await fetch("api/session")).json();
      await fetch("api/line", { method: "POST", headers: { "Content-Type": "application/json", "X-CSRF": s.csrf }, body: JSON.stringify({ wan: "pppoe-wan", down_bps: 40_000_000 }) });
    });
    await shown("#waiting");
    step("named", await text("#waiting p"));
    await page.click("#undo");
    await until(() => document.getElementById("waiting") === null);
    await open("who");
    await look("second-who");
    await open("health");
    await shown(".finding");
    step("health", server.home.asked.length);
    await look("second-health");
    await page.selectOption("#wan", { index: 0 });
    await open("line");
    step("back", await page.evaluate(() => document.getElementById("down").value));
  },

  // A wrong change: nobody answers, the router undoes it, and the page says so. Another
  // is answered after the router was out of reach.
  async undo() {
    server.home.seconds = 8;
    await login();
    await open("line");
    await page.fill("#up", "abc");
    await page.click('form[data-do="speeds"] button');
    await until(() => document.getElementById("speeds-wrong").textContent !== "");
    step("noNumber", await text("#speeds-wrong"));
    await page.fill("#up", "0,5");
    await page.keyboard.press("Enter");
    await shown("#waiting");
    step("set", server.home.wan.up.line_bps);
    const counts = new Set();
    for (let i = 0; i < 12; i++) {
      const t = await page.evaluate(() => document.getElementById("left")?.textContent ?? "");
      if (t !== "") counts.add(t);
      await page.waitForTimeout(250);
    }
    step("counts", [...counts]);
    await shown("#notice.bad");
    step("undone", await text("#notice p"));
    step("again", server.home.wan.up.line_bps);
    await until(() => document.getElementById("up")?.value === "5" && !document.getElementById("up").disabled);
    await look("undone");
    await page.click('[data-do="dismiss"]');
    await open("health");
    await until(() => document.querySelector(".events")?.textContent.includes("Nobody confirmed"));
    step("event", await text(".events li"));
  },

  // The stream fails, then the router goes away with a change that waits, and comes back.
  async gone() {
    server.home.deaf = true;
    await login();
    await until(() => document.documentElement.dataset.link === "polling");
    const before = server.home.asked.filter((a) => a === "GET state").length;
    server.home.wan.up.carried_bps = 4.7e6;
    await until(() => document.getElementById("sentence").textContent.includes("4.7 of"));
    step("polls", server.home.asked.filter((a) => a === "GET state").length - before);
    server.home.seconds = 8;
    await open("who");
    await page.click('[data-address="192.168.1.23"][data-action="last"]');
    await shown("#waiting");
    server.leave();
    await shown("#gone");
    step("gone", await text("#gone"));
    step("left", await text("#left"));
    await look("gone");
    await page.waitForTimeout(4000);
    server.home.gone = server.home.deaf = false;
    await until(() => document.getElementById("gone") === null);
    await shown("#notice.bad");
    step("notice", await text("#notice p"));
    step("rule", server.home.machines[0].action);
    // A router that is started again has forgotten the session.
    await until(() => document.documentElement.dataset.link === "live");
  },

  // Nobody uses the line: it must not look broken. And a screen reader hears little.
  async idle() {
    await login();
    step("sentence", await text(".verdict"));
    step("words", await text(".history"));
    await look("idle");
    await open("who");
    step("who", await text("#view"));
    await look("idle-who");
    await open("now");
    await page.waitForTimeout(5000);
  },

  // Who may only look.
  async viewer() {
    await login(server.home.viewer);
    step("note", await text("#read-only"));
    for (const v of ["now", "who", "line", "health"]) {
      await open(v);
      await page.waitForTimeout(300);
      await look(v);
    }
    step("controls", await page.evaluate(() => [...document.querySelectorAll("#view [data-do]")].map((e) => e.dataset.do)));
    step("posts", server.home.asked.filter((a) => a.startsWith("POST")));
  },

  // What a start, a tuning that kept nothing, one that failed, and an undo look like.
  async cards() {
    const h = server.home.hour;
    const minutes = 12;
    for (const l of [h, h.down, h.up]) for (const k of Object.keys(l)) if (Array.isArray(l[k])) l[k] = l[k].slice(-minutes * 60);
    for (const w of [h.down, h.up]) w.rate_bps = w.rate_bps.map((r, i) => (i > 240 && i < 420 ? 0 : r)); // shaping was off
    await login();
    await shown(".history svg");
    const limits = await page.evaluate(() => [...document.querySelectorAll(".history svg")].flatMap((p) => [...p.querySelectorAll("path.limit")].map((c) => ({ d: c.getAttribute("d"), floor: Math.max(...[...p.querySelectorAll("line.grid")].map((g) => Number(g.getAttribute("y1")))) }))));
    step("limits", limits.map(({ d, floor }) => ({ pieces: d.split("M").length - 1, lowest: Math.max(...[...d.matchAll(/[ML][\d.]+ ([\d.]+)/g)].map((m) => Number(m[1]))) / floor })));
    const ends = await page.evaluate(() => [...[...document.querySelectorAll(".history svg")].at(-1).querySelectorAll("text")].map((t) => t.textContent).filter((t) => /\d:\d/.test(t)));
    step("hour", ends);
    await look("start");
    await open("who");
    step("badge", await text('#view .machine[data-key="192.168.1.23"] .class'));
    await look("machines");
    await open("line");
    const ended = async (o) => {
      await page.click("#run-tune");
      await shown(".running");
      Object.assign(server.home.wan.running, { ended: true, progress: 1, ...o });
      await shown(".outcome");
      return { text: await text(".outcome"), tone: await page.locator(".outcome").getAttribute("class") };
    };
    step("keptNothing", await ended({ result: { ...server.home.results[2], kind: "tune", kept: false } }));
    await look("kept-nothing");
    step("failed", await ended({ error: { code: "failed", text: "no server answers; name one with --server HOST" } }));
    await look("failed");
    await page.click("#onoff");
    await shown("#waiting");
    await page.click("#undo");
    await shown("#notice");
    step("undone", { text: await text("#notice p"), tone: await page.locator("#notice").getAttribute("class") });
    await look("undone");
  },

  // The pictures of docs/page.md, each on its own device.
  async pictures() {
    await login();
    const shot = async (file) => {
      await page.mouse.move(0, 0);
      await page.waitForTimeout(1500);
      await page.screenshot({ path: join(o.shots, file), scale: "css" });
      found.looks.push(file);
    };
    if (o.width > 600) {
      await shown(".history svg");
      if (o.scheme === "light") return shot("desktop.png");
      await open("line");
      await shown('[data-key="history"]');
      return shot("dark.png");
    }
    if (o.scheme === "light") {
      await shot("phone.png");
      await open("health");
      await page.click(".calendar .severe:nth-last-child(-n+7)");
      await page.evaluate(() => scrollTo(0, 0));
      return shot("incidents.png");
    }
    await open("who");
    await page.locator("#m-192-168-1-23").click();
    await shown(".flows li");
    await page.click('[data-address="192.168.1.23"][data-action="last"]');
    await shown("#waiting");
    await shot("phone-dark.png");
  },

  // Rules of one's own: one is refused, one is made and kept, a machine is limited, and a rule
  // is taken away. By keyboard: machines come and go above, and would move what a click is for.
  async own() {
    await login();
    await open("who");
    const keep = async () => {
      await shown("#waiting");
      await page.press('[data-do="keep"]', "Enter");
      await page.waitForFunction(() => document.getElementById("waiting") === null && !document.documentElement.hasAttribute("aria-busy"));
    };
    await page.press('[data-key="own"] summary', "Enter");
    await look("own");
    await page.press('form[data-do="own"] button', "Enter");
    await until(() => document.getElementById("own-wrong").textContent !== "");
    step("wrong", await text("#own-wrong"));
    await page.selectOption("#own-class", "bulk");
    await page.selectOption("#own-machine", "192.168.1.40");
    await page.selectOption("#own-protocol", "tcp");
    await page.fill("#own-port", "6881-6889");
    await page.press('form[data-do="own"] button', "Enter");
    await keep();
    step("rules", server.home.wan.rules.join("; "));
    await page.press('[data-key="most"] summary', "Enter");
    await page.selectOption("#most-machine", "192.168.1.23");
    await page.fill("#most-down", "8");
    await page.fill("#most-up", "0,5");
    await page.press('form[data-do="most"] button', "Enter");
    await keep();
    step("limits", server.home.wan.limits.join("; "));
    await page.press('[data-do="disown"][data-kind="rules"]', "Enter");
    await keep();
    step("left", server.home.wan.rules.join("; "));
    step("said", await text('[data-key="own rules"]'));
    await look("limited");
  },

  // A day's incidents, as a test measured them (o.incidents, shifted to today).
  async day() {
    const last = Math.max(...o.incidents.map((x) => x.begin_ms));
    const shift = new Date().setUTCHours(0, 0, 0, 0) - new Date(last).setUTCHours(0, 0, 0, 0) - 86_400_000;
    server.home.incidents = o.incidents.map((x) => ({ ...x, begin_ms: x.begin_ms + shift, end_ms: x.end_ms + shift })).reverse();
    server.home.findings = [];
    await login();
    await open("health");
    await page.click(".calendar .severe");
    await page.evaluate(() => scrollTo(0, 0));
    await page.mouse.move(0, 0);
    await page.waitForTimeout(1500);
    await page.screenshot({ path: join(o.shots, o.file), scale: "css" });
    found.looks.push(o.file);
  },

  // A dossier that a test made, as whoever gets it sees it.
  async dossier() {
    await page.goto(`file://${o.html}`);
    await page.screenshot({ path: join(o.shots, o.file), scale: "css", fullPage: true, clip: { x: 0, y: 0, width: o.width, height: 1900 } });
    found.looks.push(o.file);
    step("wide", await page.evaluate(() => document.documentElement.scrollWidth - innerWidth));
  },

  // Every view, and what is in it, by keyboard.
  async looks() {
    await login();
    await shown(".history svg");
    step("sentence", await text("#sentence"));
    step("chart", await page.locator(".history svg").first().getAttribute("aria-label"));
    await look("now");
    step("walk", await walk());
    await open("who");
    await shown(".machine");
    const first = page.locator(".machine button.plain").first();
    await first.focus();
    await page.keyboard.press("Enter");
    await shown(".flows li");
    step("flows", await text(".flows"));
    // Machines and their flows come anew each second; the focus stays.
    await page.waitForTimeout(2500);
    step("stays", await focused());
    step("expanded", await first.getAttribute("aria-expanded"));
    await look("who");
    await page.locator('[data-address="192.168.1.40"][data-action="first"]').focus();
    await page.keyboard.press("Enter");
    await shown("#waiting");
    step("rule", server.home.machines.find((m) => m.address === "192.168.1.40").action);
    await page.waitForTimeout(1200);
    await look("who-waiting");
    await page.click("#undo");
    await shown("#notice");
    step("undid", server.home.machines.find((m) => m.address === "192.168.1.40").action);
    await page.click('[data-do="dismiss"]');
    await open("line");
    await shown('[data-key="history"]');
    await shown('[data-key="schedule"]');
    await look("line");
    await page.locator('[data-key="plan"] summary').click();
    await page.selectOption("#plan-do", "last");
    await page.fill("#plan-from", "20:00");
    await page.fill("#plan-to", "23:00");
    await page.selectOption("#plan-machine", "192.168.1.40");
    await page.check('input[name="day"][value="sat"]');
    await look("plan");
    await page.click('form[data-do="plan"] button');
    await until(() => document.querySelectorAll(".entry").length === 3);
    step("entry", server.home.entries.at(-1));
    step("entryText", await page.locator(".entry > span:first-child").last().innerText());
    // The office's entry: its form has what it says; another end holds now, and waits.
    await page.locator('.entry [data-do="replan"]').nth(1).click();
    step("editFocus", await focused());
    step("edits", await page.evaluate(() => [...document.querySelectorAll("#plan-do, #plan-from, #plan-to, #plan-machine")].map((x) => x.value).join(" ")));
    await look("replan");
    await page.fill("#plan-to", "18:00");
    await page.click('form[data-do="plan"] button[type="submit"]');
    await shown("#waiting");
    step("planWaits", await text("#waiting p"));
    await page.click("#undo");
    await until(() => document.querySelectorAll(".entry > span:first-child")[1]?.textContent.includes("17:00"));
    await page.locator('.entry [data-do="replan"]').nth(1).click();
    await page.fill("#plan-to", "19:00");
    await page.click('form[data-do="plan"] button[type="submit"]');
    await shown("#waiting");
    await page.click("#keep");
    await until(() => document.getElementById("waiting") === null);
    step("edited", await page.locator(".entry > span:first-child").nth(1).innerText());
    await page.locator('.entry [data-do="unplan"]').first().click();
    await until(() => document.querySelectorAll(".entry").length === 2);
    step("entriesLeft", server.home.entries.map((e) => `${e.do} ${e.from} ${e.to}`).join(", "));
    await page.click('[data-do="dismiss"]');
    await page.click("#run-test");
    await shown(".running");
    await look("running");
    await page.click('[data-do="stop"]');
    await shown("#run-test");
    await open("health");
    await shown(".finding");
    step("finding", await text(".finding"));
    await look("health");
    await open("line");
    await page.click("#off-hour");
    await until(() => document.querySelector('[data-key="shaping"] .num').textContent.match(/\d/));
    step("offHour", await text('[data-key="shaping"] .num'));
    await look("off-hour");
    await open("health");
    await page.click(".calendar .severe");
    step("incident", await text(".incident"));
    await look("incident");
  },
};

async function tabToText(name) {
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press("Tab");
    if ((await page.evaluate(() => document.activeElement?.innerText ?? "")).startsWith(name)) return;
  }
  throw new Error(`${name} cannot be reached by the keyboard`);
}

/** What a keyboard reaches, one after the other, and whether its focus is seen. */
async function walk() {
  await page.locator(".brand a").focus();
  const names = ["unbloat"];
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (e === null || e === document.body) return "";
      const style = getComputedStyle(e);
      const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
      return `${e.innerText?.trim().split("\n")[0] || e.id || e.tagName}${seen ? "" : " (not seen)"}`;
    });
    if (at === "" || names.includes(at)) break;
    names.push(at);
  }
  return names;
}

try {
  await flows[o.flow]();
  found.language = await page.evaluate(() => document.documentElement.lang);
  console.log(JSON.stringify(found));
} catch (e) {
  if (o.shots) await shoot("failed", true);
  console.error(JSON.stringify(found, null, 1));
  throw e;
} finally {
  await close();
  server.close();
}
