// The cards of the sides, and the form that changes one of them.
import { at, make, notice, sentence } from "./frame.js";
import { chooser } from "./models.js";

const LETTERS = ["a", "b", "c", "d"];
let opened = null; // the letter whose form is open
let told = null; // the newest answer
let state = {};
let parts = []; // [part, value] of the side in the form
let edits = []; // its interventions, as a link carries them
const OTHER = "?"; // the choice that opens a field for any number

const field = (letter, part) => (letter === "a" ? part : letter + "_" + part);

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
  const text = change.map((pair) => pair.join("=")).join(",");
  return { [field(letter, "model")]: model, [field(letter, "change")]: text, [field(letter, "layers")]: layers, [field(letter, "edit")]: edit.join(",") };
}

const mine = () => told.sides.find((one) => one.letter.toLowerCase() === opened);
const part = () => mine().parts.find((one) => one.name === at("edit-part").value);

let models = null; // the chooser of the form

/** The menu of the form, in which a model that somebody typed stands too. */
function showModel(name) {
  const there = told.models.some(([, names]) => names.includes(name));
  models.fill(there ? told.models : [...told.models, ["typed", [name]]], name);
}

function openEditor(letter) {
  opened = letter;
  for (const card of document.querySelectorAll(".side-card")) card.setAttribute("aria-expanded", String(card.dataset.side === letter));
  const form = at("editor");
  form.hidden = letter === null;
  if (letter === null) return;
  const side = mine();
  form.className = "editor of-" + letter;
  at("editor-title").textContent = "Side " + side.letter;
  showModel(side.model);
  at("edit-layers").value = side.layers;
  parts = side.change.map((pair) => [...pair]);
  edits = [...side.edit];
  at("edit-part").replaceChildren(
    ...side.parts.map((one) => {
      const option = new Option(one.title + " (" + one.built + ")", one.name);
      option.disabled = Boolean(one.why);
      option.title = one.why;
      return option;
    }),
  );
  at("edit-part").value = side.parts.find((one) => !one.why)?.name ?? "";
  const reasons = new Map();
  for (const one of side.parts) if (one.why) reasons.set(one.why, [...(reasons.get(one.why) ?? []), one.title]);
  at("edit-not").textContent = [...reasons].map(([why, titles]) => "Not here: " + titles.join(", ") + ", since " + why + ".").join(" ");
  at("edit-what").replaceChildren(new Option("nothing", ""), ...told.menus.edits.filter(([name]) => letter !== "a" || name !== "patch").map(([name, title]) => new Option(title, name)));
  at("edit-leaf").replaceChildren(...told.taps.map((tap) => new Option(tap, tap)));
  at("edit-leaf").value = told.taps.includes(state.tap) ? state.tap : "hook_attn_out";
  at("edit-layer").value = String(state.layer ?? 0);
  at("edit-factor").value = "0";
  at("edit-remove").hidden = letter === "a" || told.sides.length < 3;
  chips();
  choices();
  where();
}

/** The fields that the chosen intervention needs. */
function where() {
  const what = at("edit-what").value;
  const kind = told.menus.edits.find(([name]) => name === what);
  for (const one of document.querySelectorAll(".editor .where")) one.hidden = !what || (one.classList.contains("patch") && what !== "patch");
  if (!kind) return;
  at("edit-axis").textContent = kind[2];
  at("edit-index").value = what === "patch" || what === "gate" ? "-1" : kind[2] === "head" ? String(state.head ?? 0) : "0";
}

function chip(words, title, drop) {
  const button = make("button", "", words + " ×");
  button.type = "button";
  button.title = title;
  button.addEventListener("click", () => {
    drop();
    chips();
    at("edit-add").focus();
  });
  return button;
}

function chips() {
  const known = new Map(mine().edit.map((text, i) => [text, mine().edits[i]]));
  at("edit-chips").replaceChildren(...parts.map(([name, value], i) => chip(name + " = " + value, "Leave this change out", () => parts.splice(i, 1))));
  at("edit-edits").replaceChildren(...edits.map((text, i) => chip(known.get(text) ?? text, "Leave this intervention out", () => edits.splice(i, 1))));
}

/** What the chosen part can become. */
function choices() {
  const one = part();
  at("edit-add").disabled = !one;
  if (!one) return;
  const options = one.choices.map(([value, word]) => new Option(word, value));
  if (one.free) options.push(new Option("another number …", OTHER));
  at("edit-choice").replaceChildren(...options);
  at("edit-value").value = "";
  other();
}

function other() {
  at("edit-number").hidden = at("edit-choice").value !== OTHER;
}

/** Take over the change that the fields spell; "another number" without a number is none. */
function take() {
  const choice = at("edit-choice").value;
  const value = choice === OTHER ? at("edit-value").value.trim() : choice;
  if (!value) return;
  const name = at("edit-part").value;
  parts = [...parts.filter(([one]) => one !== name), [name, value]];
  at("edit-value").value = "";
  chips();
}

function intervene() {
  const what = at("edit-what").value;
  if (!what) return;
  const text = [what, at("edit-layer").value || "0", at("edit-index").value || "-1", at("edit-factor").value || "0"].join(":") + (what === "patch" ? ":" + at("edit-leaf").value : "");
  edits = [...edits.filter((one) => one !== text), text];
  at("edit-what").value = "";
  chips();
  where();
}

/** The form of one side: nothing runs before its button. A change that is spelled but not added yet is taken along. */
export function wireEditor(change) {
  let touched = false; // whether the fields of a part were used since the last change was taken
  const touch = () => (touched = true);
  models = chooser(at("edit-model"), { choose: showModel, say: (text) => notice(sentence(text), true) });
  at("edit-part").addEventListener("change", () => (touch(), choices()));
  at("edit-choice").addEventListener("change", () => (touch(), other()));
  at("edit-value").addEventListener("input", touch);
  at("edit-what").addEventListener("change", where);
  at("edit-add").addEventListener("click", () => (take(), (touched = false)));
  at("edit-more").addEventListener("click", intervene);
  at("edit-close").addEventListener("click", () => close());
  at("editor").addEventListener("keydown", (event) => event.key === "Escape" && close());
  at("edit-remove").addEventListener("click", () => {
    const letter = opened;
    const kept = told.sides.filter((one) => one.letter.toLowerCase() !== letter);
    opened = null;
    const all = kept.map((one, i) => fields(LETTERS[i], one.model, one.change, one.layers, one.edit));
    change(Object.assign({ quick: "own", sides: kept.length, against: "b" }, ...all));
  });
  at("editor").addEventListener("submit", (event) => {
    event.preventDefault();
    if (touched) take();
    touched = false;
    intervene();
    const changed = fields(opened, at("edit-model").value, parts, at("edit-layers").value.trim(), edits);
    change({ quick: "own", sides: told.sides.length, ...changed });
  });
}

function close() {
  const letter = opened;
  openEditor(null);
  document.querySelector('.side-card[data-side="' + letter + '"]')?.focus();
}
