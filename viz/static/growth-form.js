// The form of a live run: its size and numbers, and the two arms with their fixes.
import { at, make } from "./frame.js";
import { change } from "./growth.js";
import { drawTexts } from "./growth-text.js";

let form = null; // as Python last told it

/** Whether what is filled in can be trained. */
export const allowed = () => !form?.wrong;

/** `idle`: whether a run may be started. */
export function drawForm(told, now, idle) {
  form = told;
  const size = at("size");
  if (!size.options.length) size.replaceChildren(...told.sizes.map(([name, title]) => new Option(`${name}: ${title}`, name)));
  drawTexts(told);
  for (const side of ["a", "b"]) drawArm(side, told, now);
  for (const control of document.querySelectorAll("[data-live]")) {
    if (control !== document.activeElement || control.matches("select")) control.value = String(now[control.dataset.live]);
  }
  at("live-wrong").hidden = !told.wrong;
  at("live-wrong").textContent = told.wrong;
  at("train").disabled = !idle || !allowed();
  at("live-differs").replaceChildren(...told.differs.slice(0, 12).map((line) => make("li", "", line)), ...(told.differs.length > 12 ? [make("li", "grey", `and ${told.differs.length - 12} more`)] : []));
  for (const [i, side] of ["a", "b"].entries()) at(`arm-${side}`).querySelector(".counted").textContent = told.names[i];
}

function drawArm(side, told, now) {
  const box = at(`arm-${side}`);
  const fixes = String(now[`${side}_fixes`]).split(",").filter(Boolean);
  if (!box.querySelector("select")) {
    const arch = make("select");
    arch.dataset.arch = side;
    arch.setAttribute("aria-label", "Architecture");
    arch.append(new Option("Llama block of this size", ""), ...told.architectures.map((name) => new Option(name, name)));
    const norm = make("select");
    norm.dataset.norm = side;
    norm.setAttribute("aria-label", "QK-norm");
    const norms = told.fixes.filter(([name]) => name.startsWith("qk-norm"));
    norm.append(new Option("no QK-norm added", ""), ...norms.map(([name, title]) => new Option(title, name)));
    const rest = make("div", "fixes");
    for (const [name, title] of told.fixes.filter(([name]) => !name.startsWith("qk-norm"))) {
      const label = make("label", "check");
      const input = make("input");
      Object.assign(input, { type: "checkbox", value: name });
      input.dataset.fix = side;
      label.append(input, document.createTextNode(" " + title));
      rest.append(label);
    }
    const more = make("details");
    more.append(make("summary", "", "other fixes"), rest);
    box.append(arch, norm, more, make("p", "counted grey"));
  }
  box.querySelector("[data-arch]").value = now[`${side}_arch`];
  box.querySelector("[data-norm]").value = fixes.find((name) => name.startsWith("qk-norm")) ?? "";
  for (const input of box.querySelectorAll("[data-fix]")) input.checked = fixes.includes(input.value);
  if (fixes.some((name) => !name.startsWith("qk-norm"))) box.querySelector("details").open = true;
}

function armChanged(side) {
  const box = at(`arm-${side}`);
  const norm = box.querySelector("[data-norm]").value;
  const fixes = [...box.querySelectorAll("[data-fix]:checked")].map((input) => input.value);
  change({ [`${side}_arch`]: box.querySelector("[data-arch]").value, [`${side}_fixes`]: [norm, ...fixes].filter(Boolean).join(",") }, "replace");
}

export function wireForm() {
  at("live-form").addEventListener("change", (event) => {
    const { live, arch, norm, fix } = event.target.dataset;
    if (live) {
      const size = live === "size" ? form?.sizes.find(([name]) => name === event.target.value) : null;
      change({ [live]: event.target.value.trim(), ...(size ? { live_steps: size[2] } : {}) }, "replace");
    }
    const side = arch ?? norm ?? fix;
    if (side) armChanged(side);
  });
}
