// Live runs: curves that grow point by point, pause, stop, keep, and what was measured.
import { showCards } from "./charts.js";
import { cards, pickCell } from "./growth-recorded.js";
import { Stepper } from "./growth-steps.js";
import { allowed, drawForm, wireForm } from "./growth-form.js";
import { listKept } from "./growth-kept.js";
import { hearText, wireTexts } from "./growth-text.js";
import { at, notice, scheme } from "./frame.js";
import { keys, send, showFiles, state } from "./growth.js";

const PANELS = ["max_logit", "entropy", "one_hot"];
const NAMES = [...PANELS, "loss"];
let run = null; // {id, token, layers, received, paused, over, scheme, curves, kept}
let asked = 0; // token of the newest run: answers of older ones are dropped
let stepper = null;
let saidNumber = 0;
let drawn = Promise.resolve();

const plotly = () => window.BlockscopePlotly;
const busy = () => run !== null && !run.over;

export async function drawLive(sections, now) {
  if (sections.form) drawForm(sections.form, now, !busy());
  if (run?.scheme && run.scheme !== scheme() && !at("cards-live").hidden) ask("theme");
  const { result } = sections;
  if (!result) return;
  at("result").hidden = !result.heads;
  if (!result.heads) return;
  at("result-about").textContent = result.about.join("  |  ");
  for (const id of ["cards-live", "live-keys"]) at(id).hidden = true;
  await drawFiles("result", result, stepper, now);
}

/** Records of a visitor: all their cards, in one place of the page. */
export async function drawFiles(place, told, steps) {
  await Promise.all([
    cards(`cards-${place}`, told.cards),
    cards(`cards-${place}-heads`, told.heads.cards, pickCell),
    cards(`cards-${place}-patterns`, told.patterns?.cards ?? []),
    steps.load(told.heads.frames, told.patterns?.frames).catch((error) => notice(error.message, true)),
  ]);
  steps.show(steps.find(-1));
}

function train() {
  drop();
  asked += 1;
  run = { id: null, token: asked, layers: [], received: 0, over: false, paused: false, curves: {}, scheme: "", kept: -1 };
  showFiles("result", []);
  say("asking for a place…");
  buttons();
  send("train", "train", { token: asked, scheme: scheme(), state: { ...state } });
}

/** Ends a run of this page, if there is one: the app is told and frees its worker. */
function drop() {
  if (busy()) send("train", "drop", {});
}

export function hearLive(answer) {
  if (!answer || !run || answer.token !== run.token) return;
  at("bs").dataset.live = answer.kind;
  if (answer.run) run.id = answer.run;
  const kinds = { waiting, preparing: () => say("reading the text…"), begin, points, ended, error: failed };
  kinds[answer.kind]?.(answer);
  buttons();
}

function waiting(answer) {
  say(answer.ahead === 1 ? "Another visitor is training: you are next in line." : `${answer.ahead} visitors are before you in line.`);
}

function failed(answer) {
  run.over = true;
  say("");
  at("live-wrong").hidden = false;
  at("live-wrong").textContent = answer.sentence;
}

function begin(answer) {
  run.layers = answer.layers;
  run.scheme = answer.scheme;
  run.powers = null;
  at("cards-live").hidden = at("live-keys").hidden = false;
  keys(at("live-keys"), answer.names);
  at("text-about").textContent = answer.text;
  const mine = run.token;
  const empty = () => showCards(at("cards-live"), answer.cards, { onPick: () => {}, current: () => run?.token === mine });
  drawn = drawn.catch(() => {}).then(empty).then(() => paint(new Map(NAMES.map((name) => [name, tracesOf(name)])))).catch((error) => console.warn(error));
}

/** The traces of a panel that have points. */
const tracesOf = (name) => Object.keys(run.curves).filter((key) => key.startsWith(name + " ")).map((key) => Number(key.slice(name.length + 1)));

/** New points; a few come twice, so that one message may be missed. */
function points(answer) {
  progress(answer);
  take(answer);
}

function take(answer) {
  if (answer.from > run.received) return ask("points"); // some are missing: all of them, once
  const fresh = answer.points.slice(run.received - answer.from);
  run.received += fresh.length;
  at("bs").dataset.points = String(run.received);
  if (fresh.length) drawn = drawn.then(() => extend(fresh)).catch((error) => console.warn(error));
}

/** [arm, step, loss, probe] -> the traces of each panel, in the order in which Python made them. */
async function extend(fresh) {
  const [left, right] = run.layers;
  const grown = new Map(NAMES.map((name) => [name, new Set()])); // panel -> traces with new points
  const put = (name, trace, x, y) => {
    if (y === null || y === undefined) return;
    const all = (run.curves[name + " " + trace] ??= { x: [], y: [] });
    all.x.push(x);
    all.y.push(y);
    grown.get(name).add(trace);
  };
  for (const [arm, step, loss, probe] of fresh) {
    put("loss", 2 * arm, step, loss);
    if (!probe) continue;
    const [validation, bound, ...quantities] = probe;
    put("loss", 2 * arm + 1, step, validation);
    put("max_logit", left + right + arm, step, bound);
    PANELS.forEach((name, i) => quantities[i].forEach((value, layer) => put(name, arm * left + layer, step, value)));
  }
  await paint(grown);
}

/** Whole curves of these traces into their pictures. */
async function paint(grown) {
  for (const [name, traces] of grown) {
    const gd = document.querySelector(`[data-card="live-${name}"] .gd`);
    const which = [...traces];
    if (!gd?._fullLayout || !which.length) continue;
    const all = which.map((trace) => run.curves[name + " " + trace]);
    await plotly().restyle(gd, { x: all.map((one) => one.x), y: all.map((one) => one.y) }, which);
    await spreadDecades(gd);
  }
}

/** The picture was made with a tick at every power of ten; where a run leaps over many, one in so many stays. */
async function spreadDecades(gd) {
  const { type, range } = gd._fullLayout.yaxis;
  if (type !== "log") return;
  const { tickvals, ticktext } = gd.layout.yaxis;
  run.powers ??= { every: 1, marks: tickvals.map((value, i) => [value, ticktext[i]]) };
  const every = Math.max(1, Math.ceil((range[1] - range[0]) / 7));
  if (every === run.powers.every) return;
  run.powers.every = every;
  const kept = run.powers.marks.filter(([value]) => Math.round(Math.log10(value)) % every === 0);
  await plotly().relayout(gd, { "yaxis.tickvals": kept.map(([value]) => value), "yaxis.ticktext": kept.map(([, text]) => text) });
}

function progress(answer) {
  run.paused = answer.paused;
  const share = answer.total ? answer.done / answer.total : 0;
  at("live-bar").firstElementChild.style.width = 100 * share + "%";
  const left = answer.left === null || answer.left === undefined ? "" : ` · about ${duration(answer.left)} left`;
  say(answer.total ? `${run.paused ? "paused at" : "step"} ${Math.floor(answer.done / 2).toLocaleString("en-US")} of ${(answer.total / 2).toLocaleString("en-US")}${run.paused ? "" : left}` : answer.what + "…");
}

const duration = (s) => (s < 90 ? Math.ceil(s) + " s" : Math.round(s / 60) + " min");

function ended(answer) {
  take(answer);
  run.over = true;
  const words = [...new Set(answer.ended)];
  const names = ["left", "right"];
  say(words.length === 1 ? words[0] : answer.ended.map((word, i) => `${names[i]} arm ${word}`).join(", "));
  run.measured = answer.records.length > 0;
  if (answer.records.length) drawn.then(() => showFiles("result", answer.records));
}

function say(text) {
  at("live-said").textContent = text;
}

function buttons() {
  const on = busy();
  const training = on && run.id !== null && run.received > 0;
  at("train").disabled = on || !allowed();
  at("pause").hidden = !training;
  at("pause").textContent = run?.paused ? "Go on" : "Pause";
  at("stop").hidden = !on;
  at("keep").hidden = !(run?.measured || training) || (run.over && run.kept === run.received);
  at("keep").textContent = run?.kept > 0 ? "Keep this step too" : "Keep";
  at("live-bar").hidden = !on;
}

function ask(what) {
  send("control", "control", { n: (saidNumber += 1), run: run.id, what, scheme: scheme() });
}

/** Answers to pause, stop, keep, to another theme, to an opened record and to a text. */
export function hearSaid(answer) {
  if (!answer || answer.n === undefined) return;
  if (answer.kind === "opened" || answer.to === "open") return at("s-open").dispatchEvent(new CustomEvent("opened", { detail: answer }));
  if (answer.kind === "text" || answer.to === "text") return hearText(answer);
  if (answer.kind === "error") return answer.n === openedNumber.value ? at("s-open").dispatchEvent(new CustomEvent("opened", { detail: answer })) : say(answer.sentence);
  if (answer.run !== run?.id) return;
  if (answer.kind === "begin") begin(answer);
  if (answer.kind === "points") take(answer);
  if (answer.kind !== "kept") return;
  run.kept = run.over ? run.received : answer.points;
  listKept(answer);
  buttons();
}

export const openedNumber = { value: -1 };
export const nextNumber = () => (saidNumber += 1);

export function wireLive() {
  wireForm();
  wireTexts();
  stepper = new Stepper("result", document.querySelector('[data-stepper="result"]'));
  at("live-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!busy()) train();
  });
  at("pause").addEventListener("click", () => ask(run.paused ? "go" : "pause"));
  at("stop").addEventListener("click", () => {
    if (run.received) return ask("stop");
    drop(); // still in line
    run.over = true;
    say("Left the line.");
    buttons();
  });
  at("keep").addEventListener("click", () => ask("keep"));
}
