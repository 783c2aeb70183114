// The language of the test's pages.
import * as language from "./language";
import { de } from "./words/de";
import { en, type Words } from "./words/en";

const languages: [Words, ...Words[]] = [en, de];

/** The words of the page. */
export const say: Words = language.choose(languages);

/** What a request says so that the server answers in the same language. */
export const speaking = { "Accept-Language": say.tag };

/** A number with the language's decimal sign. */
export function numeral(text: string): string {
  return text.replace(".", say.decimal);
}

export { rich } from "./language";

/** Puts the language's words where the HTML has English, and offers the others. */
export function translate(): void {
  language.translate(say, languages);
}
