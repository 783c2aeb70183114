import { defineConfig } from "vite";
import { words } from "../words.ts";
import { de } from "./src/words/de.ts";
import { en } from "./src/words/en.ts";

// One page; nothing is inlined, because its policy (internal/keep/page) forbids what is
// inline. Its addresses are relative, so that it may stand below a path.
export default defineConfig({
  root: new URL(".", import.meta.url).pathname,
  base: "./",
  publicDir: "../public",
  plugins: [words(en.fixed, de.fixed)],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
  },
});
