// The Anatomy page: its state, its channel to Python, its controls. Sections are drawn in anatomy-sections.js.
import { draw, drawTwins, wireTips } from "./anatomy-sections.js";
import { at, begin, notice, paintTheme, remember, scheme, sentence, styled, tell, wireContents, wireFrame } from "./frame.js";
import { wireNav } from "./nav.js";

const bus = {};
let view = null;
let twins = null;
let state = {};
let confirmed = null;
let token = 0;
let step = "replace";
let patience = 0;
const have = {}; // section -> its key
let measuring = ""; // the width whose twins are being run

/** Change fields of the view and ask Python for the sections that this changes. */
function change(fields, how = "push") {
  state = { ...state, ...fields };
  if ("theme" in fields) paintTheme(state.theme);
  step = how;
  token += 1;
  bus.props.value = { token, scheme: scheme(), state: { ...state }, have: { ...have } };
  bus.trigger("look");
  clearTimeout(patience);
  patience = setTimeout(() => notice("The app has not answered for 20 s; it may be gone or busy.", true), 20000);
}

function receive(answer) {
  if (!answer || answer.token !== token) return;
  clearTimeout(patience);
  fillModels(answer.models, answer.own, answer.state);
  if (answer.kind === "error") {
    state = { ...(confirmed ?? state), theme: state.theme ?? "auto" };
    const wrong = [answer.sentence, ...(answer.notes ?? [])].map(sentence).join(" ");
    notice(wrong, true);
    at("bs").dataset.failed = String(answer.token);
    if (confirmed) controls(confirmed);
    else if (!stay) {
      stay = wrong; // once: if the default view fails as well, nothing is left to ask for
      change({ model: "llama-3.1-8b", config: "" }, "replace");
    }
    return;
  }
  state = confirmed = answer.state;
  if (stay) notice([stay, "Showing " + answer.model.name + " instead."].join(" "), true);
  else tell(answer.notes);
  stay = "";
  remember((answer.query && "?" + answer.query) + (step === "replace" ? location.hash : ""), step);
  paintTheme(state.theme);
  controls(state);
  for (const [name, section] of Object.entries(answer.sections)) have[name] = section.key;
  const done = draw(answer, { change, mine: () => answer.token === token });
  if (answer.twins) drawTwins(answer.twins);
  else if ("ladder" in answer.sections || measuring !== state.width) measure();
  at("bs").dataset.ready = String(answer.token);
  done.then(() => {
    dispatchEvent(new Event("scroll")); // sections have moved: the contents say anew where the reader is
    at("bs").dataset.complete = String(answer.token);
  });
}

let stay = ""; // a sentence on a first view that could not be shown, kept over the default view

function measure() {
  measuring = state.width;
  at("twins-said").textContent = "running the tiny twins…";
  bus.props.value = { width: state.width };
  bus.trigger("measure");
}

function heard(answer) {
  if (answer?.kind === "error") at("twins-said").textContent = answer.sentence;
  if (answer?.kind === "twins" && answer.width === state.width) drawTwins(answer.twins);
}

function fillModels(names, own, now) {
  const select = at("model");
  const key = JSON.stringify([names.length, own, Boolean(now.config)]);
  if (select.dataset.key !== key) {
    const group = (label, all) => {
      const node = document.createElement("optgroup");
      node.label = label;
      node.append(...all.map((name) => new Option(name, name)));
      return all.length ? [node] : [];
    };
    const tiny = names.filter((name) => name.startsWith("tiny-") && !own.includes(name));
    const published = names.filter((name) => !name.startsWith("tiny-") && !own.includes(name));
    const pasted = now.config ? [new Option("pasted config", "")] : [];
    select.replaceChildren(...pasted, ...group("published shapes", published), ...group("models of this app", own), ...group("tiny twins", tiny));
    select.dataset.key = key;
  }
  select.value = now.config ? "" : now.model;
}

function controls(now) {
  for (const control of document.querySelectorAll(".bs [data-field]")) {
    if (control === document.activeElement && control.matches("input")) continue;
    const value = now[control.dataset.field];
    if (control.matches("fieldset")) {
      for (const input of control.querySelectorAll("input")) input.checked = input.value === String(value);
    } else control.value = typeof value === "number" && control.inputMode === "numeric" ? value.toLocaleString("en-US") : String(value);
  }
  if (now.config && !at("config").value) at("config").value = now.config;
}

function restore() {
  state = Object.fromEntries(new URLSearchParams(location.search));
  paintTheme(state.theme);
  change({}, "replace");
}

function wire() {
  at("model").addEventListener("change", (event) => event.target.value && change({ model: event.target.value, config: "", kind: 0 }));
  document.querySelector(".bs").addEventListener("change", (event) => {
    const control = event.target.closest("[data-field]");
    if (!control) return;
    change({ [control.dataset.field]: control.matches("fieldset") ? event.target.value : control.value.trim() });
  });
  at("paste").addEventListener("click", () => open(at("paste-box").hidden));
  at("paste-close").addEventListener("click", () => open(false));
  at("paste-box").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!at("config").value.trim()) return notice("Nothing is pasted yet: paste the text of a config.json here, or choose a file.", true);
    change({ config: at("config").value, kind: 0 });
  });
  at("config-file").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    if (file.size > 65536) return notice("This file has " + file.size.toLocaleString("en-US") + " bytes; a config.json has at most 65,536.", true);
    const text = await file.text();
    if (!text.trim()) return notice("The file " + file.name + " is empty; a config.json holds a model's settings.", true);
    at("config").value = text;
    change({ config: at("config").value, kind: 0 });
  });
  wireFrame(change);
  wireContents();
  wireNav(document.querySelector(".bs"));
  wireTips(document.querySelector(".bs"), at("tip"));
}

function open(wanted) {
  at("paste-box").hidden = !wanted;
  at("paste").setAttribute("aria-expanded", String(wanted));
  if (wanted) at("config").focus();
}

async function start() {
  if (!bus.trigger || !view || !twins) return;
  await styled();
  wire();
  view.watch("value", () => receive(view.props.value));
  twins.watch("value", () => heard(twins.props.value));
  begin(view.plotly, { theme: () => state.theme, change, restore });
  const id = location.hash.slice(1);
  if (id.startsWith("s-") && at(id)) setTimeout(() => at(id).scrollIntoView(), 900);
}

export function startBus(context) {
  Object.assign(bus, context);
  start();
}

export function startView(context) {
  view = context;
  start();
}

export function startTwins(context) {
  twins = context;
  start();
}
