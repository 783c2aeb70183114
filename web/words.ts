import type { Plugin } from "vite";

/**
 * Fills {{name}} in a page with English, which shows until the script has chosen a
 * language, and {{de.name}} with German.
 */
export function words(en: Record<string, string>, de: Record<string, string>): Plugin {
  const escape = (s: string): string => s.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
  const markup = (s: string): string => escape(s).replace(/`([^`]*)`/g, "<code>$1</code>").replace(/\[([^\]]*)\]\(([^)]*)\)/g, '<a href="$2">$1</a>');
  return {
    name: "words",
    transformIndexHtml: {
      order: "pre",
      handler: (html) =>
        html.replace(/\{\{(de\.)?(\w+)\}\}/g, (_, german: string | undefined, name: string) => {
          const text = (german === undefined ? en : de)[name];
          if (text === undefined) throw new Error(`there are no words for ${name}`);
          return markup(text);
        }),
    },
  };
}
