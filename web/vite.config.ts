import { defineConfig } from "vite";

// One script, one style sheet and two workers; nothing is inlined, because the
// page's policy (internal/page) forbids what is inline.
export default defineConfig({
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  worker: { format: "es" },
});
