// The calculators: inputs are fields of the page's state, so a link holds what was typed; Python works every line out.
import { equation, table } from "./anatomy-words.js";
import { make } from "./frame.js";

const HANDS = [
  ["rmsnorm", "RMSNorm", [["x", "x", 18], ["eps", "ε", 8]]],
  ["layernorm", "LayerNorm of the same x", []],
  ["swiglu", "SwiGLU with two hidden units", [["swiglu_x", "x", 8], ["w_gate", "W gate", 14], ["w_up", "W up", 14]]],
  ["rotation", "One rotated pair", [["pair", "(a, b)", 8], ["position", "position", 6], ["frequency", "θ", 6]]],
  ["softmax", "Softmax of two scores while q grows, without and with QK-norm", [["q", "q", 8], ["k1", "k₁", 8], ["k2", "k₂", 8]]],
];

/** A value in four significant digits, with the typographic minus. */
export function shown(x) {
  if (x === null || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  const text = x === 0 ? "0" : size >= 1e5 || size < 1e-4 ? x.toExponential(2) : Number.isInteger(x) ? String(x) : size < 1 ? x.toFixed(4) : String(Number(x.toPrecision(5)));
  return text.replace("-", "−");
}

export function drawHands(holder, section) {
  for (const [name, title, inputs] of HANDS) {
    const box = holder.querySelector(`[data-hand="${name}"]`) ?? build(holder, name, title, inputs);
    const told = section[name];
    const work = box.querySelector(".work");
    if (told.wrong) work.replaceChildren(make("p", "wrong", told.wrong));
    else work.replaceChildren(...steps(told.steps));
  }
}

function build(holder, name, title, inputs) {
  const box = make("article", "hand" + (name === "softmax" ? " broad" : ""));
  box.dataset.hand = name;
  const line = make("div", "inputs");
  for (const [field, label, size] of inputs) {
    const one = make("label", "field", label + " ");
    const input = make("input");
    input.dataset.field = field;
    input.size = size;
    input.spellcheck = false;
    input.autocomplete = "off";
    input.value = new URLSearchParams(location.search).get(field) ?? DEFAULTS[field];
    one.append(input);
    line.append(one);
  }
  const work = make("div", "work wide");
  box.append(make("h3", "", title), line, work);
  holder.append(box);
  return box;
}

const DEFAULTS = { x: "2, 4, 6, 8", eps: "0.00001", swiglu_x: "1, 2", w_gate: "2, 0; 1, -1", w_up: "1, 1; -1, 1", pair: "1, 0", position: "3", frequency: "0.5", q: "2, 1", k1: "1, 0", k2: "0, 1" };

function steps(all) {
  const plain = all.filter((step) => !step.columns.length);
  const widest = Math.max(...plain.map((step) => step.values.length));
  const rows = plain.map((step) => {
    const values = step.values.map((v) => ["num", shown(v)]);
    if (values.length < widest) values.push(...Array(widest - values.length).fill(["num", ""]));
    return [["text", equation(step.name)], ["text quiet", equation(step.formula)], ...values];
  });
  const node = table([], rows);
  node.tHead.remove();
  if (all.length === plain.length) node.tBodies[0].lastElementChild.className = "result";
  const tables = all.filter((step) => step.columns.length).map((step) => table(step.columns, step.rows.map((row) => row.map((v) => ["num", shown(v)]))));
  return [node, ...tables];
}
