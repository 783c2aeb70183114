import { defineConfig, type Plugin } from "vite";
import { de } from "./src/words/de.ts";
import { en } from "./src/words/en.ts";

// Fills {{name}} in the pages with English, which shows until the script has
// chosen a language, and {{de.name}} with German.
function words(): Plugin {
  const escape = (s: string): string => s.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
  const markup = (s: string): string => escape(s).replace(/`([^`]*)`/g, "<code>$1</code>").replace(/\[([^\]]*)\]\(([^)]*)\)/g, '<a href="$2">$1</a>');
  return {
    name: "words",
    transformIndexHtml: {
      order: "pre",
      handler: (html) =>
        html.replace(/\{\{(de\.)?(\w+)\}\}/g, (_, german: string | undefined, name: string) => {
          const text = ((german === undefined ? en : de).fixed as Record<string, string>)[name];
          if (text === undefined) throw new Error(`there are no words for ${name}`);
          return markup(text);
        }),
    },
  };
}

// Two pages, what they share, and two workers; nothing is inlined, because the
// page's policy (internal/webtest) forbids what is inline.
export default defineConfig({
  plugins: [words()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: { input: ["index.html", "model.html"] },
  },
  worker: { format: "es" },
});
