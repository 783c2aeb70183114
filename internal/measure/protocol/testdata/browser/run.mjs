// Runs two clients that others wrote, @m-lab/ndt7 and @cloudflare/speedtest, in
// a headless Chromium against a server, and prints what they found as JSON.
//   node run.mjs FILES SERVER
// FILES is the URL under which this folder is served, SERVER the host:port.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [files, server] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), "unbloat-chromium-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  ignoreHTTPSErrors: true, // the server's certificate is its own
});
const found = { errors: [] };
try {
  const page = context.pages()[0] ?? (await context.newPage());
  page.on("pageerror", (e) => found.errors.push(String(e)));
  await page.goto(`${files}/blank.html`);
  found.cloudflare = await page.evaluate(cloudflare, [files, `https://${server}`]);
  await page.addScriptTag({ url: `${files}/node_modules/@m-lab/ndt7/src/ndt7.js` });
  found.ndt7 = await page.evaluate(mlab, [files, server]);
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true });
}
console.log(JSON.stringify(found));

/** Runs @cloudflare/speedtest in the page. */
async function cloudflare([files, base]) {
  const { default: SpeedTest } = await import(`${files}/node_modules/@cloudflare/speedtest/dist/speedtest.js`);
  return new Promise((resolve) => {
    const errors = [];
    const test = new SpeedTest({
      autoStart: false,
      downloadApiUrl: `${base}/__down`,
      uploadApiUrl: `${base}/__up`,
      logAimApiUrl: null, // results stay here
      bandwidthMinRequestDuration: 0, // over the loopback a request takes less than the 10 ms below which it would not count
      measurements: [
        { type: "latency", numPackets: 10 },
        { type: "download", bytes: 1e6, count: 4, bypassMinDuration: true },
        { type: "upload", bytes: 1e6, count: 4, bypassMinDuration: true },
      ],
    });
    test.onError = (e) => errors.push(String(e));
    test.onFinish = (r) =>
      resolve({ errors, latency: r.getUnloadedLatencyPoints().length, summary: r.getSummary(), down: r.getDownloadBandwidthPoints(), up: r.getUploadBandwidthPoints() });
    test.play();
  });
}

/** Runs @m-lab/ndt7 in the page. */
async function mlab([files, server]) {
  const found = { errors: [], measurements: { client: 0, server: 0 } };
  const seen = (m) => found.measurements[m.Source]++;
  found.code = await globalThis.ndt7.test(
    {
      server,
      protocol: "wss",
      mlabDataPolicyInapplicable: true, // the server is not M-Lab's
      downloadworkerfile: `${files}/node_modules/@m-lab/ndt7/src/ndt7-download-worker.js`,
      uploadworkerfile: `${files}/node_modules/@m-lab/ndt7/src/ndt7-upload-worker.js`,
    },
    {
      error: (e) => found.errors.push(String(e)),
      downloadMeasurement: seen,
      uploadMeasurement: seen,
      downloadComplete: (d) => (found.download = d),
      uploadComplete: (d) => (found.upload = d),
    },
  );
  return found;
}
