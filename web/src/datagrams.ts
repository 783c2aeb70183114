// Probes as QUIC datagrams, if the browser has WebTransport and allows this
// page to use it: only pages over HTTPS or from this machine may.
import { clock } from "./wire";

export interface Datagrams {
  send(message: ArrayBuffer): void;
  close(): void;
}

const patience = 2500; // ms for the connection, and as long for the first answer
const trial = 0xffff_fffe; // number of the probes that only try the way
const retry = 300; // ms between them
const queue = 256; // datagrams that may wait in the browser

/**
 * Opens the session's second way for probes. It is undefined if that cannot be
 * had, and then nothing is left behind. heard takes answers with their instant;
 * broken is called if the way breaks off later.
 */
export async function datagrams(
  session: string,
  certificate: string,
  heard: (now: number, answer: DataView) => void,
  broken: () => void,
): Promise<Datagrams | undefined> {
  if (certificate === "" || typeof WebTransport === "undefined") return undefined;
  const port = location.port || (location.protocol === "https:" ? "443" : "80");
  let way: WebTransport;
  try {
    way = new WebTransport(`https://${location.hostname}:${port}/api/datagrams?session=${encodeURIComponent(session)}`, {
      serverCertificateHashes: [{ algorithm: "sha-256", value: bytesOf(certificate) }],
      congestionControl: "low-latency",
    });
  } catch {
    return undefined; // not allowed here
  }
  way.closed.catch(() => undefined); // it is handled below
  try {
    await within(way.ready);
    way.datagrams.incomingHighWaterMark = queue;
    way.datagrams.outgoingHighWaterMark = queue;
    const out = way.datagrams.writable.getWriter();
    const send = (message: ArrayBuffer): void => void out.write(new Uint8Array(message)).catch(() => undefined);
    const reader = way.datagrams.readable.getReader() as ReadableStreamDefaultReader<Uint8Array>;
    let works: () => void = () => undefined;
    const first = new Promise<void>((resolve) => (works = resolve));
    void listen(reader, (now, answer) => {
      works();
      heard(now, answer);
    });
    await tried(send, first);
    way.closed.then(broken, broken);
    return { send, close: () => way.close() };
  } catch {
    try {
      way.close();
    } catch {
      // it never opened
    }
    return undefined;
  }
}

/** Sends probes that only try the way, until one is answered. */
async function tried(send: (message: ArrayBuffer) => void, first: Promise<void>): Promise<void> {
  const message = new DataView(new ArrayBuffer(48));
  message.setUint32(0, trial);
  const again = setInterval(() => send(message.buffer.slice(0)), retry);
  send(message.buffer.slice(0));
  try {
    await within(first);
  } finally {
    clearInterval(again);
  }
}

async function listen(reader: ReadableStreamDefaultReader<Uint8Array>, heard: (now: number, answer: DataView) => void): Promise<void> {
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const now = clock();
      if (done) return;
      heard(now, new DataView(value.buffer, value.byteOffset, value.byteLength));
    }
  } catch {
    // the way is closed, which its promise reports
  }
}

function within<T>(what: Promise<T>): Promise<T> {
  return Promise.race([what, new Promise<never>((_, reject) => setTimeout(() => reject(new Error("too slow")), patience))]);
}

function bytesOf(hex: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(hex.match(/../g) ?? [], (h) => parseInt(h, 16));
}
