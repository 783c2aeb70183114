// A stand-in of LuCI, as far as our page uses it: its modules, on top of calls to
// /ubus as LuCI makes them. It is stricter where a slip would do harm: LuCI reads a
// text that is not in a list as HTML.
"use strict";
const query = new URLSearchParams(location.search);
const session = query.get("session") ?? "";
let words = {};
globalThis._ = (text) => words[text] ?? text;
String.prototype.format = function (...args) {
  return this.replace(/%[sd]/g, () => String(args.shift()));
};
globalThis.E = (tag, attributes, children) => {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {}))
    if (typeof value === "function") e.addEventListener(name, value);
    else if (value !== null && value !== undefined) e.setAttribute(name, value);
  if (typeof children === "string") throw new Error(`E(${tag}): a text that is not in a list is read as HTML: ${children}`);
  for (const c of Array.isArray(children) ? children.flat() : children ? [children] : []) e.append(c);
  return e;
};

let calls = 0;
async function ubus(object, method, params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: ++calls, method: "call", params: [session, object, method, params] });
  const answer = await fetch("/ubus/", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const said = await answer.json();
  if (said.error) throw new Error(said.error.message);
  if (said.result[0] !== 0) throw new Error(`ubus code ${said.result[0]}`);
  return said.result[1] ?? {};
}

const uci = {
  values: {},
  changes: {},
  async load(config) {
    this.values[config] = (await ubus("uci", "get", { config })).values;
  },
  sections(config, type) {
    return Object.values(this.values[config]).filter((s) => s[".type"] === type);
  },
  async save() {
    for (const [config, sections] of Object.entries(this.changes))
      for (const [section, values] of Object.entries(sections)) await ubus("uci", "set", { config, section, values });
    this.changes = {};
    // LuCI applies with a way back: whoever does not confirm in time gets the old configuration.
    await ubus("uci", "apply", { rollback: true, timeout: 90 });
    await ubus("uci", "confirm", {});
  },
};

class Option {
  constructor(key, title, description) {
    Object.assign(this, { key, title, description, needs: [], choices: [] });
  }
  depends(key, value) {
    this.needs.push([key, value]);
  }
  value(key, label) {
    this.choices.push([key, label]);
  }
  input(value) {
    return E("input", { type: "text", class: "cbi-input-text", placeholder: this.placeholder, value }, []);
  }
  read(input) {
    return input.value.trim();
  }
}
class Flag extends Option {
  input(value) {
    return E("input", { type: "checkbox", ...(value === "1" ? { checked: "" } : {}) }, []);
  }
  read(input) {
    return input.checked ? "1" : "";
  }
}
class ListValue extends Option {
  input(value) {
    const select = E("select", { class: "cbi-input-select" }, this.choices.map(([k, l]) => E("option", { value: k }, [l])));
    select.value = value ?? "";
    return select;
  }
}
class TypedSection {
  constructor(map, type, title, description) {
    Object.assign(this, { map, type, title, description, options: [] });
  }
  option(Kind, key, title, description) {
    const o = new Kind(key, title, description);
    this.options.push(o);
    return o;
  }
}
class NamedSection extends TypedSection {
  constructor(map, name, type, title, description) {
    super(map, type, title, description);
    this.name = name;
  }
}
class Map_ {
  constructor(config) {
    Object.assign(this, { config, parts: [], fields: [] });
    Map_.shown = this;
  }
  section(Kind, ...of) {
    const s = new Kind(this, ...of);
    this.parts.push(s);
    return s;
  }
  async render() {
    const node = E("div", { class: "cbi-map" }, []);
    for (const part of this.parts) {
      const box = E("div", { class: "cbi-section" }, [E("h3", {}, [part.title]), E("p", { class: "hint" }, [part.description ?? ""])]);
      for (const section of uci.sections(this.config, part.type).filter((s) => !part.name || s[".name"] === part.name)) {
        const rows = {};
        const show = () => {
          for (const { option, row } of Object.values(rows)) row.hidden = !option.needs.every(([k, v]) => rows[k].option.read(rows[k].input) === v);
        };
        for (const option of part.options) {
          const id = `cbid.${this.config}.${section[".name"]}.${option.key}`;
          const input = option.input(section[option.key] ?? "");
          input.id = id;
          input.addEventListener("change", show);
          const row = E("div", { class: "cbi-value" }, [
            E("label", { class: "cbi-value-title", for: id }, [option.title]),
            E("div", { class: "cbi-value-field" }, [input, option.description ? E("div", { class: "hint" }, [option.description]) : ""]),
          ]);
          rows[option.key] = { option, input, row };
          this.fields.push({ section, option, input });
          box.append(row);
        }
        show();
      }
      node.append(box);
    }
    return node;
  }
  save() {
    for (const { section, option, input } of this.fields) {
      const value = option.read(input);
      const ok = option.validate ? option.validate(section[".name"], value) : true;
      if (ok !== true) throw new Error(`${option.title}: ${ok}`);
      if (value !== (section[option.key] ?? "")) {
        section[option.key] = value;
        ((uci.changes[this.config] ??= {})[section[".name"]] ??= {})[option.key] = value;
      }
    }
  }
}

const ui = {
  createHandlerFn(self, f) {
    return async (event) => {
      const button = event.currentTarget;
      button.disabled = true;
      try {
        await f.call(self, event);
      } finally {
        button.disabled = false;
      }
    };
  },
  addNotification(_title, node, kind) {
    document.getElementById("notes").append(E("div", { class: `alert-message ${kind}`, role: "alert" }, [node]));
  },
};

const modules = {
  view: { extend: (o) => o },
  rpc: {
    declare: ({ object, method, params, expect, reject }) => {
      if (!reject || !expect) throw new Error(`${object}.${method}: an error would be taken for an empty answer`);
      return (...args) => ubus(object, method, Object.fromEntries((params ?? []).map((name, i) => [name, args[i]]).filter(([, v]) => v !== undefined)));
    },
  },
  poll: { add: (f, seconds) => setInterval(f, seconds * 1000) },
  ui,
  uci,
  form: { Map: Map_, TypedSection, NamedSection, Value: Option, Flag, ListValue },
  "tools.widgets": { DeviceSelect: class extends Option {} },
};

async function open() {
  const language = document.documentElement.lang;
  if (language !== "en") {
    const po = await (await fetch(`/po/${language}/unbloat.po`)).text();
    for (const [, id, text] of po.matchAll(/^msgid ("(?:[^"\\]|\\.)*")\nmsgstr ("(?:[^"\\]|\\.)*")$/gm)) words[JSON.parse(id)] = JSON.parse(text);
  }
  const source = await (await fetch(document.body.dataset.view)).text();
  const names = [];
  const found = [];
  for (const [, module, as] of source.matchAll(/^'require ([a-z.]+)(?: as (\w+))?';$/gm)) {
    if (!modules[module]) throw new Error(`there is no ${module}`);
    names.push(as ?? module);
    found.push(modules[module]);
  }
  const page = new Function("E", "_", ...names, source)(E, globalThis._, ...found);
  const node = await page.render(await page.load());
  const apply = E("button", { class: "btn cbi-button cbi-button-apply", id: "apply", click: () => { Map_.shown.save(); return uci.save(); } }, ["Save & Apply"]);
  document.getElementById("view").append(node, E("div", { class: "cbi-page-actions" }, [apply]));
}
open().catch((e) => console.error(e));
