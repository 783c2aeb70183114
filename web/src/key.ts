// The shared key of a server that has one (unbloat serve --key): taken from a
// link's #key=… or asked for. The browser gets a cookie for it.
import { el, find } from "./dom";
import { say } from "./lang";

const where = "/api/key";

/** Settles as soon as this browser may measure; until then a form is shown. */
export async function admitted(): Promise<void> {
  const linked = /^#key=(.+)$/.exec(location.hash)?.[1];
  if (linked !== undefined) history.replaceState(null, "", location.pathname + location.search); // not to be shown about
  if (linked !== undefined && (await shown(decodeURIComponent(linked)))) return;
  const r = await fetch(where).catch(() => undefined);
  if (r?.status !== 401) return; // what else is wrong, the test will find out
  await asked();
}

async function shown(key: string): Promise<boolean> {
  // Header fields are Latin-1: a key beyond it cannot be shown so.
  const r = await fetch(where, { method: "POST", headers: { Authorization: `Bearer ${key}` } }).catch(() => undefined);
  return r?.ok === true;
}

function asked(): Promise<void> {
  const input = el("input", { id: "key", type: "password", autocomplete: "current-password", required: "", maxlength: "200" });
  const wrong = el("p", { id: "key-wrong", role: "alert" });
  const form = el(
    "form",
    { id: "key-form", class: "ask" },
    el("label", { for: "key" }, say.keyAsk),
    el("div", { class: "row" }, input, el("button", { type: "submit", class: "primary" }, say.keyGo)),
    wrong,
  );
  input.setAttribute("aria-describedby", "key-wrong");
  find("control").before(form);
  input.focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      wrong.textContent = "";
      void shown(input.value).then((ok) => {
        if (ok) {
          form.remove();
          resolve();
          return;
        }
        wrong.textContent = say.keyWrong;
        input.select();
      });
    });
  });
}
