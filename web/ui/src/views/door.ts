// The door: the first password, with the token that the router prints, and the login.
import { el, type Child } from "../../../src/dom";
import { rich } from "../../../src/language";
import type { Session } from "../api.gen";
import { say } from "../say";

function field(id: string, label: string, attributes: Record<string, string>): HTMLElement {
  return el("div", { class: "field" }, el("label", { for: id }, label), el("input", { id, name: id, required: "", maxlength: "256", ...attributes }));
}

/** Draws the view. */
export function door(s: Session): Child[] {
  const password = { type: "password" };
  const wrong = el("p", { class: "wrong", id: "door-wrong", role: "alert" });
  if (s.first_run) {
    return [
      el(
        "form",
        { "data-do": "first", class: "door", "data-key": "first", "data-still": "form" },
        el("h2", {}, say.firstTitle),
        el("p", {}, ...rich(say.firstLead)),
        field("token", say.token, { autocomplete: "off", autocapitalize: "none", spellcheck: "false" }),
        field("password", say.newPassword, { ...password, autocomplete: "new-password", "aria-describedby": "rule" }),
        el("p", { class: "muted", id: "rule" }, say.passwordRule),
        field("again", say.again, { ...password, autocomplete: "new-password" }),
        wrong,
        el("button", { type: "submit", class: "primary" }, say.firstGo),
      ),
    ];
  }
  return [
    el(
      "form",
      { "data-do": "login", class: "door", "data-key": "login", "data-still": "form" },
      el("h2", {}, say.loginTitle),
      field("password", say.password, { ...password, autocomplete: "current-password" }),
      wrong,
      el("button", { type: "submit", class: "primary" }, say.loginGo),
    ),
  ];
}
