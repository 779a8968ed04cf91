// From an answer to the page, and from the page's controls to changes of the view.
import { showCards } from "./charts.js";
import { markNode, showDiagram } from "./diagram.js";
import { openFiles } from "./files.js";
import { at, notice, sentence, tell, wireFrame } from "./frame.js";
import { chooser } from "./models.js";
import { wireNav } from "./nav.js";
import { drawStrip } from "./strip.js";
import { showSurgery, wireSurgery } from "./surgery.js";
import { showTokens, wireTokens } from "./tokens.js";

let send = {}; // {change, run, stop, weigh}
let shown = null; // the last complete answer
let given = ""; // what the page itself last put into the prompt box: anything else there has been typed and not run
let latest = 0;
let clock = 0;
let models = null; // the chooser
let scales = 0; // the timer after which what has been typed is weighed

const WEIGHED = 256; // characters from which on a prompt may be long: its cost is asked for
const PAUSE = 350; // ms without a key

/** Connect every control. All of them are real form elements, so keyboard and screen reader come with them. */
export function wire(root, handlers) {
  send = handlers;
  const prompt = at("prompt");
  at("prompt-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send.run({ prompt: prompt.value, token: -1, zoom: "" });
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    at("prompt-form").requestSubmit();
  });
  prompt.addEventListener("input", () => {
    grow();
    weighSoon();
  });
  at("cancel").addEventListener("click", () => {
    send.stop();
    notice(shown ? "Stopped. The last view is kept." : "Stopped.", false);
  });
  const choose = (model) => send.run({ model, ...(shown ? {} : { prompt: prompt.value }) });
  models = chooser(at("model"), { choose, say: (text) => showError(sentence(text)) });
  for (const control of root.querySelectorAll("[data-field]")) {
    let dragging = false; // the first move of a drag is a step of the history, the others only move it
    control.addEventListener("change", () => (dragging = false));
    control.addEventListener(control.type === "range" ? "input" : "change", () => {
      const source = control.matches("fieldset") ? control.querySelector("input:checked") : control;
      const value = source.type === "checkbox" ? Number(source.checked) : source.value;
      pick(control.dataset.field, value, dragging ? "replace" : "push");
      dragging = control.type === "range";
    });
  }
  at("layer-less").addEventListener("click", () => open(shown.state.layer - 1));
  at("layer-more").addEventListener("click", () => open(shown.state.layer + 1));
  wireFrame(send.change);
  wireTokens((token) => send.change({ token }));
  wireNav(root);
  wireSurgery((fields) => send.change(fields));
  new ResizeObserver(() => shown && showStrip(shown.strip, shown.state)).observe(at("strip"));
}

const TWINS = ["capped", "pattern"]; // stages that are nodes of the diagram too: choosing or leaving one does so with both

/** Change one field of the view. */
function pick(field, value, how) {
  const fields = { [field]: value };
  if (field === "stage") fields.node = TWINS.includes(value) ? value : "logits";
  if (field === "node" && value === "logits" && TWINS.includes(shown.state.stage)) fields.stage = "scaled";
  send.change(fields, how);
}

function open(layer) {
  if (shown && layer >= 0 && layer < shown.model.layers) send.change({ layer });
}

function grow() {
  const box = at("prompt");
  box.style.height = "auto";
  box.style.height = Math.min(box.scrollHeight + 2, 120) + "px";
}

/** What is typed is weighed once the keys rest; what has been run, or is short, costs nothing worth saying. */
function weighSoon() {
  clearTimeout(scales);
  const text = at("prompt").value;
  if (text === given || text.length <= WEIGHED) {
    send.weigh(null);
    return showCost(null);
  }
  scales = setTimeout(() => send.weigh(text), PAUSE);
}

/** cost = {text, from, warning}; null: nothing to say. */
export function showCost(cost) {
  const box = at("cost");
  box.hidden = !(cost?.text || cost?.warning);
  if (box.hidden) return;
  const [text, warning] = box.children;
  text.textContent = cost.text;
  text.title = cost.from;
  warning.textContent = cost.warning;
  warning.hidden = !cost.warning;
}

/** Anything but progress: what an answer has is shown, what it lacks stays. */
export function showAnswer(answer, state) {
  showModels(answer.models, answer.model, state);
  if (answer.kind === "view" || answer.notes?.length) tell(answer.notes);
  if (answer.kind === "error") shown ? restoreMarks(state) : showEmpty(state);
  if (answer.kind !== "view") return;
  fillPrompt(state.prompt);
  at("bs").classList.remove("empty");
  shown = answer;
  latest = answer.token;
  const { model } = answer;
  grow();
  at("layer-now").textContent = String(state.layer);
  at("layer-range").textContent = model.layers > 1 ? "of 0–" + (model.layers - 1) : "the only one";
  at("layer-less").disabled = state.layer === 0;
  at("layer-more").disabled = state.layer === model.layers - 1;
  at("layer-kind").textContent = answer.layer;
  at("said").textContent = answer.tokens.said;
  showTokens(answer.tokens.pieces, state.token);
  if (at("prompt").value === given) showCost(null); // what stands in the box has been run
  showDiagram(at("diagram"), answer.block, answer.numbers, state, (node) => {
    markNode(at("diagram"), node);
    pick("node", node);
  });
  showControls(answer, state);
  showSurgery(answer.parts, model.differs);
  showIdentities(answer.identities);
  showStrip(answer.strip, state);
  showFigures(answer);
}

/** What was typed and has not been run stays in the box. */
function fillPrompt(text) {
  const box = at("prompt");
  const plain = text.replace(/\r\n?/g, "\n"); // as the box gives it back
  if (box.value === given) box.value = plain;
  given = plain;
}

/** A first view that failed: its prompt can be changed and another model chosen, and nothing else stands there. */
export function showEmpty(state) {
  fillPrompt(state.prompt ?? "");
  grow();
  at("bs").classList.add("empty");
  at("main-title").textContent = "Nothing has been run yet";
  at("main-caption").textContent = "Type a prompt and press Run, or choose another model.";
}

/** After an error, or where a run was stopped, the controls go back to the view that is still on the screen. */
export function restoreMarks(state) {
  markNode(at("diagram"), state.node);
  showControls(shown, state);
  showSurgery(shown.parts, shown.model.differs);
  models.mark(state.model);
}

function showFigures(answer) {
  const onPick = (field, value) => send.change({ [field]: value });
  const options = { onPick, current: () => latest === answer.token };
  const of = (role) => answer.cards.filter((card) => card.role === role);
  const main = of("main");
  at("main-title").textContent = main[0]?.title ?? "";
  at("main-caption").textContent = main[0]?.caption ?? "";
  const first = showCards(at("cards-main"), main.slice(0, 1), { ...options, bare: true, fit: room });
  first.then(() => {
    at("bs").dataset.painted = String(answer.token);
    return Promise.all([
      showCards(at("cards-side"), of("side"), options),
      showCards(at("cards-more"), [...main.slice(1), ...of("more")], options),
    ]);
  }).then(() => (at("bs").dataset.complete = String(answer.token)));
}

/** The height left in the middle column: the main picture is cut to it, so that it can be seen whole. */
function room() {
  const column = document.querySelector(".bs .main");
  return column.scrollHeight > column.clientHeight || innerWidth > 1150 ? column.getBoundingClientRect().bottom - at("cards-main").getBoundingClientRect().top + column.scrollTop - 14 : 1e4;
}

function showModels(menu, model, state) {
  models.fill(menu, state.model);
  if (!model) return;
  at("size").textContent = model.size;
  at("size").title = [model.parameters, model.built + " as built", ...model.report].join("\n");
  at("device").hidden = false;
  at("device").textContent = model.device;
}

function showControls(answer, state) {
  for (const control of at("controls").querySelectorAll("[data-for]")) control.hidden = !answer.controls.includes(control.dataset.for);
  document.querySelector('[data-stage="capped"]').hidden = !("capped" in answer.numbers);
  const qk = answer.parts.find((part) => part.name === "qk_norm");
  at("qk").disabled = Boolean(qk?.why);
  at("qk").title = qk?.why ?? "";
  const heads = at("head");
  if (heads.options.length !== answer.model.heads) {
    heads.replaceChildren(...Array.from({ length: answer.model.heads }, (_, i) => new Option(String(i), String(i))));
  }
  const layer = at("layer");
  layer.max = String(answer.model.layers - 1);
  for (const control of document.querySelectorAll(".bs [data-field]")) {
    const value = state[control.dataset.field];
    if (control.matches("fieldset")) {
      for (const input of control.querySelectorAll("input")) input.checked = input.value === value;
    } else if (control.type === "checkbox") control.checked = Boolean(value);
    else control.value = String(value);
  }
}

function showIdentities(identities) {
  at("identities-box").hidden = identities.length === 0;
  at("identities").replaceChildren(
    ...identities.map((identity) => {
      const item = document.createElement("li");
      item.className = identity.holds ? "holds" : "broken";
      item.title = identity.formula + (identity.note ? "\n" + identity.note : "");
      for (const [kind, text] of [["mark", identity.holds ? "✓" : "✗"], ["name", identity.name], ["residual", residual(identity.residual)]]) {
        const part = document.createElement("span");
        part.className = kind;
        part.textContent = text;
        item.append(part);
      }
      return item;
    }),
  );
}

const residual = (x) => (x === 0 ? "0" : x === null || !Number.isFinite(x) ? "—" : x.toExponential(1));

/** `said`: how long the run has taken by now, where the strip has grown since. */
export function showStrip(strip, state, said) {
  if (shown) shown.strip = strip;
  if (said) at("said").textContent = said;
  drawStrip(at("strip"), at("strip-legend"), strip, Number(state.layer), open);
}

/** null: nothing runs. A thin line, with words and the share done from the first report on; `quiet` waits a moment first. */
export function showProgress(step) {
  const box = at("progress");
  clearTimeout(clock);
  const stoppable = step !== null && !step.look;
  at("cancel").hidden = !stoppable;
  at("go").hidden = stoppable;
  if (step === null) return (box.hidden = true);
  const show = () => {
    box.hidden = false;
    box.classList.toggle("unknown", !step.total);
    box.firstChild.style.width = step.total ? (100 * step.done) / step.total + "%" : "100%";
    box.lastChild.textContent = step.what + (step.total ? " · " + Math.floor(step.done) + " of " + step.total : "");
  };
  if (step.quiet) clock = setTimeout(show, 400);
  else show();
}

export function showError(text) {
  notice(text, true);
}

/** A model that cannot be opened: why, whose numbers stand on the page meanwhile, and a way to look into its files. */
export function showRefusal(model, text, still) {
  const why = text.includes(model) ? text : model + " cannot be opened: " + text;
  notice(why.replace(/[.\s]*$/, ".") + (still ? " Everything on this page is still of " + still + "." : ""), true);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "files-of";
  button.textContent = "Look into its files";
  button.addEventListener("click", () => openFiles(model));
  at("notice").querySelector("span").append(" ", button);
}
