// The strips of the Compare page under the keyboard: one tab stop a strip; arrows walk its cells, Enter opens the tensor.
import { make } from "./frame.js";

const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -1e6], End: [0, 1e6], PageDown: [1e6, 0], PageUp: [-1e6, 0] };
const places = new WeakMap(); // cursor -> {row, layer}

/** Once the strips are drawn. `open(letter, row, layer)`; a strip's cursor starts at `selected`, {row, layer}. */
export function wireStrips(holder, open, selected) {
  for (const article of holder.querySelectorAll("[data-card]")) {
    const gd = article.querySelector(".gd");
    if (!gd?._fullLayout?.xaxis) continue;
    const cursor = article.querySelector(".strip-cursor") ?? build(article, gd, open);
    if (cursor !== document.activeElement || !places.has(cursor)) places.set(cursor, { ...selected });
    place(cursor, article, gd);
  }
}

function build(article, gd, open) {
  const cursor = make("div", "strip-cursor");
  cursor.tabIndex = 0;
  cursor.setAttribute("role", "button");
  const status = make("span", "vh");
  status.setAttribute("role", "status");
  article.append(cursor, status);
  const letter = article.dataset.card.slice(-1).toLowerCase();
  cursor.addEventListener("keydown", (event) => {
    const at = places.get(cursor);
    const move = MOVES[event.key];
    if (move) {
      at.row += move[0];
      at.layer += move[1];
      status.textContent = place(cursor, article, gd);
      cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.key === "Enter" || event.key === " ") open(letter, at.row, at.layer);
    else return;
    event.preventDefault();
  });
  cursor.addEventListener("focus", () => place(cursor, article, gd));
  gd.on("plotly_afterplot", () => place(cursor, article, gd));
  return cursor;
}

/** Put the cursor on its cell, inside the strip; gives what is said of the cell. */
function place(cursor, article, gd) {
  const { xaxis, yaxis } = gd._fullLayout;
  const { text } = gd.data[0];
  const at = places.get(cursor);
  if (!at) return "";
  at.row = Math.max(0, Math.min(at.row, text.length - 1));
  at.layer = Math.max(0, Math.min(at.layer, text[0].length - 1));
  const wide = Math.abs(xaxis.l2p(1) - xaxis.l2p(0));
  const high = Math.abs(yaxis.l2p(1) - yaxis.l2p(0));
  Object.assign(cursor.style, {
    left: gd.offsetLeft + xaxis._offset + xaxis.l2p(at.layer) - wide / 2 + "px",
    top: gd.offsetTop + yaxis._offset + yaxis.l2p(at.row) - high / 2 + "px",
    width: wide + "px",
    height: high + "px",
  });
  const said = yaxis.ticktext[at.row] + ", layer " + at.layer + ": " + text[at.row][at.layer];
  cursor.setAttribute("aria-label", article.querySelector("h3").textContent + ", " + said + ". Arrow keys move, Enter opens the tensor.");
  return said;
}
