// A list of models with "another…" at its end: a field for a name that is not in it. The app says whether it may be opened.
const ROOT = new URL("../../", import.meta.url); // this file is own/VERSION/models.js below the app's root
const ANOTHER = "\0another"; // no model has this name
let hint = null; // a promise of what may be typed, "" where nothing; asked once a page

const asked = () => (hint ??= fetch(new URL("names", ROOT)).then((answer) => answer.json(), () => ({})).then((told) => told.typed ?? ""));

/** `choose(name)` is called for a name that may be shown, `say(sentence)` where none may; with `pick` a choice from the list
 * itself goes there. Gives {fill(menu, chosen), mark(name)}; menu = [[heading, names], ...], the first heading may be "". */
export function chooser(select, { choose, say, pick = choose }) {
  const typed = document.createElement("input");
  Object.assign(typed, { type: "text", className: "typed", id: select.id === "model" ? "typed" : select.id + "-typed", autocomplete: "off", spellcheck: false, hidden: true });
  typed.setAttribute("aria-label", "Another model, by its name");
  select.after(typed);
  let chosen = "";
  let filled = "";

  const leave = () => {
    typed.hidden = true;
    select.hidden = false;
    select.value = chosen;
  };

  select.addEventListener("change", () => {
    if (select.value !== ANOTHER) return pick(select.value);
    typed.value = "";
    typed.hidden = false;
    select.hidden = true;
    typed.focus();
  });
  typed.addEventListener("keydown", async (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      leave();
      select.focus();
    }
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    const { name, sentence } = await ask(typed.value);
    if (sentence) return say(sentence);
    leave();
    choose(name);
  });
  typed.addEventListener("blur", leave);

  return {
    async fill(menu, now) {
      const key = JSON.stringify(menu);
      if (key !== filled) {
        filled = key;
        const end = select.querySelector("[data-another]");
        select.replaceChildren(...modelOptions(menu), ...(end ? [end] : []));
        asked().then((text) => {
          typed.placeholder = text;
          if (text && !select.querySelector("[data-another]")) select.append(another());
        });
      }
      this.mark(now);
    },
    mark(name) {
      if (!name) return;
      // the menu of a later answer need not have it: that was of another typed model
      if (![...select.options].some((option) => option.value === name)) select.prepend(new Option(name, name));
      select.value = chosen = name;
    },
  };
}

async function ask(name) {
  try {
    const answer = await fetch(new URL("names", ROOT), { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ name: name.slice(0, 8000) }) });
    return await answer.json();
  } catch {
    return { sentence: "the app did not answer: try again" };
  }
}

function another() {
  const option = new Option("another…", ANOTHER);
  option.dataset.another = "";
  return option;
}

/** The entries of a chooser of models, under their headings. */
export function modelOptions(menu) {
  return menu.flatMap(([heading, names]) => {
    const options = names.map((name) => new Option(name, name));
    if (!heading) return options;
    const group = document.createElement("optgroup");
    group.label = heading;
    group.append(...options);
    return [group];
  });
}
