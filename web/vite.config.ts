import { defineConfig } from "vite";

// Two pages, what they share, and two workers; nothing is inlined, because the
// page's policy (internal/page) forbids what is inline.
export default defineConfig({
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: { input: ["index.html", "model.html"] },
  },
  worker: { format: "es" },
});
