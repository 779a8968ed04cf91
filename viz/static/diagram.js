// The block's drawing, standing and lying, with live numbers; every node is a button.
let drawn = null;

const LOW = -2; // the small bars: log10 of the largest |x|, from 0.01 to 10,000
const HIGH = 4;

/** Draw the block anew only if it is another one, then fill in its numbers and mark the selected node. */
export function showDiagram(holder, block, numbers, state, onPick) {
  if (drawn !== block.key) {
    holder.innerHTML = block.standing + block.lying; // made by Python from our own module names, escaped there
    drawn = block.key;
    for (const node of holder.querySelectorAll("[data-node]")) wireNode(holder, node, onPick);
  }
  for (const node of holder.querySelectorAll("[data-node]")) {
    fill(node, numbers[node.dataset.node]);
    mark(node, node.dataset.node === state.node);
  }
}

/** Mark a node at once, before Python has answered. */
export function markNode(holder, id) {
  for (const node of holder.querySelectorAll("[data-node]")) mark(node, node.dataset.node === id);
}

function mark(node, selected) {
  node.setAttribute("aria-pressed", String(selected));
  node.classList.toggle("sel", selected);
  if (selected && node.closest(".lying")) node.closest(".lying").parentElement.scrollTo?.({ left: node.getBBox().x - 60 });
}

function fill(node, told) {
  const label = node.querySelector(".label").textContent;
  const set = (part, text) => (node.querySelector("." + part).textContent = text);
  const bar = node.querySelector(".bar");
  node.classList.toggle("bad", Boolean(told && told.nan + told.inf));
  if (!told) {
    set("rms", "");
    set("max", "");
    bar.setAttribute("width", "0");
    return;
  }
  const wrong = [told.nan && told.nan.toLocaleString("en") + " NaN", told.inf && told.inf.toLocaleString("en") + " inf"].filter(Boolean).join(", ");
  const over = node.dataset.over ? ", over " + node.dataset.over : "";
  set("rms", "rms " + told.rms);
  set("max", wrong ? "⚠ " + (told.nan ? "NaN " + brief(told.nan) : "inf " + brief(told.inf)) : "max|x| " + told.max);
  const share = (Math.log10(Math.max(told.size, 1e-9)) - LOW) / (HIGH - LOW);
  bar.setAttribute("width", String(Math.min(1, Math.max(0, share)) * Number(bar.dataset.full)));
  node.setAttribute("aria-label", label + ", rms " + told.rms + ", largest absolute value " + told.max + over + (wrong ? ", warning: " + wrong : ""));
  const title = node.querySelector("title");
  title.dataset.meaning ??= title.textContent;
  title.textContent = label + ": " + title.dataset.meaning + "\n" + told.shape + "\nrms " + told.rms + ", max |x| " + told.max + over + (wrong ? "\n" + wrong : "");
}

/** A count in five characters: 17544 is 17.5k. The box has no room for more; the hover has all of it. */
function brief(n) {
  if (n < 1000) return String(n);
  const [size, unit] = n < 999_950 ? [n / 1e3, "k"] : n < 999_950_000 ? [n / 1e6, "M"] : [n / 1e9, "G"];
  return (size < 99.95 ? size.toFixed(1) : size.toFixed(0)) + unit;
}

function wireNode(holder, node, onPick) {
  const pick = () => onPick(node.dataset.node);
  node.addEventListener("click", pick);
  node.addEventListener("keydown", (event) => {
    const all = [...node.parentElement.querySelectorAll("[data-node]")];
    const at = all.indexOf(node);
    const next = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) all[Math.min(all.length - 1, Math.max(0, next))].focus();
    else if (event.key === "Enter" || event.key === " ") pick();
    else return;
    event.preventDefault();
  });
}
