// The Compare page: its state, its one channel to Python, and from an answer to the page. Outside words go through textContent.
import { showCards } from "./charts.js";
import { at, begin, make, notice, paintTheme, remember, scheme, styled, tell, wireFrame } from "./frame.js";
import { wireNav } from "./nav.js";
import { modelOptions, showSides, wireEditor } from "./sides.js";

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
      rescued ||= answer.sentence; // a link that cannot be opened: the default comparison of its model and prompt, else of ours
      const kept = rescues.shift();
      state = Object.fromEntries(Object.entries(state).filter(([name]) => kept.includes(name)));
      return ask("look", "replace");
    }
    at("model").value = state.model || at("model").value;
    return notice(answer.sentence, true);
  }
  state = answer.state;
  confirmed = { ...state };
  remember(answer.query && "?" + answer.query, step);
  paintTheme(state.theme);
  show(answer);
  at("bs").dataset.ready = String(answer.token);
}

function restore() {
  state = Object.fromEntries(new URLSearchParams(location.search));
  paintTheme(state.theme);
  ask("look", "replace");
}

function show(answer) {
  const old = shown;
  shown = answer;
  if (rescued && !old) notice(rescued + " Showing the default comparison instead.", true);
  else tell(answer.notes);
  fillPrompt(state.prompt);
  grow();
  at("said").textContent = answer.tokens.said;
  at("device").hidden = false;
  at("device").textContent = answer.device;
  at("tokens").replaceChildren(...answer.tokens.pieces.map((piece) => make("span", "", piece)));
  showSides(answer.sides, answer, state, change);
  showQuick(answer.quick);
  at("tensor-title").textContent = answer.title;
  at("tensor-caption").textContent = answer.caption;
  fillSelect(at("layer"), answer.depth, state.layer);
  fillSelect(at("head"), answer.heads, state.head);
  at("log").checked = Boolean(state.log);
  at("rows").checked = state.rows === "all";
  showStages(answer);
  showNext(answer.next);
  showTable(answer);
  showIdentities(answer.identities);
  showDiagrams(answer.diagrams);
  const of = (role) => answer.cards.filter((card) => card.role === role);
  at("cards-strip").classList.toggle("many", of("strip").length > 1);
  at("cards-tensor").dataset.sides = answer.sides.length;
  const jobs = [draw("cards-strip", of("strip"), answer.token), draw("cards-tensor", of("tensor"), answer.token)];
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
function open(code) {
  const row = Math.floor(code / shown.wide);
  const tap = shown.rows[row];
  const letter = hovered ?? state.against;
  change({ tap, layer: code % shown.wide, against: letter });
}

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

function showModels(answer) {
  const select = at("model");
  const key = JSON.stringify(answer.models);
  if (answer.models && select.dataset.key !== key) {
    select.replaceChildren(...modelOptions(answer.models));
    select.dataset.key = key;
  }
  if (answer.state) select.value = answer.state.model;
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

function showNext(sides) {
  at("next").replaceChildren(
    ...sides.map((side) => {
      const box = make("div", "bars of-" + side.letter.toLowerCase());
      const head = make("b", "", side.letter);
      const kl = side.kl === null || side.kl === undefined || side.letter === "A" ? "" : "KL(A ‖ " + side.letter + ") = " + side.kl + " nats";
      head.append(make("span", "", side.wrong ? "" : kl || "entropy " + side.entropy + " nats"));
      box.append(head);
      if (side.wrong) box.append(make("p", "grey", side.wrong));
      for (const [piece, text, p] of side.top ?? []) {
        const bar = make("i");
        bar.style.width = Math.max(0.5, p * 100) + "%";
        box.append(make("code", "", piece), bar, make("em", "", text));
      }
      return box;
    }),
  );
}

function showTable(answer) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  for (const cell of answer.table.columns) head.append(make("th", "", cell));
  const body = table.createTBody();
  for (const row of answer.table.rows) {
    const tr = body.insertRow();
    row.forEach((cell, i) => tr.append(make(i ? "td" : "th", "", cell)));
  }
  const starts = answer.starts.map(([letter, tap]) => {
    const line = make("p", "starts");
    line.append(make("span", "", answer.starts.length > 1 ? letter + " first differs at" : "first differing tensor"), make("code", "", tap));
    return line;
  });
  at("table").replaceChildren(table, ...starts);
}

function showIdentities(identities) {
  at("identities").replaceChildren(
    ...identities.map((identity) => {
      const item = make("li", identity.holds ? "holds" : "broken");
      item.title = identity.note;
      item.append(make("span", "mark", identity.holds ? "✓" : "✗"), make("span", "name", identity.name), make("span", "value", identity.value));
      return item;
    }),
  );
}

function showDiagrams(diagrams) {
  at("diagrams").open = Boolean(state.diagrams);
  at("diagram-pair").replaceChildren(
    ...diagrams.map((one) => {
      const box = make("div", "of-" + one.letter.toLowerCase());
      box.append(make("h3", "", one.letter));
      if (one.missing) {
        box.append(make("p", "grey", one.missing));
        return box;
      }
      const drawing = make("div");
      drawing.innerHTML = one.svg; // made by Python from our own module names, escaped there
      for (const node of drawing.querySelectorAll("[data-node]")) {
        const told = one.nodes[node.dataset.node];
        if (!told) continue;
        node.classList.add(told.kind);
        node.classList.toggle("chosen", told.taps.includes(state.tap));
        if (!node.classList.contains("off")) node.querySelector(".rms").textContent = told.words;
        node.setAttribute("aria-label", node.querySelector(".label").textContent + ", " + told.words);
        const pick = () => told.taps.length && change({ tap: told.taps.at(-1) });
        node.addEventListener("click", pick);
        node.addEventListener("keydown", (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          pick();
        });
      }
      box.append(drawing);
      return box;
    }),
  );
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
  at("model").addEventListener("change", (event) => change({ model: event.target.value }));
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
