// The page's state, its one channel to Python, and what happens to an answer. All words from outside go through textContent.
import { at, begin, clearNotice, paintTheme, remember, scheme, styled } from "./frame.js";
import { restoreMarks, showAnswer, showCost, showEmpty, showError, showProgress, showRefusal, showStrip, wire } from "./view.js";
import { showFiles, wireFiles } from "./files.js";

const bus = {}; // filled by startBus: how to reach Python
let state = {}; // the view as Python last confirmed it, plus what was asked since
let confirmed = null; // the view that is on the screen
let token = 0; // of the newest request: answers to older ones are dropped
let waiting = null; // "look" | "run" | null: what the screen waits for
let running = false; // a run is going on; after its view it may still work on other layers, or on the counterfactual line
let whole = false; // Run was pressed: a kept run that lacks layers goes on
let step = "replace"; // how the next answer enters the browser's history
let patience = 0;
let draft = 0; // of the newest text that was weighed
let aside = null; // the text that waits for a model that reads text, while token numbers run in its place

const LINK = 6000; // characters of a query string that every server reads; a longer view stands behind the #, which none is sent

function ask(event, how) {
  token += 1;
  step = waiting && step === "push" ? step : how; // a step that is not answered yet stays a step
  waiting = event;
  if (event === "run") {
    halt();
    running = true;
  }
  bus.props.value = { token, scheme: scheme(), state: { ...state } };
  bus.trigger(event);
  clearTimeout(patience);
  showProgress({ done: 0, total: 0, what: "", quiet: true, look: event === "look" });
  if (event === "look") patience = setTimeout(() => showError("The app has not answered for 20 s; it may be gone or busy."), 20000);
}

/** Change fields of the view. A prompt, model or QK-norm that has not run yet is run; anything else is only looked up. */
export function change(fields, how = "push") {
  if (waiting === "run") halt(); // what was asked since is asked again below
  whole = false;
  state = { ...state, ...fields };
  if ("theme" in fields) paintTheme(state.theme);
  ask("look", how);
}

/** Run what is in the view, whether or not it has run before. */
export function run(fields) {
  clearNotice(); // it spoke of another run
  if ("model" in fields && aside !== null) fields = { prompt: aside, ...fields };
  change(fields, "push");
  whole = true;
}

/** Ask what a text would take if it were run; null: whatever is still on its way is no longer wanted. */
function weigh(prompt) {
  draft += 1;
  if (prompt === null) return;
  bus.props.value = { token, scheme: scheme(), draft, state: { ...state, prompt } };
  bus.trigger("weigh");
}

function halt() {
  if (running) bus.trigger("halt");
  running = false;
}

/** Stop what runs, and keep the last view. */
export function stop() {
  halt();
  token += 1; // whatever still arrives is late
  waiting = null;
  showProgress(null);
  if (!confirmed) showEmpty(state);
  state = { ...(confirmed ?? state) };
  if (confirmed) restoreMarks(state); // a model that was not opened does not stay in the box
}

function receive(answer) {
  if (answer?.kind === "strip" || answer?.kind === "filling") {
    const last = answer.kind === "strip";
    if (last) running = false; // told apart by its run, not by its token: another node may have been opened meanwhile
    if (answer.strip.run !== confirmed?.run || !(last || running)) return;
    if (!waiting) showProgress(last ? null : answer);
    return showStrip(answer.strip, state, answer.said);
  }
  if (answer?.kind?.startsWith("files")) return showFiles(answer); // beside the view, which stays
  if (answer?.kind === "cost") return answer.draft === draft && showCost(answer);
  if (!answer || answer.token !== token) return;
  clearTimeout(patience);
  if (answer.kind === "progress") return waiting === "run" && showProgress(answer);
  if (answer.kind === "run") {
    clearNotice();
    showAnswer(answer, state);
    return ask("run", step);
  }
  showProgress(null);
  if (answer.kind === "error") {
    waiting = null;
    running = false;
    state = { ...(confirmed ?? state) }; // the page keeps its last view
    showAnswer(answer, state);
    return answer.refused ? showRefusal(answer.refused, answer.sentence, confirmed?.model) : showError(answer.sentence);
  }
  if (answer.aside) aside ??= state.prompt;
  else if (state.prompt === aside) aside = null;
  state = answer.state;
  confirmed = { ...state, run: answer.strip.run };
  remember(answer.query.length > LINK ? "#?" + answer.query : answer.query && "?" + answer.query, step);
  paintTheme(state.theme);
  waiting = null;
  showAnswer(answer, state);
  at("bs").dataset.ready = String(answer.token);
  if (whole && !running && answer.strip.peaks.length < answer.strip.layers) ask("run", "replace");
}

function restore() {
  if (waiting === "run") halt();
  state = Object.fromEntries(new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : location.search));
  paintTheme(state.theme);
  waiting = null; // the address is there already, whatever was under way
  ask("look", "replace");
}

async function start() {
  if (!bus.trigger || !start.view) return;
  await styled();
  wire(start.view.element, { change, run, stop, weigh });
  wireFiles((event, model) => {
    bus.props.value = { token, scheme: scheme(), state: { model } };
    bus.trigger(event);
  });
  start.view.watch("value", () => receive(start.view.props.value));
  begin(start.view.plotly, { theme: () => state.theme, change, restore });
}

export function startBus(context) {
  Object.assign(bus, context);
  start();
}

export function startView(context) {
  start.view = context;
  start();
}
