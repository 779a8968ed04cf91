// A slider over the stored steps of a run, with a play button: maps, patterns and the mark in the curves follow it.
const BEAT = 650; // ms a step while playing

/** One stepper a place of the page; `place` begins the names of its cards. */
export class Stepper {
  constructor(place, box, chosen) {
    this.place = place;
    this.slider = box.querySelector('input[type="range"]');
    this.output = box.querySelector("output");
    this.button = box.querySelector("button");
    this.chosen = chosen;
    this.steps = [];
    this.at = 0;
    this.heads = this.patterns = null;
    this.clock = 0;
    this.slider.addEventListener("input", () => {
      this.pause();
      this.show(Number(this.slider.value), true);
    });
    this.button.addEventListener("click", () => (this.clock ? this.pause() : this.play()));
  }

  /** Frames as Python stored them; null where this run has none. */
  async load(headsUrl, patternsUrl) {
    const [heads, patterns] = await Promise.all([headsUrl, patternsUrl].map(fetchFrames));
    this.heads = heads;
    this.patterns = patterns;
    this.steps = heads?.steps ?? [];
    this.slider.max = String(Math.max(0, this.steps.length - 1));
    this.slider.disabled = this.button.disabled = this.steps.length < 2;
  }

  /** The step nearest to one that is asked for; -1 the last. */
  find(step) {
    if (step < 0 || !this.steps.length) return this.steps.length - 1;
    return this.steps.reduce((best, s, i) => (Math.abs(s - step) < Math.abs(this.steps[best] - step) ? i : best), 0);
  }

  play() {
    if (this.at >= this.steps.length - 1) this.show(0, true);
    this.button.textContent = "Pause";
    this.clock = setInterval(() => {
      if (this.at >= this.steps.length - 1) return this.pause();
      this.show(this.at + 1, true);
    }, BEAT);
  }

  pause() {
    clearInterval(this.clock);
    this.clock = 0;
    this.button.textContent = "Play";
  }

  show(index, told = false) {
    if (!this.steps.length) return;
    this.at = Math.max(0, Math.min(index, this.steps.length - 1));
    const step = this.steps[this.at];
    this.slider.value = String(this.at);
    this.output.textContent = step.toLocaleString("en-US");
    this.slider.setAttribute("aria-valuetext", "step " + step);
    this.paintHeads();
    this.paintPatterns();
    this.mark(step);
    this.chosen?.(this, step, told);
  }

  paintHeads() {
    const gd = figure(`${this.place}-heads`);
    if (!gd || !this.heads) return;
    const sides = this.heads.heads;
    restyle(gd, { z: sides.map((side) => side.z[this.at]), text: sides.map((side) => side.text[this.at]) });
  }

  paintPatterns() {
    (this.patterns?.patterns ?? []).forEach((side, i) => {
      const gd = side && figure(`${this.place}-pattern-${i}`);
      if (!gd) return;
      side.bytes ??= Uint8Array.from(atob(side.data), (c) => c.charCodeAt(0));
      const { n, bytes } = side;
      const start = this.at * n * n;
      const rows = Array.from({ length: n }, (_, q) => Array.from({ length: n }, (_, k) => (k > q ? null : bytes[start + q * n + k] / 255)));
      restyle(gd, { z: [rows] }, [0]);
    });
  }

  /** A line at the step in every curve of this place. */
  mark(step) {
    for (const gd of document.querySelectorAll(`[data-card^="${this.place}-"] .gd`)) {
      if (!gd.layout?.shapes?.length || gd.layout.xaxis?.title?.text !== "step") continue;
      window.BlockscopePlotly.relayout(gd, { "shapes[0].x0": step, "shapes[0].x1": step, "shapes[0].visible": true });
    }
  }
}

function figure(card) {
  const gd = document.querySelector(`[data-card="${card}"] .gd`);
  return gd?._fullLayout && window.BlockscopePlotly ? gd : null;
}

function restyle(gd, values, traces) {
  window.BlockscopePlotly.restyle(gd, values, traces ?? values.z.map((_, i) => i));
}

function fetchFrames(url) {
  if (!url) return null;
  return fetch(new URL(url, document.baseURI)).then((r) => {
    if (!r.ok) throw new Error("these steps are no longer kept; reload the page");
    return r.json();
  });
}
