// The page's side of the API of internal/keep/page. Addresses are relative, so that the
// page may stand below a path.
import type { Code, Failure, Session, State } from "./api.gen";
import { say } from "./say";

/** Why the router did not do something. */
export class Refused extends Error {
  constructor(
    readonly code: Code | "unreachable",
    readonly detail: string,
    readonly retry = 0,
  ) {
    super(code);
  }

  /** The same in the page's language, with what the router said of it. */
  words(): string {
    const known: Record<string, string> = say.error;
    const why = known[this.code] ?? this.detail;
    // These say little without what was in the way.
    const more = ["failed", "precondition", "usage", "busy"].includes(this.code) && this.detail !== "" ? ` (${this.detail})` : "";
    return `${why}${more}.${this.retry > 0 ? ` ${say.retryIn(this.retry)}` : ""}`;
  }
}

let csrf = "";

async function ask<T>(path: string, init: RequestInit): Promise<T> {
  let r: Response;
  let body: unknown;
  try {
    r = await fetch(`api/${path}`, { cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(60_000), ...init });
    body = await r.json();
  } catch {
    throw new Refused("unreachable", "");
  }
  if (!r.ok) {
    const e = (body as Partial<Failure>).error;
    throw new Refused(e?.code ?? "failed", e?.text ?? "", e?.retry_seconds ?? 0);
  }
  return body as T;
}

/** Asks for something. */
export function get<T>(path: string): Promise<T> {
  return ask<T>(path, {});
}

/** Has something done. */
export function post<T>(path: string, body: object): Promise<T> {
  return ask<T>(path, { method: "POST", headers: { "Content-Type": "application/json", ...(csrf === "" ? {} : { "X-CSRF": csrf }) }, body: JSON.stringify(body) });
}

/** What the session gives: who it is, and what each POST needs. */
export function entered(s: Session): Session {
  csrf = s.csrf;
  return s;
}

/** How the page hears from the router. */
export type Link = "starting" | "live" | "polling" | "gone";

const pollMs = 2000;
const silentMs = 5000; // a stream that says nothing for so long is taken for dead
const reopenMs = 15_000;

/**
 * Calls state with each State, by the stream, or by asking each two seconds while
 * there is none. Ends when the returned function is called, or the session is over.
 */
export function listen(on: { state: (s: State) => void; link: (l: Link) => void; over: () => void }): () => void {
  let ended = false;
  let stream: EventSource | undefined;
  let heard = -Infinity;
  let opened = -Infinity;
  let asking = false;

  const end = (): void => {
    ended = true;
    clearInterval(timer);
    stream?.close();
  };
  const over = (): void => {
    if (ended) return;
    end();
    on.over();
  };
  const open = (): void => {
    opened = performance.now();
    stream?.close();
    stream = new EventSource("api/stream");
    stream.addEventListener("state", (e) => {
      heard = performance.now();
      on.link("live");
      on.state(JSON.parse((e as MessageEvent<string>).data) as State);
    });
    stream.addEventListener("session", over);
  };
  const poll = async (): Promise<void> => {
    if (asking) return;
    asking = true;
    try {
      const s = await get<State>("state");
      if (ended) return;
      if (performance.now() - heard >= silentMs) on.link("polling");
      on.state(s);
    } catch (e) {
      if (ended) return;
      if (e instanceof Refused && e.code === "login") over();
      else on.link("gone");
    } finally {
      asking = false;
    }
  };
  const tend = (): void => {
    const now = performance.now();
    if (now - heard < silentMs) return;
    void poll();
    if (now - opened > reopenMs || (stream?.readyState === EventSource.CLOSED && now - opened > silentMs)) open();
  };
  const timer = setInterval(tend, pollMs);
  open();
  void poll();
  return end;
}
