// Small pieces of the Anatomy page: an element, a table, a number with its formula, an equation from plain text.
import { make } from "./frame.js";

/** A number that shows where it comes from on hover, focus or tap. */
export function number(text, formula) {
  const node = make("span", "num", text);
  if (formula) {
    node.dataset.formula = formula;
    node.tabIndex = 0;
  }
  return node;
}

/** heads, rows of [class, text or node, formula?]; `text`: columns that read from the left. */
export function table(heads, rows, { text = [] } = {}) {
  const node = make("table");
  const tr = make("tr");
  heads.forEach((head, i) => tr.append(make("th", text.includes(i) ? "text" : "", head)));
  node.createTHead().append(tr);
  const body = node.createTBody();
  for (const row of rows) {
    const line = make("tr");
    for (const [kind, said, formula] of row) {
      const td = make("td", kind);
      if (said instanceof Node) td.append(said);
      else if (formula) td.append(number(said, formula));
      else td.textContent = said;
      line.append(td);
    }
    body.append(line);
  }
  return node;
}

/** "W_{q} x^{2}" -> sub- and superscripts; single letters are set in italics, as variables are. */
export function equation(text) {
  const node = make("span", "eq");
  parse(node, text, 0, false);
  return node;
}

function parse(into, text, from, inside) {
  let plain = "";
  const flush = () => {
    words(into, plain);
    plain = "";
  };
  let i = from;
  for (; i < text.length; i++) {
    if (inside && text[i] === "}") break;
    if ((text[i] === "_" || text[i] === "^") && text[i + 1] === "{") {
      flush();
      const part = make(text[i] === "_" ? "sub" : "sup");
      i = parse(part, text, i + 2, true);
      into.append(part);
    } else plain += text[i];
  }
  flush();
  return i;
}

function words(into, text) {
  for (const piece of text.split(/(\p{L}+)/u)) {
    if (!piece) continue;
    if (/^(\p{L}|ij)$/u.test(piece) && !/[ΣEW]/u.test(piece)) into.append(make("i", "", piece));
    else into.append(document.createTextNode(piece));
  }
}
