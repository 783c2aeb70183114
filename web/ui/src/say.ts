// The language of the page, and how figures are written in it.
import { choose } from "../../src/language";
import { de } from "./words/de";
import { en, type Words } from "./words/en";

export const languages: [Words, ...Words[]] = [en, de];

/** The words of the page. */
export const say: Words = choose(languages);

const locale = navigator.languages.find((l) => l.startsWith(say.tag)) ?? say.tag;

/** A number with the language's decimal sign. */
export function numeral(text: string): string {
  return text.replace(".", say.decimal);
}

/** A rate without its unit, in Mbit/s: three digits, but no zeros at the end. */
export function mbit(bps: number): string {
  const v = bps / 1e6;
  const text = v.toFixed(v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2);
  return numeral(text.includes(".") ? text.replace(/\.?0+$/, "") : text);
}

/** A rate as in "4.1 Mbit/s", which stays on one line. */
export function rate(bps: number): string {
  return `${mbit(bps)}\u00a0${say.mbit}`;
}

/** A rate as the configuration has it, such as "950 kbit/s", in bit/s. */
export function bps(text: string): number {
  const [, figure, unit = ""] = /^([\d.]+) ([kMG]?)bit\/s$/.exec(text) ?? [];
  return Math.round(Number(figure) * 1000 ** ["", "k", "M", "G"].indexOf(unit));
}

/** Milliseconds without their unit: one decimal below 10. */
export function ms(v: number): string {
  return numeral(v < 9.95 ? (Math.round(v * 10) / 10 + 0).toFixed(1) : v.toFixed(0));
}

/** The time of day. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
}

/** Day and time. */
export function moment(at: number): string {
  return new Date(at).toLocaleString(locale, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}

/** The day. */
export function day(at: number): string {
  return new Date(at).toLocaleDateString(locale, { weekday: "short", month: "short", day: "numeric" });
}
