// The recorded runs: choosers that move between real runs, curves, maps and patterns at each stored step.
import { showCards } from "./charts.js";
import { Stepper } from "./growth-steps.js";
import { at, make, notice } from "./frame.js";
import { change, keys, latest, note, table } from "./growth.js";

let told = {}; // the newest of each section
let stepper = null;

export function cards(holder, list, onPick) {
  const mine = latest();
  return showCards(at(holder), list ?? [], { onPick: onPick ?? (() => {}), current: () => latest() === mine });
}

/** A cell of a map is layer * 1024 + head. */
export const pickCell = (field, value) => field === "cell" && change({ at_layer: Math.floor(value / 1024), at_head: value % 1024 });

export async function drawRecorded(sections, now) {
  told = { ...told, ...sections };
  const { choice } = told;
  at("choosers").hidden = Boolean(choice.empty);
  if (choice.empty) {
    at("story").replaceChildren(make("p", "", choice.empty));
    for (const node of document.querySelectorAll("#s-recorded > :is(h3, .stepper, .under, #sweep-caption)")) node.hidden = true;
    return;
  }
  if ("choice" in sections) drawChoice(choice);
  at("details").checked = Boolean(Number(now.details));
  at("quantity").value = now.quantity;
  at("worst").hidden = Number(now.at_head) < 0;
  const jobs = [];
  if ("panels" in sections) jobs.push(cards("cards-panels", sections.panels.cards));
  if ("choice" in sections || "panels" in sections) drawKeys(choice, told.panels.drawn);
  if ("details" in sections) jobs.push(cards("cards-details", sections.details.cards));
  if ("sweep" in sections) {
    const none = !sections.sweep.cards.length;
    for (const id of ["sweep-title", "sweep-caption", "cards-sweep"]) at(id).hidden = none;
    jobs.push(cards("cards-sweep", sections.sweep.cards, pickRate));
  }
  if ("heads" in sections) jobs.push(cards("cards-heads", sections.heads.cards, pickCell));
  if ("patterns" in sections) jobs.push(cards("cards-patterns", sections.patterns.cards));
  if ("heads" in sections || "patterns" in sections) jobs.push(stepper.load(told.heads.frames, told.patterns.frames).catch((error) => notice(error.message, true)));
  await Promise.all(jobs);
  drawCells(now);
  if (jobs.length) stepper.show(stepper.find(Number(now.run_step ?? -1)));
}

/** Every head by its layer, for those who do not click on the map. */
function drawCells(now) {
  const rows = stepper.heads?.heads[0]?.z[0] ?? [];
  const cells = rows.flatMap((row, layer) => row.map((_, head) => new Option(`layer ${layer} head ${head}`, String(layer * 1024 + head))));
  at("cell").replaceChildren(new Option("worst of each run", "-1"), ...cells);
  const chosen = Number(now.at_head) < 0 ? -1 : Number(now.at_layer) * 1024 + Number(now.at_head);
  at("cell").value = String(chosen);
  if (at("cell").selectedIndex < 0) at("cell").value = "-1";
}

function drawKeys(choice, drawn) {
  keys(at("keys"), choice.names);
  at("keys").append(make("span", "grey", drawn));
  if (choice.differs.length) at("keys").append(make("span", "grey", "the arms differ in " + choice.differs.join(" · ")));
}

/** In the summary a point is a run: its learning rate is chosen, in the group that has it. */
function pickRate(field, index) {
  const lr = told.sweep.lrs?.[index];
  if (field === "lr_index" && lr) change({ group: "sweep", lr, run_seed: "" });
}

function drawChoice(choice) {
  at("story").replaceChildren(...choice.story.map((text) => make("p", "", text)));
  const fieldset = at("groups");
  fieldset.replaceChildren(
    fieldset.firstElementChild,
    ...choice.groups.map(([value, title]) => {
      const label = make("label");
      const input = make("input");
      Object.assign(input, { type: "radio", name: "group", value, checked: value === choice.group });
      input.addEventListener("change", () => change({ group: value, lr: "", fix: "", run_seed: "" }));
      label.append(input, make("span", "", title));
      return label;
    }),
  );
  at("lr-box").hidden = choice.lrs.length < 2;
  at("lr").max = String(choice.lrs.length - 1);
  at("lr").value = String(choice.lrs.indexOf(choice.lr));
  at("lr-now").textContent = choice.lr;
  at("lr").setAttribute("aria-valuetext", "learning rate " + choice.lr);
  at("fix-box").hidden = choice.fixes.length < 2;
  at("fix").replaceChildren(...choice.fixes.map(([value, label]) => new Option(label, value)));
  at("fix").value = choice.fix;
  at("seed-box").hidden = choice.seeds.length < 2;
  at("seed").replaceChildren(...choice.seeds.map((seed) => new Option(seed === "all" ? "all " + (choice.seeds.length - 1) : seed, seed)));
  at("seed").value = choice.seed;
  at("about").textContent = choice.about.join("  |  ");
  at("quantity").replaceChildren(...choice.quantities.map(([value, label]) => new Option(label, value)));
  at("fixes-table").hidden = !choice.table;
  if (!choice.table) return;
  const node = table(choice.table, (i) => change({ fix: choice.table.arms[i] === "off" ? "" : choice.table.arms[i] }));
  [...node.tBodies[0].rows].forEach((row, i) => row.classList.toggle("chosen", choice.table.arms[i] === choice.fix));
  at("fixes-table").replaceChildren(node);
}

export function wireRecorded() {
  const box = document.querySelector("#s-recorded .stepper");
  stepper = new Stepper("growth", box, (self, step, moved) => {
    const names = self.heads?.names ?? [];
    const most = self.heads?.heads.map((side, i) => names[i] + " " + side.most[self.at]) ?? [];
    const what = at("quantity").selectedOptions[0]?.textContent ?? "";
    at("step-said").textContent = most.length ? "Step " + step.toLocaleString("en-US") + " · " + what.charAt(0).toLowerCase() + what.slice(1) + ": " + most.join(" · ") : "";
    if (moved) note({ run_step: self.at === self.steps.length - 1 ? -1 : step }, { run_step: -1 });
  });
  at("lr").addEventListener("input", () => (at("lr-now").textContent = told.choice.lrs[Number(at("lr").value)]));
  at("lr").addEventListener("change", () => change({ lr: told.choice.lrs[Number(at("lr").value)] }));
  at("fix").addEventListener("change", (event) => change({ fix: event.target.value }));
  at("seed").addEventListener("change", (event) => change({ run_seed: event.target.value }));
  at("details").addEventListener("change", (event) => change({ details: Number(event.target.checked) }, "replace"));
  at("quantity").addEventListener("change", (event) => change({ quantity: event.target.value }, "replace"));
  at("cell").addEventListener("change", (event) => (event.target.value === "-1" ? change({ at_layer: -1, at_head: -1 }) : pickCell("cell", Number(event.target.value))));
  at("worst").addEventListener("click", () => change({ at_layer: -1, at_head: -1 }));
}
