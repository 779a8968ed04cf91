// Without training, a real checkpoint, and records that somebody brings.
import { showCards } from "./charts.js";
import { drawFiles, nextNumber, openedNumber } from "./growth-live.js";
import { Stepper } from "./growth-steps.js";
import { at, make, notice, scheme } from "./frame.js";
import { change, keys, note, send, shownFiles, showFiles, state, table } from "./growth.js";

const LARGEST_TEXT = 1_000_000;
const LARGEST_RECORD = 16 << 20;
let offered = null; // what may be surveyed
let scale = null; // the measured factors
let asked = 0;
let waiting = ""; // the job that the app works on
let measured = { untrained: "", survey: "" }; // theme under which each was last drawn
let stepper = null;
let given = ""; // what the page itself last put into the text box

export async function drawMore(sections, now) {
  if (sections.checkpoints) offered = sections.checkpoints;
  drawModels(now);
  const box = at("survey-text");
  if (box.value === given) box.value = given = now.prompt;
  if (!at("seen").options.length) at("seen").replaceChildren(...offered.seen.map(([value, label]) => new Option(label, value)));
  at("seen").value = now.seen;
  for (const input of at("untrained").querySelectorAll("input")) input.checked = input.value === now.untrained;
  for (const job of ["untrained", "survey"]) if (measured[job] && measured[job] !== scheme()) measure(job);
  const { opened } = sections;
  if (!opened) return;
  at("opened").hidden = !opened.heads;
  if (!opened.heads) return;
  at("opened-about").textContent = opened.about.join("  |  ");
  keys(at("opened-keys"), opened.names);
  if (opened.drawn) at("opened-keys").append(make("span", "grey", opened.drawn));
  if (opened.differs.length) at("opened-keys").append(make("span", "grey", "they differ in " + opened.differs.slice(0, 4).join(" · ")));
  await drawFiles("opened", opened, stepper);
}

function chosenModels(now) {
  const others = String(now.models).split(",").filter((name) => offered.models.includes(name));
  if (!now.model && others.length) return others; // directories of steps alone
  const first = offered.models.includes(now.model) || String(now.model).startsWith("live-") ? now.model : offered.models[0];
  return [...new Set([first, ...others])];
}

/** The shelf as chips: one click joins a model to the chart or takes it out. */
function drawModels(now) {
  const chosen = chosenModels(now);
  const all = [...offered.models, ...chosen.filter((name) => !offered.models.includes(name))];
  at("survey-models").replaceChildren(
    ...all.map((name) => {
      const button = make("button", "pill", name);
      button.type = "button";
      const on = chosen.includes(name);
      button.setAttribute("aria-pressed", String(on));
      button.addEventListener("click", () => {
        const next = on ? chosen.filter((other) => other !== name) : [...chosen, name];
        const first = next.find((other) => !other.endsWith(": training steps")) ?? ""; // other pages open one model
        if (next.length) change({ model: first, models: next.filter((other) => other !== first).join(",") }, "replace");
      });
      return button;
    }),
  );
}

function measure(job) {
  if (waiting) send("measure", "halt", {});
  waiting = job;
  asked += 1;
  at(`${job}-said`).textContent = "asking…";
  at("bs").dataset.job = "";
  send("measure", "measure", { token: asked, job, scheme: scheme(), state: { ...state } });
}

export function hearJobs(answer) {
  if (!answer || answer.token !== asked) return;
  const said = at(`${answer.job}-said`);
  if (!said) return;
  if (answer.kind === "progress") return (said.textContent = answer.what + (answer.total ? ` · ${answer.done} of ${answer.total}` : ""));
  waiting = "";
  if (answer.kind === "error") {
    at("bs").dataset.job = "error";
    return (said.textContent = answer.sentence);
  }
  measured[answer.job] = scheme();
  said.textContent = "";
  (answer.kind === "untrained" ? drawUntrained : drawSurvey)(answer).then(() => (at("bs").dataset.job = answer.kind));
}

async function drawUntrained(answer) {
  at("untrained-label").textContent = answer.label;
  for (const id of ["cards-untrained", "untrained-label", "factor-said"]) at(id).hidden = false;
  const mine = asked;
  await showCards(at("cards-untrained"), answer.cards, { onPick: () => {}, current: () => asked === mine });
  scale = answer.factors ? answer : null;
  at("factor-box").hidden = !scale;
  at("factor-said").textContent = "";
  if (!scale) return;
  at("factor").max = String(scale.factors.length - 1);
  const one = scale.factors.indexOf(1);
  const wanted = Number(state.factor ?? 100);
  showFactor(wanted < scale.factors.length ? wanted : Math.max(0, one), false);
}

function showFactor(index, moved) {
  const s = scale.factors[index];
  at("factor").value = String(index);
  at("factor").setAttribute("aria-valuetext", "s = " + s);
  at("factor-now").textContent = s.toLocaleString("en-US");
  at("factor-said").textContent = scale.told[index].join(" · ");
  for (const gd of document.querySelectorAll("#cards-untrained .gd")) {
    if (gd._fullLayout) window.BlockscopePlotly.relayout(gd, { "shapes[0].x0": s, "shapes[0].x1": s });
  }
  if (moved) note({ factor: s === 1 ? 100 : index }, { factor: 100 });
}

async function drawSurvey(answer) {
  const mine = asked;
  await showCards(at("cards-survey"), answer.cards, { onPick: () => {}, current: () => asked === mine });
  at("survey-table").hidden = false;
  keys(at("survey-keys"), answer.keys);
  at("survey-table").replaceChildren(table(answer.table));
  at("survey-said").textContent = [answer.about, ...answer.notes].filter(Boolean).join(" · ");
}

async function readRecord(file) {
  if (!/\.(safetensors|csv)$/i.test(file.name)) return tell(`${file.name} is not a record: those are .safetensors or .csv files.`);
  if (file.size > LARGEST_RECORD) return tell(`${file.name} has ${file.size.toLocaleString("en-US")} bytes; a record is far smaller.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  openedNumber.value = nextNumber();
  tell("reading " + file.name + "…");
  const answered = new Promise((done) => at("s-open").addEventListener("opened", (event) => done(event.detail), { once: true }));
  send("control", "open", { n: openedNumber.value, name: file.name, data: btoa(text) });
  const answer = await answered;
  send("control", "control", {}); // the bus holds the file no longer
  if (answer.kind !== "opened") return tell(answer.sentence);
  tell("");
  showFiles("opened", [...shownFiles("opened"), answer.key].slice(-2));
}

const tell = (text) => (at("open-said").textContent = text);

async function readRecords(list) {
  for (const file of [...list].slice(0, 2)) await readRecord(file);
}

export function wireMore() {
  stepper = new Stepper("opened", document.querySelector('[data-stepper="opened"]'));
  at("untrained").addEventListener("change", (event) => {
    change({ untrained: event.target.value }, "replace");
    // what was measured belongs to another choice
    for (const id of ["cards-untrained", "untrained-label", "factor-said", "factor-box"]) at(id).hidden = true;
    measure("untrained");
  });
  at("untrained-go").addEventListener("click", () => measure("untrained"));
  at("factor").addEventListener("input", () => showFactor(Number(at("factor").value), true));
  at("survey-form").addEventListener("submit", (event) => {
    event.preventDefault();
    given = at("survey-text").value;
    change({ prompt: given }, "replace");
    measure("survey");
  });
  at("seen").addEventListener("change", (event) => {
    change({ seen: event.target.value }, "replace");
    if (measured.survey) measure("survey");
  });
  at("survey-file").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    event.target.value = "";
    if (!file) return;
    if (file.size > LARGEST_TEXT) return notice(`This file has ${file.size.toLocaleString("en-US")} bytes; at most ${LARGEST_TEXT.toLocaleString("en-US")} are read.`, true);
    at("survey-text").value = await file.text();
    at("survey-form").requestSubmit();
  });
  at("record-file").addEventListener("change", async (event) => {
    await readRecords(event.target.files);
    event.target.value = "";
  });
  const drop = at("drop");
  for (const kind of ["dragover", "drop"]) drop.addEventListener(kind, (event) => event.preventDefault());
  drop.addEventListener("dragover", () => drop.classList.add("over"));
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => readRecords(event.dataTransfer.files));
}
