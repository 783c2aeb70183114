import { defineConfig } from "vite";
import { words } from "./words.ts";
import { de } from "./src/words/de.ts";
import { en } from "./src/words/en.ts";

// A page and two workers; nothing is inlined, because the
// page's policy (internal/serve) forbids what is inline.
export default defineConfig({
  plugins: [words(en.fixed, de.fixed)],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: { input: ["index.html"] },
  },
  worker: { format: "es" },
});
