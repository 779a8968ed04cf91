// The Growth page: its state, its channels to Python, and who draws what. Words from outside go through textContent.
import { at, begin, make, notice, paintTheme, remember, scheme, styled, tell, wireContents, wireFrame } from "./frame.js";
import { wireNav } from "./nav.js";
import { drawRecorded, wireRecorded } from "./growth-recorded.js";
import { drawLive, hearLive, hearSaid, wireLive } from "./growth-live.js";
import { drawMore, hearJobs, wireMore } from "./growth-more.js";

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

export const latest = () => token;

/** Change fields of the view and ask Python for the sections that this changes. */
export function change(fields, how = "push") {
  state = { ...state, ...fields };
  if ("theme" in fields) paintTheme(state.theme);
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
  else tell(answer.notes);
  stay = "";
  remember(address(answer.query), step);
  paintTheme(state.theme);
  for (const [name, section] of Object.entries(answer.sections)) have[name] = section.key;
  const mine = answer.token;
  const jobs = [drawRecorded(answer.sections, state), drawLive(answer.sections, state), drawMore(answer.sections, state)];
  at("bs").dataset.ready = String(mine);
  Promise.all(jobs).then(() => (at("bs").dataset.complete = String(mine)));
}

/** The address of Python's view, with what the browser chose by itself. */
function address(query) {
  const words = new URLSearchParams(query);
  for (const [name, none] of [["run_step", -1], ["factor", 100]]) Number(state[name] ?? none) === none ? words.delete(name) : words.set(name, String(state[name]));
  const text = words.toString();
  return (text ? "?" + text : "") + (step === "replace" ? location.hash : "");
}

function restore() {
  state = Object.fromEntries(new URLSearchParams(location.search));
  paintTheme(state.theme);
  change({}, "replace");
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

function wire() {
  wireNav(document.querySelector(".bs"));
  wireRecorded();
  wireLive();
  wireMore();
  wireFrame(change);
  wireContents();
}

async function start() {
  if (started || !view || Object.keys(buses).length < 4 || Object.keys(hearing).length < 3) return;
  started = true;
  await styled();
  wire();
  view.watch("value", () => receive(view.props.value));
  hearing.live.watch("value", () => hearLive(hearing.live.props.value));
  hearing.said.watch("value", () => hearSaid(hearing.said.props.value));
  hearing.jobs.watch("value", () => hearJobs(hearing.jobs.props.value));
  begin(view.plotly, { theme: () => state.theme, change, restore });
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
