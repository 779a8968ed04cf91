// What stands around every page: notice, theme, link, address, contents and start. Words from outside go through textContent.
import { loadPlotly } from "./charts.js";

const SYSTEM = matchMedia("(prefers-color-scheme: dark)");

export const at = (id) => document.getElementById(id);
export const scheme = () => (document.body.classList.contains("dark") ? "dark" : "light");
export const sentence = (note) => note.charAt(0).toUpperCase() + note.slice(1).replace(/[.\s]+$/, "") + ".";

export function make(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** An element with properties and children. */
export function element(tag, fields, ...children) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(...children);
  return node;
}

export function notice(text, wrong) {
  const box = at("notice");
  box.querySelector("span").textContent = text;
  box.classList.toggle("wrong", wrong);
  box.hidden = false;
}

export const clearNotice = () => (at("notice").hidden = true);

/** What an answer has to say of its view, as sentences; nothing to say clears what was said of the last one. */
export const tell = (notes) => (notes?.length ? notice(notes.map(sentence).join(" "), false) : clearNotice());

/** theme: "light", "dark" or "auto", which is the system's. */
export function paintTheme(theme) {
  document.body.classList.toggle("dark", theme && theme !== "auto" ? theme === "dark" : SYSTEM.matches);
}

/** Put a view into the address bar, as a step of the history (`step` "push") or in place of the last one. */
export function remember(address, step) {
  const full = location.pathname + address;
  if (full === location.pathname + location.search + location.hash) return;
  history[step === "push" ? "pushState" : "replaceState"](null, "", full);
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    at("link").textContent = "copied";
  } catch {
    notice("This view's link: " + location.href, false); // no clipboard outside https and localhost
  }
  setTimeout(() => (at("link").textContent = "link"), 1500);
}

/** The buttons that every page has. */
export function wireFrame(change) {
  at("notice").querySelector("button").addEventListener("click", clearNotice);
  at("theme").addEventListener("click", () => change({ theme: scheme() === "dark" ? "light" : "dark" }, "replace"));
  at("link").addEventListener("click", copyLink);
}

/** The contents of a long page: they lead to its sections, and say where the reader is. */
export function wireContents() {
  const links = new Map([...at("contents").children].map((link) => [link.hash.slice(1), link]));
  const [first] = links.keys();
  for (const [id, link] of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the view; only the part after # is the section
      at(id).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      history.replaceState(null, "", location.pathname + location.search + "#" + id);
    });
  }
  const locate = () => {
    const past = [...links.keys()].filter((id) => at(id).getBoundingClientRect().top < innerHeight * 0.3);
    for (const [id, link] of links) link.classList.toggle("here", id === (past.at(-1) ?? first));
  };
  addEventListener("scroll", () => requestAnimationFrame(locate), { passive: true });
  locate();
}

/** Style sheets are inserted by Gradio's own script: what is measured before they are there would be wrong. */
export async function styled() {
  const ready = () => getComputedStyle(document.querySelector(".bs")).visibility === "visible";
  for (let i = 0; i < 100 && !ready(); i++) await new Promise((next) => setTimeout(next, 20));
}

/** The first view, and whatever asks for another one from outside the page. `theme` gives the view's theme. */
export function begin(plotly, { theme, change, restore }) {
  addEventListener("popstate", restore);
  SYSTEM.addEventListener("change", () => (theme() || "auto") === "auto" && change({}, "replace"));
  restore();
  // the page answers clicks before the plotting library, 4.8 MB, has been read
  requestAnimationFrame(() => setTimeout(() => loadPlotly(plotly), 0));
}
