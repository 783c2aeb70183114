// Sends probes at fixed times, as datagrams or else over the session's
// WebSocket, and takes the times of their answers. It has its own thread, so
// that neither drawing nor the loads delay it.
import { datagrams, type Datagrams } from "./datagrams";
import { clock, type Closed, type FromProbe, type Sample, type ToProbe } from "./wire";
import type { Hello } from "./wire.gen";

const probeBytes = 48;
const reportEvery = 80; // ms
const aliveEvery = 5000; // ms between messages on a WebSocket that carries no probes
const alive = 0xffff_ffff; // their number
const grace = 3000; // ms after the newest answer, when what is missing is lost

let socket: WebSocket | undefined;
let fast: Datagrams | undefined;
let interval = 20;
let running = false;
let due = 0;
let closed = false;
const samples: Sample[] = []; // by sequence number
const skips: { at: number; probes: number; late: number }[] = [];
let news: Sample[] = [];
let newest = -1; // number of the newest probe that was answered
let newestAt = 0; // when
let reported = 0;

function post(m: FromProbe): void {
  self.postMessage(m);
}

function connect(url: string): void {
  const ws = new WebSocket(url, "unbloat.probe.1");
  ws.binaryType = "arraybuffer";
  ws.onmessage = (e: MessageEvent<string | ArrayBuffer>) => {
    const now = clock();
    if (typeof e.data === "string") {
      void begin(JSON.parse(e.data) as Hello);
    } else {
      take(now, new DataView(e.data));
    }
  };
  ws.onclose = (e) => end("ended", e.reason);
  ws.onerror = () => end("unreachable");
  socket = ws;
}

/** Looks for the best way for probes, and says that the test may begin. */
async function begin(hello: Hello): Promise<void> {
  fast = await datagrams(hello.session, hello.certificate, take, () => end("probesEnded"));
  if (fast !== undefined) setInterval(() => ping(), aliveEvery);
  post({ is: "hello", hello, tick: tick(), transport: fast === undefined ? "websocket" : "webtransport" });
}

/** Keeps the session alive, which is the WebSocket's. */
function ping(): void {
  const message = new DataView(new ArrayBuffer(probeBytes));
  message.setUint32(0, alive);
  if (socket?.readyState === WebSocket.OPEN) socket.send(message.buffer);
}

function end(why: Closed, told = ""): void {
  running = false;
  if (!closed) {
    closed = true;
    post({ is: "closed", why, told });
  }
}

/** Takes an answer: number, received and sent in ns of the server, bytes uploaded. */
function take(now: number, v: DataView): void {
  const s = v.byteLength === 28 ? samples[v.getUint32(0)] : undefined;
  if (s === undefined || s.received >= 0) return;
  s.received = now;
  s.server = Number(v.getBigUint64(4)) / 1e3;
  s.held = Number(v.getBigUint64(12) - v.getBigUint64(4)) / 1e3;
  s.up = Number(v.getBigUint64(20));
  newest = Math.max(newest, s.seq);
  newestAt = now;
  news.push(s);
  report(now);
}

/** Probes that may still be answered: what a newer one has overtaken is lost. */
function underWay(): number {
  return samples.length - 1 - newest;
}

function report(now: number): void {
  if (now - reported < reportEvery) return;
  reported = now;
  post({ is: "answers", samples: news, open: underWay() });
  news = [];
}

/** Sends the probe that is due, and plans the next one on the fixed grid. */
function beat(): void {
  if (!running || socket === undefined) return;
  const now = clock();
  if (now >= due) {
    const missed = Math.floor((now - due) / interval);
    if (missed > 0) {
      // Their time is over. Sent now all at once, they would delay each other.
      skips.push({ at: due, probes: missed, late: now - due });
      due += missed * interval;
    }
    send();
    due += interval;
  }
  report(clock());
  // Rounded up: browsers cut the fraction off, and a timer that wakes too early waits the
  // 4 ms that a timer set by a timer takes at least (HTML, timer initialisation).
  setTimeout(beat, Math.max(0, Math.ceil(due - clock())));
}

function send(): void {
  const seq = samples.length;
  const message = new DataView(new ArrayBuffer(probeBytes));
  message.setUint32(0, seq);
  const s: Sample = { seq, due, sent: clock(), received: -1, server: 0, held: 0, up: 0 };
  samples.push(s);
  if (fast !== undefined) fast.send(message.buffer);
  else socket?.send(message.buffer);
}

/** Waits for the answers under way, then hands everything over. */
function finish(wait: number): void {
  running = false;
  const limit = clock() + wait;
  const look = (): void => {
    const now = clock();
    const lost = fast !== undefined && now - Math.max(newestAt, samples.at(-1)?.sent ?? 0) > grace;
    if (underWay() > 0 && !lost && now < limit && !closed) {
      setTimeout(look, 20);
      return;
    }
    post({ is: "finished", samples, skips });
  };
  look();
}

/** Measures how coarse this browser's clock is, in ms. */
function tick(): number {
  let least = Infinity;
  const limit = performance.now() + 250;
  for (let i = 0; i < 20; i++) {
    const from = performance.now();
    let to = from;
    while (to === from && to < limit) to = performance.now();
    if (to > from) least = Math.min(least, to - from);
    if (performance.now() >= limit) break;
  }
  return Number.isFinite(least) ? least : 250;
}

self.onmessage = (e: MessageEvent<ToProbe>) => {
  const m = e.data;
  switch (m.do) {
    case "open":
      interval = m.interval;
      connect(m.url);
      break;
    case "start":
      running = true;
      due = clock();
      beat();
      break;
    case "finish":
      finish(m.wait);
      break;
    case "close":
      closed = true;
      fast?.close();
      socket?.close(1000);
      break;
  }
};
