// What stands above every view: a router that is gone, a change that waits, a notice.
import { el, type Child } from "../../../src/dom";
import { called, mayChange, model } from "../model";
import { clock, say } from "../say";

/** How many seconds are left of the change that waits. */
export function left(): number {
  return model.waiting === null ? 0 : Math.max(0, Math.ceil((model.waiting.ends - performance.now()) / 1000));
}

/** Draws them. */
export function bars(): Child[] {
  const out: Child[] = [];
  if (model.link === "gone") out.push(el("p", { class: "alert", id: "gone" }, say.gone(clock(model.heardMs))));
  if (model.waiting !== null) {
    const { change, wan } = model.waiting;
    const seconds = left();
    const countdown = seconds === 0 ? say.leftDue : model.link === "gone" ? say.leftGone(seconds) : say.left(seconds);
    out.push(
      el(
        "section",
        { id: "waiting", class: "waiting", "aria-labelledby": "waiting-title" },
        el("p", {}, say.change[change.kind](called(wan))),
        el("h2", { id: "waiting-title", tabindex: "-1" }, say.works),
        el("progress", { max: String(change.seconds), value: String(seconds), "aria-hidden": "true" }),
        el("p", { id: "left" }, countdown),
        mayChange()
          ? el(
              "div",
              { class: "fields" },
              el("button", { type: "button", id: "keep", class: "primary", "data-do": "keep", ...(seconds === 0 || model.link === "gone" ? { disabled: "" } : {}) }, say.keep),
              el("button", { type: "button", id: "undo", "data-do": "undo", ...(seconds === 0 || model.link === "gone" ? { disabled: "" } : {}) }, say.undo),
            )
          : el("p", { class: "muted" }, say.waits),
      ),
    );
  }
  if (model.notice !== null) {
    out.push(
      el("div", { id: "notice", class: `notice ${model.notice.tone}` }, el("p", {}, el("span", { "aria-hidden": "true" }, model.notice.tone === "good" ? "✓ " : "! "), model.notice.text), el("button", { type: "button", "data-do": "dismiss" }, say.dismiss)),
    );
  }
  if (model.session?.user === "viewer") out.push(el("p", { class: "muted", id: "read-only" }, say.readOnly));
  return out;
}
