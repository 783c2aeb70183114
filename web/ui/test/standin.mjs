// A stand-in for the router's server: it speaks the API of internal/keep/page/api.go and
// serves the built page under the same policy. A test changes `home` while it runs.
import { createServer } from "node:http";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const M = 1e6;
const way = (o) => ({ line_bps: 0, least_bps: 0, most_bps: 0, rate_bps: 0, capacity_bps: 0, carried_bps: 0, delay_ms: 2, busy: false, why: null, ...o });

/** A home whose laptop uploads; pictures are made of it. */
export function busyHome(now = Date.now()) {
  return {
    password: "correct horse",
    viewer: "only looking",
    token: "abcd efgh ijkl",
    firstRun: false,
    gone: false, // connections are cut
    deaf: false, // the stream is refused, so the page has to ask
    seconds: 60, // until a change is undone
    asked: [], // what was asked, as "GET state"
    wan: {
      wan: "pppoe-wan", interface: "pppoe-wan", router: "", platform: "openwrt",
      on: true, kept: "in place", since_ms: now - 86_400_000, why: "", by: "", mends: 0,
      follow: true, following: true, can_follow: true, blind: false, classes: true, can_limit: true,
      rules: ["class=voice,home=192.168.1.31,protocol=udp,port=3478-3497"], limits: ["192.168.1.40 20 Mbit/s / 2 Mbit/s"],
      down: way({ line_bps: 50 * M, least_bps: 5 * M, most_bps: 60 * M, rate_bps: 46.8 * M, capacity_bps: 48.9 * M, carried_bps: 6.2 * M, delay_ms: 1.8, why: { code: "follow_drained", text: "" } }),
      up: way({ line_bps: 5 * M, least_bps: 1 * M, most_bps: 12 * M, rate_bps: 4.9 * M, capacity_bps: 5.1 * M, carried_bps: 4.1 * M, delay_ms: 4.2, busy: true, why: { code: "follow_holding", text: "" } }),
      grade: { grade: "A", p95_ms: 11.4, seconds: 600 },
      pending: null, running: null,
    },
    machines: [
      machine("192.168.1.23", "laptop", "bulk", 0.21, 3.52, 4),
      machine("192.168.1.40", "tv", "normal", 5.62, 0.11, 3),
      machine("192.168.1.31", "office", "voice", 0.31, 0.3, 2, "first"),
      machine("192.168.1.52", "phone-anna", "interactive", 0.05, 0.02, 9),
      machine("192.168.1.60", "printer", "", 0, 0, 0),
      machine("192.168.1.61", "", "", 0.001, 0.001, 1),
      machine("fd00::62", "thermostat", "", 0, 0, 1),
    ],
    sight: "clear",
    hour: hour(now),
    findings: [
      { code: "flow-offload", blocking: true, what: "software flow offloading is on", why: "packets of known connections pass the shaper by, so the limit does not hold", remedy: "uci set firewall.@defaults[0].flow_offloading=0", mend: true },
      { code: "clock", blocking: false, what: "the router's clock is 41 s behind", why: "the times under What happened are off by as much", remedy: "turn NTP on under System", mend: false },
    ],
    incidents: [
      incident("i4", now - 50 * 60_000, 0, "bloat", "provider", "minor", "packets waited for 61 ms more than usual", "the provider's first router was well meanwhile"),
      incident("i3", now - 3 * 3_600_000, 540, "loss", "line", "major", "40 % of 540 probes were lost", "the provider's first router was affected as well"),
      incident("i2", now - 26 * 3_600_000, 360, "outage", "provider", "severe", "nothing came through: 0 of 360 probes were answered", "the provider's first router was well meanwhile"),
      incident("i1", now - 9 * 86_400_000, 90, "outage", "home", "severe", "the router's port towards the home had no link", "the link towards the home was down"),
    ],
    events: [
      event(4, now - 20 * 60_000, "confirmed", "page", []),
      event(3, now - 21 * 60_000, "applied", "page", ["up 4.5 Mbit/s → 5 Mbit/s"]),
      event(2, now - 3 * 3_600_000, "mended", "sqm-scripts", ["qdisc cake was missing on pppoe-wan"]),
      event(1, now - 26 * 3_600_000, "timeout", "command", ["down 50 Mbit/s → 500 Mbit/s"], "yes"),
    ],
    results: [
      result("r4", now - 7 * 3_600_000, "test", true, "A", 46.1, 4.7, 14.1, 9.2, 12.5),
      result("r3", now - 30 * 3_600_000, "tune", true, "A", 45.9, 4.7, 13.8, 10.2, 14.1),
      result("r2", now - 31 * 3_600_000, "test", false, "F", 48.8, 5.0, 13.9, 212, 843),
      { ...result("r1", now - 55 * 3_600_000, "test", false, "", 40, 4, 14, 0, 0), valid: false, invalid: [{ code: "cpu_busy", text: "this machine was busy" }] },
    ],
    entries: [
      { do: "test", wan: "pppoe-wan", at: "03:30" },
      { do: "first", wan: "pppoe-wan", from: "08:00", to: "17:00", days: ["mon", "tue", "wed", "thu", "fri"], machine: "192.168.1.31" },
    ],
  };
}

function machine(address, name, kind, down, up, flows, action = "none") {
  return { address, name, mac: address.includes(":") ? "" : `02:00:00:00:00:${address.split(".")[3]}`, class: kind, down_bps: down * M, up_bps: up * M, flows, action };
}

function incident(id, begin_ms, seconds, kind, part, severity, what, why) {
  return { id, begin_ms, end_ms: seconds === 0 ? 0 : begin_ms + seconds * 1000, kind, part, severity, what: { en: what, de: `${what} (deutsch)` }, why: { en: why, de: `${why} (deutsch)` } };
}

function event(n, at_ms, kind, by, what, undone = "") {
  return { n, time: new Date(at_ms).toISOString(), wan: "pppoe-wan", kind, ...(by && { by }), ...(what.length > 0 && { what }), ...(undone && { undone }) };
}

function result(id, at_ms, kind, shaped, grade, down, up, idle, downP95, upP95) {
  return { id, at_ms: Math.round(at_ms), wan: "pppoe-wan", kind, shaped, valid: true, grade, down_bps: down * M, up_bps: up * M, idle_ms: idle, down_p95_ms: downP95, up_p95_ms: upP95, fell_ms: shaped ? 0 : 900, outcomes: ["call", "game", "stream", "browsing"].map((use) => ({ use, score: shaped ? 100 : 40, limit: shaped ? "" : "latency" })), invalid: [] };
}

/** An hour of it: films in the evening, an upload for the last ten minutes. */
function hour(now) {
  const l = { step_seconds: 1, at_ms: [], down: series(), up: series() };
  let seed = 7;
  const noise = () => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;
  for (let i = -3600; i < 0; i++) {
    const film = i > -3000 && i < -1200 ? (i % 12 < -8 ? 21 : 2) : 1;
    const loading = i > -600;
    l.at_ms.push(now + i * 1000);
    put(l.down, 46.8 * M, 48.9 * M, (film + 2 * noise()) * M, 0.6 + noise() * (film > 2 ? 7 : 2));
    put(l.up, (loading ? 4.9 : 4.6 + 0.2 * Math.sin(i / 300)) * M, 5.1 * M, (loading ? 3.9 + 0.5 * noise() : 0.2 + 0.3 * noise()) * M, 0.8 + noise() * (loading ? 11 : 2) + (i === -590 ? 26 : 0));
  }
  return l;
}

const series = () => ({ rate_bps: [], capacity_bps: [], carried_bps: [], delay_ms: [], delay_max_ms: [] });

function put(s, rate, capacity, carried, delay) {
  s.rate_bps.push(Math.round(rate));
  s.capacity_bps.push(Math.round(capacity));
  s.carried_bps.push(Math.round(carried));
  s.delay_ms.push(delay / 2);
  s.delay_max_ms.push(delay);
}

/** The same home with a second line, by which nothing is shaped yet. */
export function twoLines(now = Date.now()) {
  const h = busyHome(now);
  const second = structuredClone(h.wan);
  Object.assign(second, { wan: "ssh://root@192.168.1.2 wwan0", interface: "wwan0", router: "ssh://root@192.168.1.2", platform: "openbsd", follow: false, following: false, can_follow: false, classes: false, grade: { grade: "", p95_ms: 0, seconds: 0 } });
  Object.assign(second.down, { line_bps: 20 * M, rate_bps: 19 * M, capacity_bps: 0, carried_bps: -1, delay_ms: -1, least_bps: 0, most_bps: 0, why: null });
  Object.assign(second.up, { line_bps: 4 * M, rate_bps: 3.8 * M, capacity_bps: 0, carried_bps: -1, delay_ms: -1, least_bps: 0, most_bps: 0, busy: false, why: null });
  h.more = [second];
  h.entries.push({ do: "tune", wan: second.interface, router: second.router, at: "04:00", days: ["sun"] });
  return h;
}

/** The same home at night. */
export function idleHome(now = Date.now()) {
  const h = busyHome(now);
  Object.assign(h.wan.down, { carried_bps: 8000, delay_ms: 0.3, why: { code: "follow_idle", text: "" } });
  Object.assign(h.wan.up, { carried_bps: 5000, delay_ms: 0.2, busy: false, why: { code: "follow_idle", text: "" } });
  h.machines = h.machines.map((m) => ({ ...m, down_bps: 0, up_bps: 0, class: "", action: "none" }));
  for (const s of [h.hour.down, h.hour.up]) {
    s.carried_bps = s.carried_bps.map(() => 6000);
    s.delay_max_ms = s.delay_max_ms.map(() => 0.4);
  }
  return h;
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const types = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

/** Serves the page in dist for a home; home may be replaced. */
export async function standIn(dist, home) {
  const files = new Map([["/", "index.html"], ["/favicon.svg", "favicon.svg"], ...readdirSync(join(dist, "assets")).map((f) => [`/assets/${f}`, `assets/${f}`])]);
  const s = { home, url: "", close: undefined, streams: new Set() };
  const sessions = new Map(); // cookie: role
  let timer;
  let serial = 0;

  const state = () => {
    const { wan, machines, sight } = s.home;
    const pending = wan.pending && { ...wan.pending, left_seconds: Math.max(0, Date.parse(wan.pending.deadline) - Date.now()) / 1000 };
    return { time_ms: Date.now(), wans: [{ ...wan, pending }, ...(s.home.more ?? [])], machines, more: 0, flows: machines.reduce((n, m) => n + m.flows, 0), sight };
  };
  const say = (what) => what(s.home);
  const note = (kind, by, what, undone = "") => s.home.events.unshift(event(100 + ++serial, Date.now(), kind, by, what, undone));
  const undo = (kind) => {
    clearTimeout(timer);
    Object.assign(s.home, s.home.kept); // what was before
    delete s.home.kept;
    for (const e of s.home.events) if (e.undone === "may") e.undone = "yes";
    note(kind, kind === "timeout" ? "" : "page", []);
  };
  const change = (kind, apply, what) => {
    const h = s.home;
    if (h.wan.pending) throw [409, "busy", "a change waits"];
    h.kept = structuredClone({ wan: h.wan, machines: h.machines, entries: h.entries });
    apply(h);
    h.wan.pending = { id: `c${++serial}`, kind, by: "page", deadline: new Date(Date.now() + h.seconds * 1000).toISOString(), left_seconds: h.seconds, seconds: h.seconds };
    note("applied", "page", [what], "may");
    timer = setTimeout(() => undo("timeout"), h.seconds * 1000);
    return h.wan.pending;
  };

  const answers = {
    "GET session": (_, role) => ({ user: role, first_run: s.home.firstRun, has_viewer: true, csrf: role && "the-secret", version: "1.2.3" }),
    "GET state": state,
    "GET line": (q) => ({ wan: q.get("wan") || s.home.wan.wan, ...(q.get("range") === "24h" ? day(s.home.hour) : s.home.hour) }),
    "GET machine": (q) => say((h) => ({ machine: h.machines.find((m) => m.address === q.get("address")), flows: flowsOf(q.get("address")), more: 0, sight: "clear" })),
    "GET health": (q) => say((h) => ({ wan: q?.get("wan") || h.wan.wan, ok: h.findings.every((f) => !f.blocking), at_ms: Date.now(), findings: h.findings, checked: 17, skipped: 1 })),
    "GET incidents": (q) => say((h) => ({ wan: q?.get("wan") || h.wan.wan, watched: true, incidents: h.incidents })),
    "GET events": () => ({ events: s.home.events }),
    "GET history": () => ({ results: s.home.results }),
    "GET schedule": () => ({ entries: s.home.entries }),
    "GET export": () => ({ everything: true }),
    "POST while": (b) => {
      const until = Date.now() + b.seconds * 1000;
      if (b.do === "off") Object.assign(s.home.wan, { on: b.seconds === 0, off_until_ms: b.seconds === 0 ? 0 : until });
      return b.seconds === 0 ? {} : { until: new Date(until).toISOString() };
    },
    "POST line": (b) =>
      change(
        b.machine || b.rules || b.limits ? "rule" : b.on === false ? "off" : b.on === true ? "on" : b.follow !== undefined ? "follow" : "line",
        ({ wan, machines }) => {
          if (b.machine) machines.find((m) => m.address === b.machine).action = b.action;
          if (b.down_bps) Object.assign(wan.down, { line_bps: b.down_bps, rate_bps: b.down_bps * 0.95, capacity_bps: 0 });
          if (b.up_bps) Object.assign(wan.up, { line_bps: b.up_bps, rate_bps: b.up_bps * 0.95, capacity_bps: 0 });
          if (b.rules) wan.rules = b.rules;
          if (b.limits) wan.limits = b.limits;
          if (b.follow !== undefined) wan.follow = b.follow;
          if (b.on !== undefined) {
            wan.on = b.on;
            wan.kept = b.on ? "in place" : "suspended";
          }
        },
        [b.down_bps && `down = ${b.down_bps / M} Mbit/s`, b.up_bps && `up = ${b.up_bps / M} Mbit/s`, b.follow !== undefined && `follow = ${b.follow}`, b.on !== undefined && (b.on ? "on" : "off"), b.machine && `${b.machine}: ${b.action}`].filter(Boolean).join(", "),
      ),
    "POST confirm": (b) => {
      const { wan } = s.home;
      if (wan.pending?.id !== b.change) throw [409, "no_change", "it was undone"];
      clearTimeout(timer);
      wan.pending = null;
      delete s.home.kept;
      for (const e of s.home.events) if (e.undone === "may") delete e.undone;
      note("confirmed", "page", []);
      return { ok: true };
    },
    "POST revert": () => {
      if (!s.home.wan.pending) throw [409, "no_change", "none waits"];
      undo("reverted");
      return { ok: true };
    },
    "POST run": (b) => (s.home.wan.running = { kind: b.kind, began_ms: Date.now(), step: "download", doing: b.kind === "tune" ? "trying" : "", round: 1, try_down_bps: 0, try_up_bps: b.kind === "tune" ? 4.6 * M : 0, seconds: 6, progress: 0.34, down_bps: 44.2 * M, up_bps: 0.6 * M, rtt_ms: 21.4, ended: false, stopped: false, result: null, error: null }),
    "POST stop": () => {
      Object.assign(s.home.wan.running, { ended: true, stopped: true, progress: 1 });
      return { ok: true };
    },
    "POST mend": (b) => {
      s.home.findings = s.home.findings.filter((f) => f.code !== b.code);
      note("applied", "page", [b.code]);
      return answers["GET health"]();
    },
    // What holds at noon waits for its confirmation; the rest is kept at once.
    "POST schedule": (b) => {
      const noon = (l) => JSON.stringify(l.filter((e) => e.to && e.from < "12:00" && e.to > "12:00"));
      const { wan, router } = s.home.wan;
      const made = noon(b.entries) === noon(s.home.entries) ? undefined : { wan, router, ...change("plan", (h) => (h.entries = b.entries), "schedule") };
      s.home.entries = b.entries;
      return { entries: b.entries, change: made };
    },
    "POST password": (b) => {
      if (b.now !== s.home.password) throw [403, "password", "wrong"];
      if (b.new.length < 8) throw [400, "weak", "too short"];
      s.home[b.role === "admin" ? "password" : "viewer"] = b.new;
      return answers["GET session"](null, "admin");
    },
  };

  const server = createServer(async (q, r) => {
    if (s.home.gone) return void q.destroy();
    const url = new URL(q.url, "http://x");
    const headers = { "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store" };
    const file = files.get(url.pathname);
    if (file !== undefined) {
      r.writeHead(200, { ...headers, "Content-Type": types[file.split(".").pop()] });
      return void r.end(readFileSync(join(dist, file)));
    }
    const json = (status, body, more = {}) => {
      r.writeHead(status, { ...headers, "Content-Type": "application/json", ...more });
      r.end(JSON.stringify(body));
    };
    const no = (status, code, text, more = {}) => json(status, { error: { code, text, ...more } });
    const cookie = /session=(\w+)/.exec(q.headers.cookie ?? "")?.[1] ?? "";
    const role = sessions.get(cookie) ?? "";
    const name = url.pathname.replace(/^\/api\//, "");
    const what = `${q.method} ${name}`;
    s.home.asked.push(what);
    let body = "";
    for await (const part of q) body += part;
    if (q.method === "POST" && (q.headers["content-type"] !== "application/json" || q.headers.origin !== s.url.slice(0, -1))) return no(403, "forged", what);
    const b = body === "" ? null : JSON.parse(body);
    const enter = (who) => {
      const made = `s${++serial}`;
      sessions.set(made, who);
      json(200, answers["GET session"](null, who), { "Set-Cookie": `session=${made}; HttpOnly; SameSite=Strict; Path=/` });
    };
    if (what === "POST first") {
      if (!s.home.firstRun) return no(404, "not_found", "there is a password");
      if (b.token.replaceAll(" ", "") !== s.home.token.replaceAll(" ", "")) return no(403, "password", "wrong token");
      if (b.password.length < 8) return no(400, "weak", "too short");
      Object.assign(s.home, { firstRun: false, password: b.password });
      return enter("admin");
    }
    if (what === "POST login") {
      if (b.password === s.home.password) return enter("admin");
      if (b.password === s.home.viewer) return enter("viewer");
      return s.home.slow ? no(429, "slow_down", "too many", { retry_seconds: 30 }) : no(403, "password", "wrong");
    }
    if (what !== "GET session" && role === "") return no(401, "login", what);
    if (what === "POST logout") {
      sessions.delete(cookie);
      return json(200, answers["GET session"](null, ""));
    }
    if (q.method === "POST" && q.headers["x-csrf"] !== "the-secret") return no(403, "forged", "no X-CSRF");
    if (q.method === "POST" && role !== "admin") return no(403, "read_only", what);
    if (what === "GET stream") {
      if (s.home.deaf) return no(503, "crowded", "no streams");
      r.writeHead(200, { ...headers, "Content-Type": "text/event-stream" });
      const send = () => r.write(sessions.has(cookie) ? `event: state\ndata: ${JSON.stringify(state())}\n\n` : "event: session\ndata: {}\n\n");
      send();
      const every = setInterval(send, 1000);
      s.streams.add(r);
      r.on("close", () => {
        clearInterval(every);
        s.streams.delete(r);
      });
      return;
    }
    try {
      const f = answers[what];
      if (f === undefined) return no(404, "not_found", what);
      json(200, f(q.method === "POST" ? b : url.searchParams, role));
    } catch (e) {
      if (!Array.isArray(e)) throw e;
      no(...e);
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  s.url = `http://127.0.0.1:${server.address().port}/`;
  /** As when the daemon ends: nobody answers, and what was open is cut. */
  s.leave = () => {
    s.home.gone = true;
    server.closeAllConnections();
  };
  s.close = () => {
    clearTimeout(timer);
    server.closeAllConnections();
    server.close();
  };
  return s;
}

function flowsOf(address) {
  const flow = (protocol, far, down, up, kind, code, upKind = kind, upCode = code) => ({
    protocol, home: `${address}:${50_000 + far.length}`, far,
    down: { rate_bps: down * M, bytes: 9e6, class: kind, why: [{ code }] },
    up: { rate_bps: up * M, bytes: 9e6, class: upKind, why: [{ code: upCode }] },
  });
  if (address.endsWith(".23")) {
    return [
      flow("tcp", "203.0.113.9:443", 0.11, 3.41, "interactive", "acknowledges", "bulk", "long"),
      flow("tcp", "198.51.100.4:443", 0.09, 0.1, "normal", "ordinary"),
      flow("udp", "192.0.2.53:53", 0.01, 0.01, "voice", "names"),
    ];
  }
  return [{ ...flow("udp", "203.0.113.77:19305", 0.3, 0.3, "voice", "calm_small"), down: { rate_bps: 0.3 * M, bytes: 4e6, class: "voice", why: [{ code: "by_rule", rule: "office" }] } }];
}

/** A day, a point each minute, from an hour of seconds. */
function day(l) {
  const out = { step_seconds: 60, at_ms: [], down: series(), up: series() };
  const end = l.at_ms.at(-1);
  for (let i = 0; i < 1440; i++) {
    const from = (i * 5) % 3540;
    const awake = Math.sin((i / 1440) * 2 * Math.PI) > -0.6 ? 1 : 0.02;
    out.at_ms.push(end - (1440 - i) * 60_000);
    for (const w of ["down", "up"]) put(out[w], l[w].rate_bps[from], l[w].capacity_bps[from], l[w].carried_bps[from] * awake, l[w].delay_max_ms[from] * awake);
  }
  return out;
}
