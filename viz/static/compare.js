// The Compare page: its state, its one channel to Python, and from an answer to the page. Outside words go through textContent.
import { showCards } from "./charts.js";
import { wireStrips } from "./compare-strip.js";
import { showAgainst, showDiagrams, showIdentities, showNext, showTable } from "./compare-words.js";
import { at, begin, make, notice, paintTheme, remember, scheme, sentence, styled, tell, wireFrame } from "./frame.js";
import { wireNav } from "./nav.js";
import { chooser } from "./models.js";
import { showSides, wireEditor } from "./sides.js";

const bus = {};
let view = null; // how to hear Python
let state = {};
let confirmed = null; // the view on the screen
let shown = null; // its answer
let token = 0;
let waiting = null;
let running = false;
let step = "replace";
let clock = 0;
let rescued = ""; // why the view of the link could not be shown
const rescues = [["theme", "model", "prompt", "layer", "head"], ["theme"]]; // what is kept of it, in the order of trying

function ask(event, how) {
  token += 1;
  waiting = event;
  step = how;
  if (event === "run") {
    halt();
    running = true;
  }
  bus.props.value = { token, scheme: scheme(), state: { ...state } };
  bus.trigger(event);
  showProgress({ done: 0, total: 0, what: "", quiet: true, look: event === "look" });
}

/** Change fields of the view; what has not run yet is run when Python says so. */
export function change(fields, how = "push") {
  if (waiting === "run") halt();
  state = { ...state, ...fields };
  if ("theme" in fields) paintTheme(state.theme);
  ask("look", how);
}

function halt() {
  if (running) bus.trigger("halt");
  running = false;
}

function stop() {
  halt();
  token += 1;
  waiting = null;
  state = { ...(confirmed ?? state) };
  showProgress(null);
  notice("Stopped. The last view is kept.", false);
}

function receive(answer) {
  if (!answer || answer.token !== token) return;
  showModels(answer);
  if (answer.kind === "progress") return showProgress(answer);
  if (answer.kind === "late") {
    running = false;
    showProgress(null);
    return draw("cards-late", answer.late, answer.token).then(() => (at("bs").dataset.late = String(answer.token)));
  }
  if (answer.kind === "run") return ask("run", step);
  showProgress(null);
  waiting = null;
  if (answer.kind === "error") {
    running = false;
    state = { ...(confirmed ?? state) };
    if (!shown && rescues.length) {
      rescued ||= wrong(answer); // a link that cannot be opened: the default comparison of its model and prompt, else of ours
      const kept = rescues.shift();
      state = Object.fromEntries(Object.entries(state).filter(([name]) => kept.includes(name)));
      return ask("look", "replace");
    }
    at("model").value = state.model || at("model").value;
    return notice(wrong(answer), true);
  }
  state = answer.state;
  confirmed = { ...state };
  remember(answer.query && "?" + answer.query, step);
  paintTheme(state.theme);
  show(answer);
  at("bs").dataset.ready = String(answer.token);
}

/** Everything that is wrong with a view, as sentences. */
const wrong = (answer) => [...new Set([answer.sentence, ...(answer.notes ?? [])])].map(sentence).join(" ");

function restore() {
  state = Object.fromEntries(new URLSearchParams(location.search));
  paintTheme(state.theme);
  ask("look", "replace");
}

function show(answer) {
  const old = shown;
  shown = answer;
  if (rescued && !old) notice([rescued, "Showing the default comparison instead.", ...answer.notes.map(sentence)].join(" "), true);
  else tell(answer.notes);
  fillPrompt(state.prompt);
  grow();
  at("said").textContent = answer.tokens.said;
  at("device").hidden = false;
  at("device").textContent = answer.device;
  at("tokens").replaceChildren(...answer.tokens.pieces.map((piece) => make("span", "", piece)));
  showSides(answer.sides, answer, state, change);
  showQuick(answer.quick);
  showReasons(answer.quick);
  at("tensor-title").textContent = answer.title;
  at("tensor-caption").textContent = answer.caption;
  fillSelect(at("layer"), answer.depth, state.layer);
  fillSelect(at("head"), answer.heads, state.head);
  at("head").parentElement.hidden = !answer.headed;
  at("log").checked = Boolean(state.log);
  at("rows").checked = state.rows === "all";
  showStages(answer);
  showNext(answer.next);
  showTable(answer);
  showIdentities(answer.identities);
  showDiagrams(answer.diagrams, state, change);
  showAgainst(answer.sides, state, change);
  const of = (role) => answer.cards.filter((card) => card.role === role);
  at("cards-strip").classList.toggle("many", of("strip").length > 1);
  at("cards-tensor").dataset.sides = answer.sides.length;
  const selected = { row: Math.max(0, answer.rows.indexOf(state.tap)), layer: state.layer };
  const jobs = [draw("cards-strip", of("strip"), answer.token).then(() => wireStrips(at("cards-strip"), choose, selected)), draw("cards-tensor", of("tensor"), answer.token)];
  if (answer.late.length) jobs.push(draw("cards-late", answer.late, answer.token).then(() => (at("bs").dataset.late = String(answer.token))));
  else if (old && (old.state.prompt !== state.prompt || JSON.stringify(old.sides) !== JSON.stringify(answer.sides))) at("cards-late").replaceChildren();
  Promise.all(jobs).then(() => (at("bs").dataset.complete = String(answer.token)));
}

let given = ""; // what the page itself last put into the prompt box

/** What was typed and has not been run stays in the box. */
function fillPrompt(text) {
  const box = at("prompt");
  const plain = text.replace(/\r\n?/g, "\n"); // as the box gives it back
  if (box.value === given) box.value = plain;
  given = plain;
}

/** Figures lie one step above this page's address. */
function draw(holder, cards, of) {
  const near = cards.map((card) => (card.url ? { ...card, url: "../" + card.url } : card));
  return showCards(at(holder), near, { onPick: (field, value) => open(value), current: () => token === of });
}

/** A click in a strip brings row * wide + layer. */
const open = (code) => choose(hovered ?? state.against, Math.floor(code / shown.wide), code % shown.wide);

const choose = (letter, row, layer) => change({ tap: shown.rows[row], layer, against: letter });

let hovered = null; // the letter of the strip under the pointer

function grow() {
  const box = at("prompt");
  box.style.height = "auto";
  box.style.height = Math.min(box.scrollHeight + 2, 120) + "px";
}

function fillSelect(select, count, value) {
  if (select.options.length !== count) select.replaceChildren(...Array.from({ length: count }, (_, i) => new Option(String(i), String(i))));
  select.value = String(value);
}

let models = null; // the chooser

function showModels(answer) {
  if (answer.models) models.fill(answer.models, answer.state?.model);
}

function showQuick(entries) {
  at("quick").replaceChildren(
    ...entries.map((entry) => {
      const button = make("button", "", entry.label);
      button.type = "button";
      button.dataset.quick = entry.id;
      button.title = entry.wrong ? entry.title + "\nNot here: " + entry.wrong : entry.title;
      button.disabled = Boolean(entry.wrong);
      button.setAttribute("aria-pressed", String(state.quick === entry.id));
      button.addEventListener("click", () => change({ quick: entry.id, tap: entry.tap, against: "b" }));
      return button;
    }),
  );
}

/** Why entries of the list cannot be chosen with this model. */
function showReasons(entries) {
  const reasons = new Map();
  for (const one of entries) if (one.wrong) reasons.set(one.wrong, [...(reasons.get(one.wrong) ?? []), one.label]);
  at("quick-not").hidden = !reasons.size;
  at("quick-not").textContent = [...reasons].map(([why, labels]) => "Not here: " + labels.join(", ") + ", since " + why + ".").join(" ");
}

function showStages(answer) {
  const stages = Object.entries(answer.stages);
  const isScore = stages.some(([, tap]) => tap === state.tap);
  at("stages").hidden = !isScore;
  const labels = stages.map(([name, tap]) => {
    const label = make("label");
    const input = make("input");
    input.type = "radio";
    input.name = "stage";
    input.value = name;
    input.checked = name === state.stage;
    input.addEventListener("change", () => change({ stage: name, tap }));
    label.append(input, make("span", "", name));
    return label;
  });
  at("stages").replaceChildren(at("stages").firstElementChild, ...labels);
}

/** null: nothing runs. */
function showProgress(progress) {
  const box = at("progress");
  clearTimeout(clock);
  const stoppable = progress !== null && !progress.look;
  at("cancel").hidden = !stoppable;
  at("go").hidden = stoppable;
  if (progress === null) return (box.hidden = true);
  const paint = () => {
    box.hidden = false;
    box.classList.toggle("unknown", !progress.total);
    box.firstChild.style.width = progress.total ? (100 * progress.done) / progress.total + "%" : "100%";
    box.lastChild.textContent = progress.what + (progress.total ? " · " + progress.done + " of " + progress.total : "");
  };
  if (progress.quiet) clock = setTimeout(paint, 400);
  else paint();
}

function wire(root) {
  wireNav(root, (page) => (page === "explore" && shown ? shown.explore : {}));
  wireEditor(change);
  const prompt = at("prompt");
  at("prompt-form").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ prompt: prompt.value });
  });
  prompt.addEventListener("input", grow);
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    at("prompt-form").requestSubmit();
  });
  at("cancel").addEventListener("click", stop);
  models = chooser(at("model"), { choose: (model) => change({ model }), say: (text) => notice(sentence(text), true) });
  for (const name of ["layer", "head"]) at(name).addEventListener("change", (event) => change({ [name]: Number(event.target.value) }));
  at("log").addEventListener("change", (event) => change({ log: Number(event.target.checked) }));
  at("rows").addEventListener("change", (event) => change({ rows: event.target.checked ? "all" : "main" }));
  at("diagrams").addEventListener("toggle", (event) => Number(event.target.open) !== Number(state.diagrams ?? 0) && change({ diagrams: Number(event.target.open) }, "replace"));
  at("cards-strip").addEventListener("pointerover", (event) => (hovered = event.target.closest("[data-card]")?.dataset.card.slice(-1).toLowerCase() ?? hovered), true);
  wireFrame(change);
}

async function start() {
  if (!bus.trigger || !view) return;
  await styled();
  wire(view.element);
  view.watch("value", () => receive(view.props.value));
  begin(view.plotly, { theme: () => state.theme, change, restore });
}

export function startBus(context) {
  Object.assign(bus, context);
  start();
}

export function startView(context) {
  view = context;
  start();
}
