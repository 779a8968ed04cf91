// The prompt as chips, one a token. Of a long prompt only those near what is in view are in the page; gaps stand for the rest.
import { at } from "./frame.js";

const MOST = 600; // chips in the page at once
const NEAR = 60; // chips left beyond what is in view before others are put in
const GAP = 4; // px between two chips, as in page.css

let pieces = [];
let ends = new Float64Array(1); // px from the left of the strip to before each chip
let first = 0; // of the chips that are in the page
let last = 0;
let selected = 0;
let choose = () => {};

/** `pick(token)` is called with the token that was clicked, typed or reached with the keyboard. */
export function wireTokens(pick) {
  choose = pick;
  const holder = at("tokens");
  holder.addEventListener("click", (event) => event.target.dataset.token && pick(Number(event.target.dataset.token)));
  holder.addEventListener("keydown", move);
  let due = false;
  holder.addEventListener("scroll", () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      follow(holder);
    });
  });
  at("token-at").addEventListener("change", (event) => {
    const token = Math.min(Math.max(Math.round(Number(event.target.value)) || 0, 0), pieces.length - 1);
    event.target.value = String(token);
    pick(token);
  });
}

function move(event) {
  const from = event.target.closest("[data-token]");
  if (!from) return;
  const here = Number(from.dataset.token);
  const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: pieces.length - 1 }[event.key];
  if (to === undefined || to < 0 || to >= pieces.length) return;
  event.preventDefault();
  reach(to).focus({ preventScroll: true });
  choose(to);
}

/** Show these pieces, with `token` chosen (-1: the last) and in the middle. */
export function showTokens(given, token) {
  const holder = at("tokens");
  const long = given.length > MOST;
  if (given.length !== pieces.length || given.some((piece, i) => piece !== pieces[i])) {
    pieces = given;
    first = last = 0;
    holder.replaceChildren();
    if (long) measure(holder);
  }
  selected = token < 0 ? pieces.length - 1 : token;
  at("jump").hidden = !long;
  at("token-at").max = String(pieces.length - 1);
  at("token-at").value = String(selected);
  reach(selected);
}

/** Puts a token's chip into the page and into the middle of the strip -> the chip. */
function reach(token) {
  const holder = at("tokens");
  if (pieces.length <= MOST) {
    if (last !== pieces.length) fill(holder, 0, pieces.length);
  } else if (token < first + NEAR || token >= last - NEAR) around(holder, token);
  mark(holder);
  const chip = holder.querySelector(`[data-token="${token}"]`);
  holder.scrollTo({ left: chip.offsetLeft - holder.clientWidth / 2 });
  return chip;
}

/** Other chips once the scrolling comes near the end of those that are in the page. */
function follow(holder) {
  if (pieces.length <= MOST) return;
  const [low, high] = [holder.scrollLeft, holder.scrollLeft + holder.clientWidth].map(below);
  if ((low < first + NEAR && first > 0) || (high >= last - NEAR && last < pieces.length)) around(holder, (low + high) >> 1);
}

function around(holder, token) {
  const from = Math.max(0, Math.min(token - MOST / 2, pieces.length - MOST));
  if (from === first && last > first) return;
  fill(holder, from, Math.min(from + MOST, pieces.length));
  mark(holder);
}

/** The chip at so many pixels from the left. */
function below(left) {
  let [low, high] = [0, pieces.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (ends[middle] <= left) low = middle;
    else high = middle - 1;
  }
  return low;
}

function fill(holder, from, to) {
  const focused = holder.contains(document.activeElement) ? document.activeElement.dataset.token : undefined;
  const chips = [];
  if (from > 0) chips.push(gap(ends[from]));
  for (let i = from; i < to; i++) chips.push(chip(i));
  if (to < pieces.length) chips.push(gap(ends[pieces.length] - ends[to]));
  holder.replaceChildren(...chips);
  [first, last] = [from, to];
  if (focused !== undefined) holder.querySelector(`[data-token="${focused}"]`)?.focus({ preventScroll: true });
}

function chip(i) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.token = String(i);
  button.setAttribute("role", "radio");
  button.setAttribute("aria-posinset", String(i + 1));
  button.setAttribute("aria-setsize", String(pieces.length));
  button.textContent = pieces[i];
  button.title = "token " + i;
  return button;
}

function gap(width) {
  const space = document.createElement("i");
  space.className = "gap";
  space.style.width = width - GAP + "px";
  return space;
}

function mark(holder) {
  for (const chip of holder.querySelectorAll("[data-token]")) {
    const here = Number(chip.dataset.token) === selected;
    chip.setAttribute("aria-checked", String(here));
    chip.tabIndex = here ? 0 : -1;
  }
}

/** Where every chip would stand, from the width of its text: each different piece is measured once. */
function measure(holder) {
  const sample = document.createElement("button");
  sample.textContent = "x";
  holder.append(sample);
  const style = getComputedStyle(sample);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const around = sample.getBoundingClientRect().width > 0 ? ["paddingLeft", "paddingRight", "borderLeftWidth", "borderRightWidth"] : [];
  const frame = around.reduce((sum, name) => sum + parseFloat(style[name]), 0);
  const least = parseFloat(style.minWidth) || 0;
  sample.remove();
  const known = new Map();
  ends = new Float64Array(pieces.length + 1);
  pieces.forEach((piece, i) => {
    if (!known.has(piece)) known.set(piece, Math.max(least, pen.measureText(piece).width + frame));
    ends[i + 1] = ends[i] + known.get(piece) + GAP;
  });
}
