// The layers at the foot: a bar per layer, and the counterfactual as a line. Plain SVG; the range input is its keyboard.
const SVG = "http://www.w3.org/2000/svg";
const high = () => (innerHeight < 800 ? 50 : 74); // of the plot, in pixels
const LEFT = 34;

function make(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (text !== undefined) node.textContent = text;
  return node;
}

function ticks(top) {
  const raw = top / 2.5;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
  const all = [];
  for (let value = 0; value <= top * 1.001; value += step) all.push(value);
  return all;
}

const word = (value) => (value === null ? "not a number" : value >= 1e5 ? value.toExponential(1) : String(Number(value.toPrecision(3))));

/** strip = {layers, peaks, label, other, other_label, kinds, kind, kind_at}; null stands for a value that is not a number.
 * There are fewer peaks than layers while the others still run, or where they were stopped. */
export function drawStrip(holder, legend, strip, layer, onPick) {
  const HIGH = high();
  const wide = Math.max(holder.clientWidth, 200);
  const values = [...strip.peaks, ...(strip.other ?? [])].filter((v) => v !== null);
  const top = Math.max(1e-9, ...values) * 1.08;
  const pitch = (wide - LEFT - 8) / strip.layers;
  const x = (i) => LEFT + pitch * (i + 0.5);
  const y = (v) => 8 + HIGH * (1 - v / top);
  const svg = make("svg", { width: wide, height: HIGH + 27, role: "img", "aria-label": "Largest attention logit per layer, " + strip.label });
  for (const value of ticks(top)) {
    svg.append(make("line", { class: "grid", x1: LEFT, x2: wide - 4, y1: y(value), y2: y(value) }));
    svg.append(make("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, word(value)));
  }
  const every = Math.max(1, Math.ceil(24 / pitch));
  for (let i = 0; i < strip.layers; i++) {
    const value = strip.peaks[i];
    const group = make("g", { class: "layer" + (i === layer ? " sel" : ""), "data-layer": i });
    group.append(make("title", {}, "layer " + i + ": " + (value === undefined ? "not run yet" : word(value)) + (strip.kinds[i] ? " · " + strip.kinds[i] : "")));
    group.append(make("rect", { class: "hit", x: LEFT + pitch * i, y: 0, width: pitch, height: HIGH + 26 }));
    const bar = Math.min(pitch * 0.66, 46);
    if (value === undefined) group.append(make("line", { class: "grid", x1: x(i) - bar / 2, x2: x(i) + bar / 2, y1: y(0), y2: y(0) }));
    else if (value === null) group.append(make("text", { class: "wrong", x: x(i), y: HIGH, "text-anchor": "middle" }, "⚠"));
    else group.append(make("rect", { class: "peak", x: x(i) - bar / 2, y: y(value), width: bar, height: Math.max(1, y(0) - y(value)) }));
    if (i % every === 0 || i === layer) group.append(make("text", { class: "tick", x: x(i), y: HIGH + 23, "text-anchor": "middle" }, i));
    if (strip.kind_at.includes(i)) group.append(make("rect", { class: "kind", x: x(i) - bar / 2, y: HIGH + 10, width: bar, height: 2.5 }));
    group.addEventListener("click", () => onPick(i));
    svg.append(group);
  }
  if (strip.other) {
    const line = strip.other.map((v, i) => (v === null ? null : x(i) + "," + y(v))).filter(Boolean);
    svg.append(make("polyline", { class: "other", points: line.join(" ") }));
    strip.other.forEach((v, i) => v !== null && svg.append(make("circle", { class: "other", cx: x(i), cy: y(v), r: 2.6 })));
  }
  holder.replaceChildren(svg);
  const entries = [["a", strip.label]];
  if (strip.other) entries.push(["b", strip.other_label]);
  if (strip.kind) entries.push(["kind", strip.kind]);
  legend.replaceChildren(
    ...entries.map(([kind, text]) => {
      const item = document.createElement("span");
      item.className = "key " + kind;
      item.textContent = text;
      return item;
    }),
  );
}
