// Beside the pictures of the Compare page: next tokens, the table, identities, the blocks. Outside words go through textContent.
import { at, make } from "./frame.js";

export function showNext(sides) {
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

/** A column a side. */
function across(told) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  for (const cell of told.columns) head.append(make("th", "", cell));
  const body = table.createTBody();
  for (const row of told.rows) {
    const tr = body.insertRow();
    row.forEach((cell, i) => tr.append(make(i ? "td" : "th", "", cell)));
  }
  return table;
}

/** Of three or four sides: under each quantity its values, as many beside each other as there is room for. */
function below(told) {
  const list = make("dl", "quantities");
  for (const [name, ...values] of told.rows) {
    const box = make("dd");
    values.forEach((value, i) => {
      const letter = told.columns[i + 1];
      const one = make("span", "of-" + letter.toLowerCase());
      one.append(make("b", "", letter), document.createTextNode(" " + value));
      box.append(one);
    });
    list.append(make("dt", "", name), box);
  }
  return list;
}

export function showTable(answer) {
  const table = answer.sides.length > 2 ? below(answer.table) : across(answer.table);
  const starts = answer.starts.map(([letter, tap]) => {
    const line = make("p", "starts");
    const name = make("code");
    for (const piece of tap.split(/(?<=[._])/)) name.append(piece, make("wbr")); // broken between words, if at all
    line.append(make("span", "", answer.starts.length > 1 ? letter + " first differs at" : "first differing tensor"), name);
    return line;
  });
  at("table").replaceChildren(table, ...starts);
}

export function showIdentities(identities) {
  at("identities").replaceChildren(
    ...identities.map((identity) => {
      const item = make("li", identity.holds ? "holds" : "broken");
      item.title = identity.note;
      item.append(make("span", "mark", identity.holds ? "✓" : "✗"), make("span", "name", identity.name), make("span", "value", identity.value));
      return item;
    }),
  );
}

/** With more than two sides: which of them is set against A in the drawing, the identities and the marked strip. */
export function showAgainst(sides, state, change) {
  const letter = state.against.toUpperCase();
  at("diagrams-title").textContent = "The blocks of A and " + letter + ", node by node";
  at("identities-title").textContent = sides.length > 2 ? "Identities of A and " + letter : "Identities";
  for (const holder of document.querySelectorAll("[data-against]")) {
    const focused = holder.contains(document.activeElement);
    holder.hidden = sides.length < 3;
    const set = make("fieldset", "segments");
    set.append(make("legend", "vh", "The side that stands beside A"));
    for (const side of sides.slice(1)) {
      const label = make("label");
      const input = make("input");
      Object.assign(input, { type: "radio", name: "against-" + holder.parentElement.id, value: side.letter.toLowerCase(), checked: side.letter === letter });
      input.addEventListener("change", () => change({ against: input.value }));
      label.append(input, make("span", "", side.letter));
      set.append(label);
    }
    holder.replaceChildren(make("span", "grey", "A against"), set);
    if (focused) set.querySelector(":checked")?.focus();
  }
}

export function showDiagrams(diagrams, state, change) {
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
        const title = node.querySelector("title");
        title.textContent += "\n" + told.said;
        if (!node.classList.contains("off")) node.querySelector(".rms").textContent = told.words;
        node.setAttribute("aria-label", node.querySelector(".label").textContent + ", " + told.said);
        const pick = () => (told.open || told.taps.length) && change({ tap: told.open || told.taps.at(-1) });
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
