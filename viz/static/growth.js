// The Growth page: its state, its channels to Python, and who draws what. Words from outside go through textContent.
import { loadPlotly } from "./charts.js";
import { wireNav } from "./nav.js";
import { drawRecorded, wireRecorded } from "./growth-recorded.js";
import { drawLive, hearLive, hearSaid, wireLive } from "./growth-live.js";
import { drawMore, hearJobs, wireMore } from "./growth-more.js";

export const at = (id) => document.getElementById(id);
const buses = {};
const hearing = {};
let view = null;
let started = false;
export let state = {};
let confirmed = null;
let asked = {}; // what the newest question said of the fields that the browser changes by itself
let token = 0;
let step = "replace";
let patience = 0;
let stay = ""; // a sentence on a first view that could not be shown, kept over the default view
const have = {}; // section -> its key
const files = { opened: [], result: [] }; // keys of this visitor's records; they are in no link

export const scheme = () => (document.body.classList.contains("dark") ? "dark" : "light");
export const latest = () => token;

export function make(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Change fields of the view and ask Python for the sections that this changes. */
export function change(fields, how = "push") {
  state = { ...state, ...fields };
  if ("theme" in fields) paintTheme();
  step = how;
  token += 1;
  asked = { run_step: state.run_step, factor: state.factor };
  send("look", "look", { token, scheme: scheme(), state: { ...state }, have: { ...have }, ...files });
  clearTimeout(patience);
  patience = setTimeout(() => notice("The app has not answered for 20 s; it may be gone or busy.", true), 20000);
}

/** Fields that the browser shows by itself: kept in the view and in the link, nobody is asked. */
export function note(fields, defaults) {
  state = { ...state, ...fields };
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(fields)) value === defaults[name] ? query.delete(name) : query.set(name, String(value));
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? "?" + text : ""));
}

/** Show records of this visitor in a place of the page. */
export function showFiles(place, keys) {
  files[place] = keys;
  change({}, "replace");
}
export const shownFiles = (place) => files[place];

/** One question on the bus of its kind. */
export function send(bus, event, value) {
  buses[bus].props.value = value;
  buses[bus].trigger(event);
}

function receive(answer) {
  if (!answer || answer.token !== token) return;
  clearTimeout(patience);
  if (answer.kind === "error") {
    state = { ...(confirmed ?? {}), theme: state.theme ?? "auto" };
    notice(answer.sentence, true);
    if (!confirmed && !stay) {
      stay = answer.sentence;
      change({}, "replace");
    }
    return;
  }
  const local = { run_step: state.run_step, factor: state.factor }; // chosen since, without asking
  state = { ...answer.state };
  for (const [name, value] of Object.entries(local)) if (value !== asked[name]) state[name] = Number(value);
  confirmed = { ...state };
  if (stay) notice(stay, true);
  else if (answer.notes.length) notice(answer.notes.map((n) => n.charAt(0).toUpperCase() + n.slice(1) + ".").join(" "), false);
  else at("notice").hidden = true;
  stay = "";
  remember(answer.query);
  paintTheme();
  for (const [name, section] of Object.entries(answer.sections)) have[name] = section.key;
  const mine = answer.token;
  const jobs = [drawRecorded(answer.sections, state), drawLive(answer.sections, state), drawMore(answer.sections, state)];
  at("bs").dataset.ready = String(mine);
  Promise.all(jobs).then(() => (at("bs").dataset.complete = String(mine)));
}

/** The address of Python's view, with what the browser chose by itself. */
function remember(query) {
  const words = new URLSearchParams(query);
  for (const [name, none] of [["run_step", -1], ["factor", 100]]) Number(state[name] ?? none) === none ? words.delete(name) : words.set(name, String(state[name]));
  const text = words.toString();
  const address = location.pathname + (text ? "?" + text : "") + (step === "replace" ? location.hash : "");
  if (address === location.pathname + location.search + location.hash) return;
  history[step === "push" ? "pushState" : "replaceState"](null, "", address);
}

function restore() {
  state = Object.fromEntries(new URLSearchParams(location.search));
  paintTheme();
  change({}, "replace");
}

function paintTheme() {
  const theme = state.theme && state.theme !== "auto" ? state.theme : matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.body.classList.toggle("dark", theme === "dark");
}

export function notice(text, wrong) {
  const box = at("notice");
  box.querySelector("span").textContent = text;
  box.classList.toggle("wrong", wrong);
  box.hidden = false;
}

/** columns and rows of words -> a table; `pick(i)` makes its rows clickable. */
export function table(told, pick) {
  const node = make("table");
  const head = node.createTHead().insertRow();
  for (const cell of told.columns) head.append(make("th", "", cell));
  const body = node.createTBody();
  told.rows.forEach((row, i) => {
    const tr = body.insertRow();
    row.forEach((cell, n) => {
      const box = make(n ? "td" : "th", n ? "num" : "");
      if (n === 0 && pick) {
        const button = make("button", "row", cell);
        button.type = "button";
        button.addEventListener("click", () => pick(i));
        box.append(button);
      } else box.textContent = cell;
      tr.append(box);
    });
  });
  return node;
}

/** The colours in words: which arm is which. */
export function keys(holder, names) {
  holder.replaceChildren(...names.map((name, i) => make("span", "key " + "abcd"[i], name)));
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    at("link").textContent = "copied";
  } catch {
    notice("This view's link: " + location.href, false);
  }
  setTimeout(() => (at("link").textContent = "link"), 1500);
}

function wire() {
  wireNav(document.querySelector(".bs"));
  wireRecorded();
  wireLive();
  wireMore();
  at("notice").querySelector("button").addEventListener("click", () => (at("notice").hidden = true));
  at("theme").addEventListener("click", () => change({ theme: scheme() === "dark" ? "light" : "dark" }, "replace"));
  at("link").addEventListener("click", copyLink);
  const links = new Map([...at("contents").children].map((link) => [link.hash.slice(1), link]));
  for (const [id, link] of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the view; only the part after # is the section
      at(id).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      history.replaceState(null, "", location.pathname + location.search + "#" + id);
    });
  }
  const locate = () => {
    const past = [...links.keys()].filter((id) => at(id).getBoundingClientRect().top < innerHeight * 0.3);
    for (const [id, link] of links) link.classList.toggle("here", id === (past.at(-1) ?? "s-recorded"));
  };
  addEventListener("scroll", () => requestAnimationFrame(locate), { passive: true });
  locate();
}

async function start() {
  if (started || !view || Object.keys(buses).length < 4 || Object.keys(hearing).length < 3) return;
  started = true;
  const ready = () => getComputedStyle(document.querySelector(".bs")).visibility === "visible";
  for (let i = 0; i < 100 && !ready(); i++) await new Promise((next) => setTimeout(next, 20));
  wire();
  view.watch("value", () => receive(view.props.value));
  hearing.live.watch("value", () => hearLive(hearing.live.props.value));
  hearing.said.watch("value", () => hearSaid(hearing.said.props.value));
  hearing.jobs.watch("value", () => hearJobs(hearing.jobs.props.value));
  addEventListener("popstate", restore);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (state.theme || "auto") === "auto" && change({}, "replace"));
  restore();
  requestAnimationFrame(() => setTimeout(() => loadPlotly(view.plotly), 0));
}

export function startBus(context) {
  buses[context.name] = context;
  start();
}

export function startHear(context) {
  hearing[context.name] = context;
  start();
}

export function startView(context) {
  view = context;
  start();
}
