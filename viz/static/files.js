// The Files panel: findings, tensors, settings and files of a model, open or refused. All words from outside go through textContent.
import { at, element as make } from "./frame.js";

let ask = () => {};
let wanted = null; // the model whose files are asked for
let busy = false; // whether its numbers are being read
let shown = null; // its last answer

/** `trigger(event, model)` reaches Python: "files" reads the headers, "examine" every number, "halt" stops that. */
export function wireFiles(trigger) {
  ask = trigger;
  at("files-open").addEventListener("click", () => openFiles(at("model").value));
  at("files-close").addEventListener("click", () => at("files").close());
  at("files").addEventListener("click", (event) => event.target === at("files") && at("files").close());
  at("files").addEventListener("close", () => {
    stop();
    wanted = null;
  });
}

/** Opens the panel for a model, which need not be the one on the page. */
export function openFiles(model) {
  wanted = model;
  shown = null;
  at("files-name").textContent = model;
  say("reading the headers …");
  at("files-body").replaceChildren();
  if (!at("files").open) at("files").showModal();
  ask("files", model);
}

function stop() {
  if (busy) ask("halt", wanted);
  busy = false;
}

function say(text, wrong = false) {
  at("files-said").textContent = text;
  at("files-said").classList.toggle("wrong", wrong);
}

/** An answer of kind "files", "files-progress" or "files-error". */
export function showFiles(answer) {
  if (!at("files").open || answer.name !== wanted) return;
  if (answer.kind === "files-progress") return busy && showProgress(answer);
  busy = false;
  if (answer.kind === "files-error") {
    say(answer.sentence, true);
    return shown && draw(shown);
  }
  draw(answer.files);
}

function draw(told) {
  if (told !== shown) say(told.summary, !told.agrees);
  shown = told;
  at("files-body").replaceChildren(
    findings(told),
    section("Tensors", told.count, tensors(told)),
    section("Settings", told.fields.length, table("settings", ["setting", "value", "", "from"], told.fields)),
    section("Files", told.files.length, table("sizes", ["file", "size"], told.files)),
  );
}

const MARKS = { refused: "✗", warning: "!", note: "–", holds: "✓" };

function findings(told) {
  const list = make("ul", { className: "findings" });
  const line = (level, ...words) => {
    const mark = make("b", { textContent: MARKS[level] });
    mark.setAttribute("aria-label", level);
    list.append(make("li", { className: level }, mark, make("span", {}, ...words)));
  };
  const about = (check) => (check ? [make("em", { textContent: check }), " "] : []);
  for (const [level, check, sentence] of told.findings) if (level !== "note") line(level, ...about(check), sentence);
  const made = told.checks.filter(([checked]) => checked).length;
  const fine = !told.findings.some(([level]) => level !== "note");
  if (fine && made) line("holds", `nothing to warn of in ${made} checks of ${told.whole ? "headers, settings and every number" : "headers and settings"}`);
  for (const [level, check, sentence] of told.findings) if (level === "note") line(level, ...about(check), sentence);
  return make("section", { className: "first" }, list, ...(told.reads ? [reading(told)] : []), ...(told.checks.length ? [checks(told.checks)] : []));
}

/** The button that has every number read, and how far that is. */
function reading(told) {
  const button = make("button", { type: "button", className: "pill", id: "files-examine", textContent: told.whole ? "Check again" : "Check every number" });
  const cancel = make("button", { type: "button", className: "pill", id: "files-cancel", textContent: "Cancel", hidden: true });
  const words = make("span", { className: "grey", id: "files-done", textContent: told.whole ? "every number was read" : `reads ${told.reads} once: NaN, zeros, copies, gains, order of rows` });
  words.setAttribute("role", "status");
  const bar = make("div", { className: "bar", id: "files-bar", hidden: true }, make("i"));
  button.addEventListener("click", () => {
    busy = true;
    button.hidden = true;
    cancel.hidden = bar.hidden = false;
    words.textContent = "waiting for its turn …";
    cancel.focus();
    ask("examine", wanted);
  });
  cancel.addEventListener("click", () => {
    stop();
    say(told.summary, !told.agrees);
    draw(told);
    at("files-done").textContent = "stopped: nothing was found out";
    at("files-examine").focus();
  });
  return make("div", { className: "reading" }, button, cancel, words, bar);
}

function showProgress({ done, total, what }) {
  const share = total ? done / total : 0;
  at("files-bar").firstChild.style.width = 100 * share + "%";
  at("files-done").textContent = (total ? Math.floor(100 * share) + " % · " : "") + what;
}

function checks(all) {
  const rows = all.map(([checked, name, about]) => make("li", { className: checked ? "" : "not" }, make("b", { textContent: checked ? "✓" : "?" }), make("span", {}, make("em", { textContent: name }), " ", (checked ? "" : "not checked: ") + about)));
  return fold("What was checked", all.length, false, make("ul", { className: "findings checks" }, ...rows));
}

function tensors(told) {
  const filter = make("input", { type: "search", placeholder: "part of a name", className: "filter" });
  filter.setAttribute("aria-label", "Show tensors whose name holds");
  const several = new Set(told.tensors.map((row) => row[3])).size > 1;
  const unread = told.tensors.some((row) => !row[4]);
  const rows = told.tensors.map(([name, shape, dtype, file, read]) => [name, shape.length ? shape.join(" × ") : "one number", dtype, ...(several ? [file] : []), ...(unread ? [read ? "" : "not read"] : [])]);
  const body = table("tensors", ["tensor", "shape", "stored as", ...(several ? ["file"] : []), ...(unread ? [""] : [])], rows);
  const found = make("span", { className: "grey" });
  found.setAttribute("role", "status");
  const cut = told.count > rows.length ? `the first ${rows.length.toLocaleString("en")} of ${told.count.toLocaleString("en")} are listed` : "";
  found.textContent = cut;
  filter.addEventListener("input", () => {
    let seen = 0;
    for (const row of body.querySelectorAll("tbody tr")) seen += !(row.hidden = !row.firstChild.textContent.includes(filter.value));
    found.textContent = filter.value ? `${seen} of ${rows.length}` : cut;
  });
  return make("div", {}, make("div", { className: "filter-line" }, filter, found), body);
}

const section = (title, count, ...children) => make("section", {}, fold(title, count, title === "Tensors", ...children));

function fold(title, count, open, ...children) {
  return make("details", { open }, make("summary", {}, make("h3", { textContent: title }), make("span", { className: "grey", textContent: count.toLocaleString("en") })), ...children);
}

/** On a narrow screen a row is its first cell with the others, labelled, below it. */
function table(kind, head, rows) {
  const cells = (tag, row) => row.map((text) => Object.assign(make(tag, { textContent: text }), { title: tag === "td" && text.length > 40 ? text : "" }));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells("td", row))));
  return make("table", { className: kind }, make("thead", {}, make("tr", {}, ...cells("th", head))), body);
}
