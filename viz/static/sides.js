// The cards of the sides, and the form that changes one of them.
const at = (id) => document.getElementById(id);
const LETTERS = ["a", "b", "c", "d"];
let opened = null; // the letter whose form is open
let told = null; // the newest answer
let state = {};
let parts = []; // [part, value] of the side in the form

const field = (letter, part) => (letter === "a" ? part : letter + "_" + part);

function make(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function showSides(sides, answer, now, change) {
  told = { ...answer, sides };
  state = now;
  const several = new Set(sides.map((side) => side.model)).size > 1;
  const cards = sides.map((side) => {
    const letter = side.letter.toLowerCase();
    const card = make("button", "side-card of-" + letter);
    card.type = "button";
    card.dataset.side = letter;
    card.title = "Change side " + side.letter;
    card.setAttribute("aria-expanded", String(opened === letter));
    const head = make("span", "head");
    head.append(make("strong", "", side.letter), document.createTextNode(side.title));
    card.append(head, make("span", "", (several ? side.model + " · " : "") + side.design));
    if (side.note) card.append(make("span", "counter", side.note));
    card.addEventListener("click", () => openEditor(opened === letter ? null : letter));
    return card;
  });
  if (sides.length && sides.length < 4) {
    const add = make("button", "add-side", "+ side");
    add.type = "button";
    add.title = "One more side, a copy of the last, to change";
    add.addEventListener("click", () => {
      const last = sides.at(-1);
      const letter = LETTERS[sides.length];
      opened = letter;
      change({ quick: "own", sides: sides.length + 1, ...fields(letter, last.model, last.change, last.layers, last.edit) });
    });
    cards.push(add);
  }
  at("sides").replaceChildren(...cards);
  openEditor(sides.some((side) => side.letter.toLowerCase() === opened) ? opened : null);
}

function fields(letter, model, change, layers, edit) {
  const text = change.map(([part, value]) => part + "=" + value).join(",");
  return { [field(letter, "model")]: model, [field(letter, "change")]: text, [field(letter, "layers")]: layers, [field(letter, "edit")]: edit };
}

function openEditor(letter) {
  opened = letter;
  for (const card of document.querySelectorAll(".side-card")) card.setAttribute("aria-expanded", String(card.dataset.side === letter));
  const form = at("editor");
  form.hidden = letter === null;
  if (letter === null) return;
  const side = told.sides.find((one) => one.letter.toLowerCase() === letter);
  form.className = "editor of-" + letter;
  at("editor-title").textContent = "Side " + side.letter;
  at("edit-model").replaceChildren(...told.models.map((name) => new Option(name, name)));
  at("edit-model").value = side.model;
  at("edit-part").replaceChildren(...told.menus.parts.map(([name, title]) => new Option(title, name)));
  at("edit-what").replaceChildren(new Option("nothing", ""), ...told.menus.edits.filter(([name]) => letter !== "a" || name !== "patch").map(([name, title]) => new Option(title, name)));
  at("edit-layers").value = side.layers;
  parts = side.change.map((pair) => [...pair]);
  const [what = "", layer = "0", index = "0", factor = "0"] = (side.edit || "").split(":");
  at("edit-what").value = what;
  at("edit-layer").value = what ? layer : String(state.layer ?? 0);
  at("edit-index").value = what ? index : String(state.head ?? 0);
  at("edit-factor").value = factor;
  at("edit-remove").hidden = letter === "a" || told.sides.length < 3;
  chips();
  values();
  where();
}

function where() {
  for (const label of document.querySelectorAll(".editor .where")) label.hidden = !at("edit-what").value;
}

function chips() {
  at("edit-chips").replaceChildren(
    ...parts.map(([part, value], i) => {
      const chip = make("button", "", part + " = " + value + " ×");
      chip.type = "button";
      chip.title = "Leave this change out";
      chip.addEventListener("click", () => {
        parts.splice(i, 1);
        chips();
      });
      return chip;
    }),
  );
}

function values() {
  const entry = told.menus.parts.find(([name]) => name === at("edit-part").value);
  const side = told.sides.find((one) => one.letter.toLowerCase() === opened);
  at("edit-values").replaceChildren(...entry[2].map((value) => new Option(value, value)));
  at("edit-value").value = "";
  at("edit-value").placeholder = side.parts[entry[0]] ?? "";
}

function take() {
  const value = at("edit-value").value.trim();
  if (!value) return;
  const part = at("edit-part").value;
  parts = [...parts.filter(([name]) => name !== part), [part, value]];
  at("edit-value").value = "";
  chips();
}

/** The form of one side: nothing runs before its button. */
export function wireEditor(change) {
  at("edit-part").addEventListener("change", values);
  at("edit-what").addEventListener("change", where);
  at("edit-add").addEventListener("click", take);
  at("edit-remove").addEventListener("click", () => {
    const letter = opened;
    const kept = told.sides.filter((one) => one.letter.toLowerCase() !== letter);
    opened = null;
    const all = kept.map((one, i) => fields(LETTERS[i], one.model, one.change, one.layers, one.edit));
    change(Object.assign({ quick: "own", sides: kept.length, against: "b" }, ...all));
  });
  at("editor").addEventListener("submit", (event) => {
    event.preventDefault();
    take();
    const what = at("edit-what").value;
    const leaf = what === "patch" ? ":" + state.tap : "";
    const index = what === "patch" ? "-1" : at("edit-index").value || "-1";
    const edit = what ? [what, at("edit-layer").value || "0", index, at("edit-factor").value || "0"].join(":") + leaf : "";
    const changed = fields(opened, at("edit-model").value, parts, at("edit-layers").value.trim(), edit);
    change({ quick: "own", sides: told.sides.length, ...changed });
  });
}
