// Holds the page's verdict (src/verdict.ts, compiled) to the server's, on the
// measurements of internal/page/testdata/vectors.json.
//   node vectors.mjs verdict.js vectors.json
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const [rules, vectors] = process.argv.slice(2);
const { judge } = await import(pathToFileURL(resolve(rules)).href);
const cases = JSON.parse(readFileSync(vectors, "utf8"));
for (const { name, submission, test } of cases) {
  const mine = judge(submission);
  for (const p of ["idle", "download", "upload", "both"]) delete mine[p]?.series;
  assert.deepEqual(JSON.parse(JSON.stringify(mine)), test, `case ${name}`);
}
console.log(`${cases.length} measurements: the page and the server judge them alike`);
