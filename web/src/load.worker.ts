// One flow of load: a download whose bytes it counts, or an upload, whose bytes
// the server counts. Each has its own thread.
import { clock, type FromLoad, type ToLoad } from "./wire";

const downBytes = 2 ** 30; // of one request; another follows
const pieceBytes = 2 ** 20;
const uploadPieces = 128;
const reportEvery = 100; // ms

const ended = new AbortController();
let bins: number[] = [];
let told = 0;
let reported = 0;

function post(m: FromLoad): void {
  self.postMessage(m);
}

function count(bytes: number, epoch: number, bin: number): void {
  const now = clock();
  const at = Math.max(0, Math.floor((now - epoch) / bin));
  while (bins.length <= at) bins.push(0);
  bins[at] = (bins[at] ?? 0) + bytes;
  if (now - reported >= reportEvery) report(now);
}

function report(now: number): void {
  reported = now;
  post({ is: "bins", from: told, bytes: bins.slice(told) });
  told = Math.max(0, bins.length - 1); // the newest bin may still grow
}

async function download(url: string, epoch: number, bin: number): Promise<void> {
  for (;;) {
    const r = await fetch(`${url}&bytes=${downBytes}`, { signal: ended.signal, cache: "no-store" });
    if (!r.ok || r.body === null) throw new Error(`status ${r.status}`);
    const reader = r.body.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      count(value.byteLength, epoch, bin);
    }
  }
}

async function upload(url: string): Promise<void> {
  const body = incompressible();
  for (;;) {
    const r = await fetch(url, { method: "POST", body, signal: ended.signal, cache: "no-store" });
    if (!r.ok) throw new Error(`status ${r.status}`);
    await r.arrayBuffer();
  }
}

/** A large body that takes one piece of memory: the piece is repeated. */
function incompressible(): Blob {
  const piece = new Uint8Array(pieceBytes);
  for (let i = 0; i < pieceBytes; i += 65536) crypto.getRandomValues(piece.subarray(i, i + 65536));
  const one = new Blob([piece]);
  return new Blob(Array.from({ length: uploadPieces }, () => one), { type: "application/octet-stream" });
}

async function run(m: Extract<ToLoad, { do: "start" }>): Promise<void> {
  let broken = false;
  try {
    await (m.direction === "down" ? download(m.url, m.epoch, m.bin) : upload(m.url));
  } catch {
    broken = !ended.signal.aborted;
  }
  report(clock());
  post({ is: "done", broken });
}

self.onmessage = (e: MessageEvent<ToLoad>) => {
  if (e.data.do === "start") void run(e.data);
  else ended.abort();
};
