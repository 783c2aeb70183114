// The language of a page: the visitor's choice, else the first of the browser's
// languages that we have, else the first that we have.
import { el, find, type Child } from "./dom";

const kept = "language";

/** What the words of every language have. fixed stands in the HTML. */
export interface Speech {
  tag: string;
  self: string; // what the language calls itself
  fixed: Record<string, string>;
}

/** Chooses among the languages that a page has. */
export function choose<W extends Speech>(languages: [W, ...W[]]): W {
  let chosen: string | null = null;
  try {
    chosen = localStorage.getItem(kept);
  } catch {
    // storage is forbidden: the browser's languages decide
  }
  for (const tag of [chosen ?? "", ...navigator.languages]) {
    const words = languages.find((w) => w.tag === tag.toLowerCase().split("-")[0]);
    if (words !== undefined) return words;
  }
  return languages[0];
}

/** Text in which `code` and [text](/address) may stand. */
export function rich(text: string): Child[] {
  return text.split(/(`[^`]*`|\[[^\]]*\]\([^)]*\))/).map((part) => {
    const [, link, href] = /^\[(.*)\]\((.*)\)$/.exec(part) ?? [];
    if (link !== undefined && href !== undefined) return el("a", { href }, link);
    return part.startsWith("`") ? el("code", {}, part.slice(1, -1)) : part;
  });
}

/** Puts the language's words where the HTML has English, and offers the others. */
export function translate<W extends Speech>(say: W, languages: W[]): void {
  document.documentElement.lang = say.tag;
  for (const e of document.querySelectorAll<HTMLElement>("[data-say]")) {
    const text = say.fixed[e.dataset["say"] ?? ""] ?? "";
    if (e instanceof HTMLMetaElement) e.content = text;
    else if (e.hasAttribute("aria-label")) e.setAttribute("aria-label", text);
    else e.replaceChildren(...rich(text));
  }
  const others = languages.filter((w) => w !== say);
  find("languages").replaceChildren(
    ...others.map((w) => {
      const b = el("button", { type: "button", lang: w.tag }, w.self);
      b.addEventListener("click", () => {
        try {
          localStorage.setItem(kept, w.tag);
        } catch {
          return;
        }
        location.reload();
      });
      return b;
    }),
  );
}
