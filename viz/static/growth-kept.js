// What was kept of a live run: its models, which other pages open, and its records, which are saved as files.
import { at, make, notice } from "./frame.js";
import { change } from "./growth.js";

/** What was kept, under which name, how long, and how to open it; the newest stands first. */
export function listKept(answer) {
  const list = make("ul");
  for (const [i, one] of answer.kept.entries()) {
    const item = make("li");
    const explore = make("a", "", "open in Explore");
    explore.href = new URL("../?" + new URLSearchParams({ model: one.model }), document.baseURI).href;
    const measure = make("button", "pill small", "measure below");
    measure.type = "button";
    measure.addEventListener("click", () => {
      change({ model: one.model, models: "" }, "replace");
      at("s-checkpoint").scrollIntoView();
      at("survey-form").requestSubmit();
    });
    const save = make("button", "pill small", `save its record, ${(one.file.bytes / 1024).toFixed(0)} kB`);
    save.type = "button";
    save.addEventListener("click", () => download(one.file).catch((error) => notice(error.message, true)));
    item.append(make("span", "key" + (i ? " b" : ""), `${one.arm}, step ${one.step}`), make("code", "", one.model), explore, measure, save);
    list.append(item);
  }
  at("kept").prepend(make("p", "", answer.said), list);
}

async function download(file) {
  const answer = await fetch(new URL(file.url, document.baseURI));
  if (!answer.ok) throw new Error("this record is no longer kept: keep the run again");
  const bytes = Uint8Array.from(atob((await answer.json()).data), (c) => c.charCodeAt(0));
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
