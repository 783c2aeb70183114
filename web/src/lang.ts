// The language of the page: the visitor's choice, else the first of the
// browser's languages that we have, else English.
import { el, find, type Child } from "./dom";
import { de } from "./words/de";
import { en, type Words } from "./words/en";

const languages: Record<string, Words> = { en, de };
const kept = "language";

function choose(): Words {
  let chosen: string | null = null;
  try {
    chosen = localStorage.getItem(kept);
  } catch {
    // storage is forbidden: the browser's languages decide
  }
  for (const tag of [chosen ?? "", ...navigator.languages]) {
    const words = languages[tag.toLowerCase().split("-")[0] ?? ""];
    if (words !== undefined) return words;
  }
  return en;
}

/** The words of the page. */
export const say: Words = choose();

/** What a request says so that the server answers in the same language. */
export const speaking = { "Accept-Language": say.tag };

/** A number with the language's decimal sign. */
export function numeral(text: string): string {
  return text.replace(".", say.decimal);
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
export function translate(): void {
  const fixed: Record<string, string> = say.fixed;
  document.documentElement.lang = say.tag;
  for (const e of document.querySelectorAll<HTMLElement>("[data-say]")) {
    const text = fixed[e.dataset["say"] ?? ""] ?? "";
    if (e instanceof HTMLMetaElement) e.content = text;
    else if (e.hasAttribute("aria-label")) e.setAttribute("aria-label", text);
    else e.replaceChildren(...rich(text));
  }
  const others = Object.values(languages).filter((w) => w !== say);
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
