// "Change a part": one row for each part that the model knows how to change, and the line that says what was changed.
import { at, element as make } from "./frame.js";

let send = () => {};
let parts = [];
let drawn = "";

/** `change(fields)` sends a change of the view. The panel is closed until its button is pressed. */
export function wireSurgery(change) {
  send = change;
  const button = at("surgery-open");
  button.addEventListener("click", () => toggle(at("surgery").hidden));
  at("surgery-close").addEventListener("click", () => toggle(false));
  at("surgery").addEventListener("keydown", (event) => event.key === "Escape" && toggle(false));
  for (const reset of document.querySelectorAll("[data-reset]")) {
    reset.addEventListener("click", () => send({ change: "", qk: "as-built" }));
  }
}

function toggle(open) {
  at("surgery").hidden = !open;
  at("surgery-open").setAttribute("aria-expanded", String(open));
  if (open) {
    at("surgery").parentElement.scrollTop = 0;
    if (getComputedStyle(at("surgery")).position === "fixed") document.querySelector(".main-head").scrollIntoView(); // the picture above the sheet
    at("surgery").querySelector("select:not(:disabled)")?.focus({ preventScroll: true });
  } else at("surgery-open").focus();
}

/** Fill the panel in; `differs` is "" for the model as loaded. */
export function showSurgery(told, differs) {
  parts = told;
  const changed = parts.filter((part) => part.value).length;
  at("surgery-open").textContent = changed ? "Change a part · " + changed : "Change a part";
  at("surgery-open").classList.toggle("on", changed > 0);
  at("differs").hidden = !differs;
  at("differs").firstElementChild.textContent = at("differs").title = differs;
  for (const reset of document.querySelectorAll("[data-reset]")) reset.disabled = changed === 0;
  const key = JSON.stringify(parts.map((part) => [part.name, part.built, part.choices, part.why]));
  if (key !== drawn) {
    at("parts").replaceChildren(...parts.filter((part) => !part.why).map(row));
    at("parts-not").replaceChildren(...refusals());
    drawn = key;
  }
  for (const part of parts) if (!part.why) mark(part);
}

const OTHER = "?"; // the entry of a menu that opens a field for any number

function row(part) {
  const select = make("select", { id: "part-" + part.name });
  select.append(new Option("as built (" + part.built + ")", ""), ...part.choices.map(([value, word]) => new Option(word, value)));
  const cell = make("span", { className: "value" }, select);
  if (part.free) {
    select.append(new Option("another number …", OTHER));
    const number = make("input", { type: "text", inputMode: "decimal", hidden: true, maxLength: 20, placeholder: "number" });
    number.setAttribute("aria-label", part.title + ", any number");
    number.addEventListener("change", () => number.value.trim() && put(part.name, number.value.trim()));
    number.addEventListener("keydown", (event) => event.key === "Enter" && number.blur());
    cell.append(number);
  }
  select.addEventListener("change", () => {
    if (select.value !== OTHER) return put(part.name, select.value);
    const number = cell.querySelector("input");
    number.hidden = false;
    number.focus();
  });
  return make("div", { className: "part" }, make("label", { htmlFor: select.id, textContent: part.title }), cell);
}

function mark(part) {
  const select = at("part-" + part.name);
  const number = select.parentElement.querySelector("input");
  const known = part.value === "" || part.choices.some(([value]) => value === part.value);
  select.value = known ? part.value : OTHER;
  select.closest(".part").classList.toggle("changed", part.value !== "");
  if (number) {
    number.hidden = known;
    number.value = known ? "" : part.value;
  }
}

/** What this model has no place for, each reason once. */
function refusals() {
  const reasons = new Map();
  for (const part of parts) if (part.why) reasons.set(part.why, [...(reasons.get(part.why) ?? []), part.title]);
  return [...reasons].map(([why, titles]) => make("p", { className: "grey" }, make("b", { textContent: titles.join(", ") }), ": " + why + "."));
}

function put(name, value) {
  if (name === "qk_norm") return send({ qk: value || "as-built" }); // it has a field of its own, beside the picture
  const values = Object.fromEntries(parts.filter((part) => part.value && part.name !== "qk_norm").map((part) => [part.name, part.value]));
  values[name] = value;
  const kept = Object.entries(values).filter(([, v]) => v !== "");
  send({ change: kept.map((pair) => pair.join("=")).sort().join(",") });
}
