// Holds the page's verdict (src/verdict.ts, compiled) to the server's, on
// measurements and judgements that internal/page's TestPageJudgesAlike writes.
//   node vectors.mjs verdict.js vectors.json
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [rules, vectors] = process.argv.slice(2);
const { judge } = await import(pathToFileURL(resolve(rules)).href);
const cases = JSON.parse(readFileSync(vectors, "utf8"));
let wrong = 0;
for (const { name, submission, test } of cases) {
  const mine = JSON.parse(JSON.stringify(judge(submission)));
  for (const p of ["idle", "download", "upload", "both"]) delete mine[p]?.series;
  const shown = ["idle", "download", "upload", "both"].filter((p) => p in test && !(p in mine)).map((p) => `page lacks ${p}`);
  for (const d of [...shown, ...differences("", mine, test)]) {
    wrong++;
    console.error(`case ${name}: ${d}`);
  }
}
if (wrong > 0) process.exit(1);
console.log(`${cases.length} measurements: the page and the server judge them alike`);

// The server may know more than the page shows; what the page has must be equal.
function differences(path, page, server) {
  if (Array.isArray(page) && page.length !== server?.length) return [`${path}: page ${JSON.stringify(page)}, server ${JSON.stringify(server)}`];
  if (page !== null && server !== null && typeof page === "object" && typeof server === "object") {
    return Object.keys(page).flatMap((k) => differences(`${path}.${k}`, page[k], server[k]));
  }
  return page === server ? [] : [`${path}: page ${JSON.stringify(page)}, server ${JSON.stringify(server)}`];
}
