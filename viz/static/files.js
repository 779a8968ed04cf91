// The Files panel: tensors, settings, files and findings of the chosen model. All words from outside go through textContent.
const at = (id) => document.getElementById(id);
let ask = () => {};
let wanted = null; // the model whose files are asked for
let busy = false;

/** `trigger(event)` reaches Python: "files" reads the headers, "examine" every number, "halt" stops that. */
export function wireFiles(trigger) {
  ask = trigger;
  at("files-open").addEventListener("click", () => {
    wanted = at("model").value;
    at("files-name").textContent = wanted;
    at("files-said").textContent = "reading the headers …";
    at("files-body").replaceChildren();
    at("files").showModal();
    ask("files");
  });
  at("files-close").addEventListener("click", () => at("files").close());
  at("files").addEventListener("click", (event) => event.target === at("files") && at("files").close());
  at("files").addEventListener("close", () => {
    if (busy) ask("halt");
    busy = false;
    wanted = null;
  });
}

/** An answer of kind "files", "files-progress" or "files-error". */
export function showFiles(answer) {
  if (!at("files").open || answer.name !== wanted) return;
  if (answer.kind === "files-progress") {
    const share = answer.total ? Math.floor((100 * answer.done) / answer.total) + " % · " : "";
    if (busy) at("files-said").textContent = share + answer.what;
    return;
  }
  busy = false;
  if (answer.kind === "files-error") return (at("files-said").textContent = answer.sentence);
  const told = answer.files;
  at("files-said").textContent = told.summary;
  at("files-said").classList.toggle("wrong", !told.agrees);
  at("files-body").replaceChildren(
    findings(answer.findings, told.notes),
    section("Tensors", told.count, tensors(told)),
    section("Settings", told.fields.length, table(["setting", "value", "", "from"], told.fields)),
    section("Files", told.files.length, table(["file", "size"], told.files)),
  );
}

function make(tag, fields, ...children) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(...children);
  return node;
}

function findings(found, notes) {
  const list = make("ul", { className: "findings" });
  const lines = found ?? notes.map((sentence) => ({ level: "note", check: "", sentence }));
  for (const { level, check, sentence } of lines) {
    const mark = make("b", { textContent: level === "warning" ? "!" : "–" });
    mark.setAttribute("aria-label", level);
    list.append(make("li", { className: level }, mark, make("span", { textContent: (check ? check + ": " : "") + sentence })));
  }
  if (found && !found.some((finding) => finding.level === "warning")) list.prepend(make("li", { className: "holds" }, make("b", { textContent: "✓" }), make("span", { textContent: "nothing to warn of" })));
  const button = make("button", { type: "button", className: "pill", textContent: found ? "Check again" : "Check every number" });
  button.title = "Reads all weights once: NaN, zeros, duplicates, gains, and whether rows lie in order";
  button.addEventListener("click", () => {
    busy = true;
    button.disabled = true;
    at("files-said").textContent = "reading …";
    ask("examine");
  });
  return make("section", {}, make("h3", { textContent: "Findings" }), list, button);
}

function tensors(told) {
  const filter = make("input", { type: "search", placeholder: "part of a name", className: "filter" });
  filter.setAttribute("aria-label", "Show tensors whose name holds");
  const rows = told.tensors.map(([name, shape, dtype, file, read]) => [name, shape.join(" × "), dtype, file + (read ? "" : " · not read")]);
  const body = table(["tensor", "shape", "stored as", "file"], rows);
  filter.addEventListener("input", () => {
    for (const row of body.querySelectorAll("tbody tr")) row.hidden = !row.firstChild.textContent.includes(filter.value);
  });
  const more = told.count > rows.length ? [make("p", { className: "caption", textContent: "the first " + rows.length + " of " + told.count }) ] : [];
  return make("div", {}, filter, ...more, body);
}

function section(title, count, ...children) {
  const inside = make("details", { open: title === "Tensors" }, make("summary", {}, make("h3", { textContent: title }), make("span", { className: "grey", textContent: String(count) })), ...children);
  return make("section", {}, inside);
}

function table(head, rows) {
  const cells = (tag, row) => row.map((text) => make(tag, { textContent: text }));
  return make("div", { className: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...cells("th", head))), make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells("td", row))))));
}
