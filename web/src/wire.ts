// Messages between the page and its workers. Those between the page and the
// server are in wire.gen.ts.
import type { Hello, Phase, PhaseName, Test, Transport } from "./wire.gen";

/** The phases of a test in the order they ran. */
export function phasesOf(t: Test): { name: PhaseName | "loaded"; phase: Phase }[] {
  return (["idle", "download", "upload", "both", "loaded"] as const).flatMap((name) => {
    const phase = t[name];
    return phase === undefined ? [] : [{ name, phase }];
  });
}

/** A probe as its worker knows it; instants are of clock(), held and server in µs. */
export interface Sample {
  seq: number;
  due: number;
  sent: number;
  received: number; // -1: not yet
  server: number;
  held: number;
  up: number; // bytes the server had of our uploads
}

export type ToProbe =
  | { do: "open"; url: string; interval: number }
  | { do: "start" }
  | { do: "finish"; wait: number } // ms for answers under way
  | { do: "close" };

export type FromProbe =
  | { is: "hello"; hello: Hello; tick: number; transport: Transport }
  | { is: "answers"; samples: Sample[]; open: number } // open: probes that may still be answered
  | { is: "finished"; samples: Sample[]; skips: { at: number; probes: number; late: number }[] }
  | { is: "closed"; why: Closed; told: string }; // told: what the server said

/** Why there is no connection any more. */
export type Closed = "ended" | "unreachable" | "probesEnded";

export type ToLoad =
  | { do: "start"; direction: "down" | "up"; url: string; epoch: number; bin: number }
  | { do: "stop" };

export type FromLoad =
  | { is: "bins"; from: number; bytes: number[] } // replaces the bins from index `from` on
  | { is: "done"; broken: boolean };

/**
 * The clock that all threads of the page share, in ms. performance.now() alone
 * begins at another instant in each worker.
 */
export function clock(): number {
  return performance.timeOrigin + performance.now();
}
