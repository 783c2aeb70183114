// Holds a video call between two headless Chromiums with invented cameras and
// microphones, and prints what both knew of it as JSON. TestChromiumCallAlone of
// lab/household calls it:
//   node call.mjs '{"sides":["PROGRAM","PROGRAM"],"video":"FILE.y4m","audio":"FILE.wav","width":640,"height":480,"bitrate":1500000,"seconds":40,"keyEvery":10}'
// Each PROGRAM starts Chromium in its side's network.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const o = JSON.parse(process.argv[2]);
const closers = [];

/** Starts one side's browser, and gives its page the camera. */
async function side(executablePath) {
  const profile = mkdtempSync(join(tmpdir(), "unbloat-chromium-"));
  closers.push(() => rmSync(profile, { recursive: true, force: true }));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    args: [
      ...["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
      ...["--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows"],
      ...["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", "--autoplay-policy=no-user-gesture-required"],
      `--use-file-for-fake-video-capture=${o.video}`,
      `--use-file-for-fake-audio-capture=${o.audio}`,
    ],
  });
  closers.unshift(() => context.close());
  // The page never comes from a network: it only has to be one that may use a camera.
  await context.route("**/*", (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><video autoplay muted></video>" }));
  const page = context.pages()[0] ?? (await context.newPage());
  await page.goto("https://call.invalid/");
  await page.evaluate(setUp, o);
  return page;
}

/** Makes the peer connection. Runs in the page. */
async function setUp({ width, height, bitrate, keyEvery }) {
  const call = (globalThis.call = { frames: [], errors: [] });
  const pc = (call.pc = new RTCPeerConnection({ bundlePolicy: "max-bundle" }));
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true, video: { width, height, frameRate: 30 } });
  for (const track of stream.getTracks()) pc.addTrack(track, stream);
  const video = pc.getTransceivers().find((t) => t.sender.track.kind === "video");
  const vp8 = RTCRtpReceiver.getCapabilities("video").codecs.filter((c) => ["video/VP8", "video/rtx"].includes(c.mimeType));
  video.setCodecPreferences(vp8);
  call.limit = async () => {
    const p = video.sender.getParameters();
    for (const e of p.encodings) e.maxBitrate = bitrate;
    await video.sender.setParameters(p);
  };
  // Each side asks for a key frame so often, as a call does when somebody joins.
  const code = `onrtctransform = async ({ transformer: t }) => {
    if (t.options.receives) setInterval(() => t.sendKeyFrameRequest().catch((e) => postMessage(String(e))), ${keyEvery * 1000});
    const watch = new TransformStream({ transform(f, out) {
      if (!t.options.receives) postMessage([f.getMetadata().rtpTimestamp ?? f.timestamp, f.type === "key" ? 1 : 0, f.data.byteLength]);
      out.enqueue(f);
    }});
    await t.readable.pipeThrough(watch).pipeTo(t.writable);
  };`;
  const transform = (receives) => {
    const worker = new Worker(URL.createObjectURL(new Blob([code])));
    worker.onmessage = (e) => (typeof e.data === "string" ? call.errors : call.frames).push(e.data);
    return new RTCRtpScriptTransform(worker, { receives });
  };
  video.sender.transform = transform(false);
  pc.ontrack = (e) => {
    if (e.track.kind === "video") {
      e.receiver.transform = transform(true);
      document.querySelector("video").srcObject = e.streams[0];
    } else {
      const sound = new Audio();
      sound.srcObject = e.streams[0];
      void sound.play();
    }
  };
  call.describe = async (remote) => {
    if (remote) await pc.setRemoteDescription(remote);
    await pc.setLocalDescription();
    if (pc.iceGatheringState !== "complete")
      await new Promise((done) => (pc.onicegatheringstatechange = () => pc.iceGatheringState === "complete" && done()));
    return { type: pc.localDescription.type, sdp: pc.localDescription.sdp };
  };
}

/** What a side knows at the end. Runs in the page. */
async function told() {
  const { pc, frames, errors } = globalThis.call;
  const out = { frames, errors, agent: navigator.userAgent };
  for (const s of (await pc.getStats()).values()) {
    if (s.type === "inbound-rtp") out[`${s.kind}In`] = s;
    if (s.type === "outbound-rtp") out[`${s.kind}Out`] = s;
    if (s.type === "candidate-pair" && s.nominated) out.pair = s;
  }
  return out;
}

try {
  const [home, away] = [await side(o.sides[0]), await side(o.sides[1])];
  const offer = await home.evaluate(() => globalThis.call.describe());
  const answer = await away.evaluate((d) => globalThis.call.describe(d), offer);
  await home.evaluate((d) => globalThis.call.pc.setRemoteDescription(d), answer);
  for (const p of [home, away]) {
    await p.waitForFunction(() => globalThis.call.pc.connectionState === "connected", null, { timeout: 30_000 });
    await p.evaluate(() => globalThis.call.limit());
  }
  console.error("connected");
  await home.waitForTimeout(o.seconds * 1000);
  console.log(JSON.stringify({ home: await home.evaluate(told), away: await away.evaluate(told) }));
} finally {
  for (const close of closers) await close();
}
