// From a section's values to the page. Every word goes through textContent; equations are parsed here, never as HTML.
import { at, make } from "./frame.js";
import { showCards } from "./charts.js";
import { showDiagram } from "./diagram.js";
import { drawHands } from "./anatomy-hand.js";
import { equation, number, table } from "./anatomy-words.js";

let act = {}; // {change, mine}

const DRAW = { block, totals, table: parts, shapes, side, ladder, caches, hand: (s) => drawHands(at("hand"), s) };

/** Draw the sections of an answer; resolves when its figures are painted. */
export function draw(answer, handlers) {
  act = handlers;
  at("model-name").textContent = answer.model.name;
  at("model-size").replaceChildren(number(answer.model.size, answer.model.formula), " ·");
  at("model-origin").textContent = answer.model.origin;
  at("model-note").textContent = answer.model.note && answer.model.note + ".";
  at("model-origin").title = answer.model.notes.join("\n");
  for (const [name, section] of Object.entries(answer.sections)) DRAW[name]?.(section, answer);
  const options = { onPick: () => {}, current: handlers.mine };
  const { charts, design_chart: designs } = answer.sections;
  return Promise.all([charts && showCards(at("charts"), charts.cards, options), designs && showCards(at("design-chart"), designs.cards, options)]);
}

function block(section) {
  const kinds = at("kinds");
  kinds.replaceChildren();
  kinds.hidden = section.kinds.length < 2;
  if (section.kinds.length > 1) {
    const set = make("fieldset", "segments");
    set.dataset.field = "kind";
    set.append(make("legend", "vh", "Which blocks"));
    section.kinds.forEach((kind, i) => {
      const label = make("label");
      const input = make("input");
      Object.assign(input, { type: "radio", name: "kind", value: String(i), checked: i === section.kind });
      const words = equation(kind.name);
      words.append(make("span", "where", kind.where));
      label.append(input, words);
      set.append(label);
    });
    kinds.append(set);
  }
  const wiring = section.lines.filter((line) => line.about === "block");
  at("hero").replaceChildren(...wiring.map((line) => lineOf(line)));
  const groups = new Map();
  for (const line of [...section.lines.filter((l) => l.about !== "block"), ...section.model]) {
    const name = { router: "mlp", rotation: "attention" }[line.about] ?? line.about;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(line);
  }
  const named = { mlp: "MLP", norm: "norm", model: "around the blocks" };
  at("equations").replaceChildren(
    ...[...groups].map(([name, lines]) => {
      const holder = make("div", "lines");
      const body = make("div");
      body.append(...lines.map((line) => lineOf(line)));
      holder.append(make("div", "about", named[name] ?? name), body);
      return holder;
    }),
  );
  diagram(section);
}

function lineOf(line) {
  const row = make("div", "line");
  row.append(equation(line.left + " = " + line.right));
  if (line.note) {
    const note = make("span", "note", line.note.includes("_{") ? undefined : line.note);
    if (line.note.includes("_{")) note.append(equation(line.note));
    row.append(note);
  }
  return row;
}

function diagram(section) {
  const holder = at("diagram");
  showDiagram(holder, section.drawing, {}, { node: "" }, (id) => mark(section.nodes[id]?.taps ?? []));
  for (const node of holder.querySelectorAll(".standing [data-node]")) {
    const told = section.nodes[node.dataset.node];
    const text = node.querySelector(".rms");
    text.textContent = told?.short ?? "";
    text.removeAttribute("textLength");
    const room = node.querySelector(".box").width.baseVal.value - 16;
    if (text.getComputedTextLength() > room) text.textContent = told.short.replaceAll(" ", "");
    if (text.getComputedTextLength() > room) {
      text.setAttribute("textLength", String(room));
      text.setAttribute("lengthAdjust", "spacingAndGlyphs");
    }
    const title = node.querySelector("title");
    title.dataset.meaning ??= title.textContent;
    title.textContent = title.dataset.meaning + (told?.full ? "\n" + told.full : "");
  }
}

/** Mark the rows of these taps in the table of shapes, and bring the first into view. */
function mark(taps) {
  let first = null;
  for (const row of at("shapes").querySelectorAll("tr[data-tap]")) {
    const on = taps.includes(row.dataset.tap);
    row.classList.toggle("marked", on);
    if (on) first ??= row;
  }
  if (first) first.scrollIntoView({ block: "center" });
}

function totals(section) {
  const holder = make("div", "totals");
  for (const row of section.rows) {
    const line = make("div");
    line.append(make("span", "", row.name), number(row.text, row.formula));
    holder.append(line);
  }
  at("totals").replaceChildren(holder, ...(section.note ? [make("p", "caption", section.note + ".")] : []));
}

const percent = (x) => (x < 0.00001 ? "<0.001" : (100 * x).toFixed(x < 0.001 ? 3 : 1)) + " %";

function parts(section) {
  const most = Math.max(...section.parts.map((part) => part.share));
  at("table").replaceChildren(
    ...section.parts.map((part) => {
      const details = make("details", "part");
      const summary = make("summary");
      const label = make("span", "label", part.part);
      label.title = part.about;
      const rail = make("span");
      const bar = make("div", "share");
      bar.style.width = (100 * part.share) / most + "%";
      rail.append(bar);
      summary.append(label, rail, number(part.total, part.formula), number(percent(part.share), part.total + " / " + section.total));
      const inside = make("div", "inside");
      const rows = part.rows.map((row) => [
        ["text mono", row.name], ["text quiet", row.where], ["num", row.shape, row.formula],
        ["num", row.each, row.formula], ["num", row.times > 1 ? "× " + row.times : "", "in " + row.times + " " + row.where], ["num", row.total, row.sum],
      ]);
      inside.append(table(["parameter", "", "shape", "each", "", "in all"], rows, { text: [0, 1] }));
      details.append(summary, inside);
      return details;
    }),
  );
  at("blocks").replaceChildren(
    table(["layers", "kind", "parameters each"], section.blocks.map((row) => [["text", row.where], ["text", equation(row.name)], ["num", row.each, row.formula]]), { text: [0, 1] }),
  );
}

function shapes(section) {
  at("shapes-caption").textContent = "embedding, one block of " + section.where + ", logits; " + section.note;
  const rows = section.rows.map((row) => [["text mono", row.tap], ["text quiet", row.dims.join(" ")], ["num", row.sizes.join(" × "), row.formula], ["num", row.elements, row.formula], ["num" + (row.square ? " quiet" : ""), row.bytes, row.weight], ["text quiet", row.meaning]]);
  const node = table(["tensor", "axes", "shape", "numbers", "bytes", "what it holds"], rows, { text: [0, 1, 5] });
  [...node.tBodies[0].rows].forEach((tr, i) => (tr.dataset.tap = section.rows[i].tap));
  at("shapes").replaceChildren(node);
}

function side(section, answer) {
  const names = section.models;
  const chips = names.map((name) => {
    const chip = make("span", "chip", name);
    const less = make("button", "", "×");
    less.type = "button";
    less.setAttribute("aria-label", "Leave out " + name);
    less.addEventListener("click", () => act.change({ compare: names.filter((n) => n !== name).join(",") }));
    chip.append(less);
    return chip;
  });
  const more = make("select");
  more.id = "add-model";
  more.setAttribute("aria-label", "Add a model");
  const pasted = answer.state.config ? ["pasted config"] : [];
  const others = [...pasted, ...new Set([...answer.models, ...answer.own])].filter((name) => !names.includes(name));
  more.append(new Option("add a model…", ""), ...others.map((name) => new Option(name, name)));
  more.addEventListener("change", () => more.value && act.change({ compare: [...names, more.value].join(",") }));
  more.disabled = names.length >= 6;
  at("compared").replaceChildren(...chips, more);
  const node = table(["", ...names], [], { text: [...names.keys()].map((i) => i + 1) });
  names.forEach((name, i) => (node.tHead.rows[0].cells[i + 1].title = section.origins[i]));
  let group = "";
  for (const line of section.lines) {
    if (line.group !== group) node.tBodies[0].append(heading((group = line.group), names.length + 1));
    const tr = make("tr", line.differs ? "differs" : "");
    tr.append(make("th", "", line.name));
    line.values.forEach((value, i) => {
      const td = make("td", "text");
      td.append(value === "–" ? make("span", "grey", "–") : number(value, line.sources[i]));
      tr.append(td);
    });
    node.tBodies[0].append(tr);
  }
  at("side").replaceChildren(node);
}

function heading(text, span) {
  const tr = make("tr", "group");
  const th = make("th", "text", text);
  th.colSpan = span;
  tr.append(th);
  return tr;
}

const STAGES = ["parameters", "active", "cache", "flops", "attention"];

function ladder(section) {
  at("ladder-caption").textContent = "one change a rung, all at " + section.size + "; under each value what the change did to it";
  const heads = ["change", "parameters", "met by a token", "KV cache, " + section.bits + " bits", "FLOPs a token", "attention’s share", "largest |logit|", "stream rms", "entropy"];
  const node = table(heads, [], { text: [0] });
  node.tHead.rows[0].cells[5].title = "of a block's parameters";
  for (let i = 6; i < 9; i++) node.tHead.rows[0].cells[i].title = "of the tiny twin of this rung, random weights by name";
  let above = "";
  for (const [i, rung] of section.rungs.entries()) {
    const goal = section.rungs.slice(i).find((next) => next.model)?.model ?? "";
    if (rung.below !== above && rung.below !== null) node.tBodies[0].append(heading("Llama 3 → " + goal, heads.length));
    above = rung.id;
    const tr = make("tr", "rung");
    tr.dataset.rung = rung.id;
    const change = make("td", "change");
    if (rung.model) change.append(make("span", "reached", rung.model));
    change.append(document.createTextNode(rung.change), make("span", "why", rung.why));
    tr.append(change);
    for (const name of STAGES) {
      const td = make("td", "num");
      td.append(number(rung[name].text, rung[name].exact), delta(rung[name]));
      tr.append(td);
    }
    for (const name of ["logit", "stream", "entropy"]) {
      const td = make("td", "num");
      td.dataset.twin = name;
      tr.append(td);
    }
    node.tBodies[0].append(tr);
  }
  at("ladder").replaceChildren(node);
}

function delta(one) {
  const node = one.delta ? number(one.delta, one.exact) : make("span");
  node.className = "delta " + (one.delta ? (one.up ? "up" : "down") : "");
  return node;
}

const OF_TWINS = {
  logit: "max |scale · q·k| over visible pairs, heads and layers of the tiny twin",
  stream: "√(mean x²) of the stream that leaves the tiny twin's last block",
  entropy: "−Σ p ln p of a row of the pattern, mean over rows and heads of the tiny twin's last block",
};

/** The numbers of the tiny twins, in the last columns of the ladder. */
export function drawTwins(twins) {
  for (const tr of at("ladder").querySelectorAll("tr[data-rung]")) {
    for (const td of tr.querySelectorAll("[data-twin]")) td.replaceChildren(number(twins[tr.dataset.rung]?.[td.dataset.twin] ?? "–", OF_TWINS[td.dataset.twin]));
  }
  at("twins-said").textContent = "last three columns: tiny twins of 4 layers on one short text, random weights by name, so gains are 1 and biases 0";
  at("bs").dataset.twins = "1";
}

function caches(section) {
  at("caches-caption").textContent = section.heads + "; " + section.bits + " bits a number; users: whole contexts that fit in 80 GB, weights elsewhere";
  const rows = section.rows.map((row) => {
    const bar = make("span", "bar");
    bar.style.width = Math.max(1, 160 * row.share) + "px";
    return [["text", row.name], ["num", row.per_token, row.each], ["num", row.cache, row.exact], ["text", bar], ["num", row.users, row.formula], ["text quiet", row.note]];
  });
  const node = table(["design", "a token more, " + section.bits + " bits", "whole context, " + section.bits + " bits", "", "users in 80 GB", "kept for a token and layer"], rows, { text: [0, 3, 5] });
  node.tBodies[0].lastElementChild.className = "own";
  at("caches").replaceChildren(node);
}

/** Formulas beside the number that is hovered, focused or tapped. */
export function wireTips(root, tip) {
  const show = (event) => {
    const from = event.target.closest?.("[data-formula]");
    if (!from) return (tip.hidden = true);
    tip.textContent = from.dataset.formula;
    tip.hidden = false;
    const box = from.getBoundingClientRect();
    const { offsetWidth: w, offsetHeight: h } = tip;
    tip.style.left = Math.max(12, Math.min(box.left, innerWidth - w - 12)) + "px";
    tip.style.top = (box.bottom + 8 + h > innerHeight ? box.top - h - 8 : box.bottom + 8) + "px";
  };
  for (const kind of ["pointerover", "focusin", "click"]) root.addEventListener(kind, show);
  root.addEventListener("focusout", () => (tip.hidden = true));
  addEventListener("scroll", () => (tip.hidden = true), { passive: true, capture: true });
  root.addEventListener("keydown", (event) => event.key === "Escape" && (tip.hidden = true));
}
