// What a live run reads: a text of the menu, or one that a visitor pastes or uploads.
import { nextNumber } from "./growth-live.js";
import { at } from "./frame.js";
import { change, send, state } from "./growth.js";

const LARGEST = 4 << 20; // bytes, as in Python
let asked = -1;

export function drawTexts(told) {
  at("text").replaceChildren(...told.texts.map(([value, words]) => new Option(words, value)));
  at("text").value = state.text ?? "";
  at("text-about").textContent = told.text;
}

function open(on) {
  at("text-box").hidden = !on;
  at("text-add").setAttribute("aria-expanded", String(on));
  if (on) at("text-paste").focus();
}

const tell = (words) => (at("text-said").textContent = words);

function bring(name, bytes) {
  if (!bytes.length) return tell(name + " is empty: paste or choose a text.");
  if (bytes.length > LARGEST) return tell(`${name} has ${bytes.length.toLocaleString("en-US")} bytes; at most ${LARGEST.toLocaleString("en-US")} may be sent: give a part of it.`);
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  asked = nextNumber();
  tell("sending…");
  send("control", "bring", { n: asked, name, data: btoa(text) });
}

export function hearText(answer) {
  if (answer.n !== asked) return;
  send("control", "control", {}); // the bus holds the text no longer
  if (answer.kind !== "text") return tell(answer.sentence);
  tell("");
  open(false);
  change({ text: answer.key }, "replace");
}

export function wireTexts() {
  at("text-add").addEventListener("click", () => open(at("text-box").hidden));
  at("text-use").addEventListener("click", () => bring("pasted text", new TextEncoder().encode(at("text-paste").value)));
  at("text-file").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    event.target.value = "";
    if (!file) return;
    if (file.size > LARGEST) return tell(`${file.name} has ${file.size.toLocaleString("en-US")} bytes; at most ${LARGEST.toLocaleString("en-US")} may be sent: give a part of it.`);
    bring(file.name, new Uint8Array(await file.arrayBuffer()));
  });
}
