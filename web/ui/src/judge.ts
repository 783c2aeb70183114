// What the figures of a line mean, without words.
import type { Machine, State, Way, WAN } from "./api.gen";

/** How calls do: by the delay that the line adds now. */
export type Calls = "clear" | "felt" | "stumble" | "broken" | "unknown";

/** The same limits as those of the grades. */
export function calls(w: WAN): Calls {
  const added = Math.max(w.down.delay_ms, w.up.delay_ms);
  if (added < 0) return "unknown";
  return added < 30 ? "clear" : added < 60 ? "felt" : added < 200 ? "stumble" : "broken";
}

/** What uses the line. */
export type Load =
  | { is: "unknown" }
  | { is: "idle" }
  | { is: "room" }
  | { is: "busy"; direction: "down" | "up"; way: Way; machine: Machine | undefined };

const idleBps = 100_000;

/** Says who fills the line, if it is full. */
export function load(w: WAN, s: State): Load {
  if (w.down.carried_bps < 0 && w.up.carried_bps < 0) return { is: "unknown" };
  const share = (way: Way): number => way.carried_bps / Math.max(1, top(way));
  const full = (["down", "up"] as const).filter((d) => w[d].busy).sort((a, b) => share(w[b]) - share(w[a]))[0];
  if (full !== undefined) {
    const field = full === "down" ? "down_bps" : "up_bps";
    const most = [...s.machines].sort((a, b) => b[field] - a[field])[0];
    const machine = most !== undefined && most[field] >= w[full].carried_bps / 2 ? most : undefined;
    return { is: "busy", direction: full, way: w[full], machine };
  }
  const quiet = (way: Way): boolean => way.carried_bps < Math.max(idleBps, top(way) / 100);
  return quiet(w.down) && quiet(w.up) ? { is: "idle" } : { is: "room" };
}

/** What a direction carries at most; 0: not known. */
export function top(way: Way): number {
  return way.rate_bps || way.capacity_bps || way.line_bps;
}

/** The value below which a share of the others are. */
export function quantile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}
