// How figures are written.
import { numeral } from "./lang";

/** A figure in ms without its unit: no decimals from 100 on. */
export function ms(v: number): string {
  return numeral(Math.abs(v) < 99.95 ? (Math.round(v * 10) / 10 + 0).toFixed(1) : v.toFixed(0));
}

/** A rate in Mbit/s without its unit, three digits. */
export function mbit(mbps: number): string {
  return numeral(mbps.toFixed(mbps >= 99.95 ? 0 : mbps >= 9.995 ? 1 : 2));
}
