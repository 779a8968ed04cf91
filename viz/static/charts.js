// One DOM node per card, kept as long as the card is shown: Plotly.react redraws in place, so zoom survives.
let plotly = null;
let loaded = null;
const kept = new Map(); // card id -> {article, url}
const bodies = new Map(); // url -> promise of a figure, a few of the newest

const TICK = 26; // px that a label of two or three digits wants

const CONFIG = {
  displayModeBar: matchMedia("(pointer: coarse)").matches ? false : "hover", // under a finger there is no hover: it would always stand there
  displaylogo: false,
  responsive: true,
  _baseUrl: "", // else a colour bar's gradient is looked up in the address of its first drawing, which the page changes
  modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
  toImageButtonOptions: { format: "png", scale: 2, filename: "blockscope" },
};

/** A picture takes the width of its place, also when the page is laid out anew around it. */
const widths = new ResizeObserver((all) => {
  for (const { target } of all) {
    const drawn = target._fullLayout?.width;
    if (plotly && drawn && target.clientWidth && Math.abs(target.clientWidth - drawn) > 1) plotly.Plots.resize(target);
  }
});

/** Insert plotly.js once; resolves with our own alias of it. */
export function loadPlotly(url) {
  loaded ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = new URL(url, document.baseURI);
    script.async = true;
    script.onload = () => done((plotly = window.BlockscopePlotly));
    script.onerror = () => failed(new Error("plotly.js could not be loaded from this app"));
    document.head.append(script);
  });
  return loaded;
}

function ready() {
  return new Promise((done) => {
    const look = () => (loaded ? done(loaded) : setTimeout(look, 10));
    look();
  });
}

function fetchFigure(url) {
  if (!bodies.has(url)) {
    const body = fetch(new URL(url, document.baseURI)).then((r) => {
      if (!r.ok) throw new Error("this figure is no longer kept; ask for the view again");
      return r.text();
    });
    body.catch(() => bodies.delete(url));
    bodies.set(url, body);
    if (bodies.size > 60) bodies.delete(bodies.keys().next().value);
  }
  return bodies.get(url).then((text) => JSON.parse(text)); // parsed anew: Plotly writes into what it is given
}

function element(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Show these cards in `holder`, in order, and no others; `onPick(field, value)` hears clicks. Resolves when all are painted. */
export function showCards(holder, cards, { bare = false, onPick, current, fit }) {
  const wanted = new Set(cards.map((card) => card.id));
  for (const article of [...holder.children]) {
    if (!wanted.has(article.dataset.card)) drop(article);
  }
  const jobs = cards.map((card, i) => {
    const entry = kept.get(card.id) ?? make(card.id, bare);
    const there = holder.children[i] ?? null;
    if (there !== entry.article) holder.insertBefore(entry.article, there); // one that stays where it is keeps the focus in it
    return fill(entry, card, { onPick, current, fit });
  });
  return Promise.all(jobs);
}

function make(id, bare) {
  const article = element("article", "card");
  article.dataset.card = id;
  const entry = { article, title: element("h3"), caption: element("p", "caption"), gd: element("div", "gd"), table: element("div", "table") };
  if (!bare) article.append(entry.title, entry.caption);
  article.append(entry.gd, entry.table);
  kept.set(id, entry);
  widths.observe(entry.gd);
  return entry;
}

function drop(article) {
  const entry = kept.get(article.dataset.card);
  if (entry) widths.unobserve(entry.gd);
  if (entry && plotly && entry.url) plotly.purge(entry.gd);
  kept.delete(article.dataset.card);
  article.remove();
}

async function fill(entry, card, { onPick, current, fit }) {
  entry.title.textContent = card.title;
  entry.caption.textContent = card.caption;
  entry.gd.setAttribute("role", "img");
  entry.gd.setAttribute("aria-label", card.title + ". " + card.caption);
  fillTable(entry.table, card.table);
  entry.gd.hidden = !card.url;
  entry.wanted = card.url;
  entry.onPick = onPick;
  if (!card.url) return;
  if (card.height) entry.gd.style.height = (fit ? Math.min(card.height, Math.max(300, fit())) : card.height) + "px";
  if (entry.url === card.url) return;
  entry.article.dataset.busy = "1";
  try {
    const figure = await fetchFigure(card.url);
    await ready();
    if (entry.wanted !== card.url || !current() || !entry.article.isConnected) return;
    if (card.height) figure.layout.height = entry.gd.clientHeight || card.height;
    thin(figure.layout, entry.gd.clientWidth);
    await plotly.react(entry.gd, figure.data, { ...figure.layout, autosize: true, width: undefined, modebar: { bgcolor: "rgba(0,0,0,0)" } }, CONFIG);
    entry.url = card.url;
    if (!entry.wired) listen(entry);
    quietBar(entry);
    entry.gd.dataset.url = card.url;
  } catch (error) {
    entry.caption.textContent = card.caption + " · not shown: " + (error?.message ?? "the drawing was given up; open the view again");
  } finally {
    delete entry.article.dataset.busy;
  }
}

/** Python's `nticks` of a horizontal axis is for a wide screen; on a narrow one its labels must not touch. */
function thin(layout, width) {
  for (const [name, axis] of Object.entries(layout)) {
    if (name.startsWith("xaxis") && axis.nticks) axis.nticks = Math.max(2, Math.min(axis.nticks, Math.floor((width - 120) / TICK)));
  }
}

/** The mode bar stands in the line of the title, above the data, and its buttons are no tab stops. */
function quietBar(entry) {
  const lift = entry.title.isConnected ? entry.gd.getBoundingClientRect().top - entry.title.getBoundingClientRect().top : 0;
  entry.gd.style.setProperty("--lift", lift + "px");
  for (const button of entry.gd.querySelectorAll(".modebar-btn")) button.tabIndex = -1;
}

/** layout.meta.click = {field, from}: a clicked point's x, y or customdata is the new value of that field. */
function listen(entry) {
  entry.wired = true;
  entry.gd.on("plotly_afterplot", () => quietBar(entry));
  entry.article.addEventListener("pointerenter", () => quietBar(entry));
  entry.gd.on("plotly_click", (event) => {
    const click = entry.gd.layout?.meta?.click;
    const point = event.points?.[0];
    if (!click || !point) return;
    const raw = [point[click.from]].flat(2)[0];
    const value = Math.round(Number(raw));
    if (Number.isFinite(value)) entry.onPick(click.field, value);
  });
  entry.gd.on("plotly_relayout", (event) => zoomed(entry, event));
  entry.gd.on("plotly_doubleclick", () => {
    const now = entry.gd.layout?.meta?.window;
    clearTimeout(entry.zooming);
    if (now && now !== "all") entry.onPick("zoom", "");
  });
}

/** layout.meta.window: this picture was pooled. What a person zooms into is asked for again, at full resolution, once they rest. */
function zoomed(entry, event) {
  const now = entry.gd.layout?.meta?.window;
  if (!now || !("xaxis.range[0]" in event || "yaxis.range[0]" in event)) return;
  const within = (axis) => {
    const [a, b] = [...entry.gd.layout[axis].range].map(Number).sort((x, y) => x - y);
    return [Math.max(0, Math.ceil(a)), Math.max(Math.ceil(a), Math.floor(b))];
  };
  clearTimeout(entry.zooming);
  entry.zooming = setTimeout(() => {
    const zoom = [within("yaxis"), within("xaxis")].map((ends) => ends.join("-")).join(",");
    if (zoom !== entry.gd.layout?.meta?.window && /^\d{1,7}-\d{1,7},\d{1,7}-\d{1,7}$/.test(zoom)) entry.onPick("zoom", zoom);
  }, 350);
}

function fillTable(holder, table) {
  holder.hidden = !table;
  if (!table) return holder.replaceChildren();
  const rows = Array.isArray(table) ? table : table.rows ?? [];
  const head = Array.isArray(table) ? null : table.columns ?? table.head ?? null;
  const node = element("table");
  if (head) {
    const tr = element("tr");
    for (const cell of head) tr.append(element("th", "", String(cell)));
    node.createTHead().append(tr);
  }
  const body = node.createTBody();
  for (const row of rows) {
    const tr = element("tr");
    [row].flat().forEach((cell, i) => tr.append(element(i && !head ? "td" : i ? "td" : "th", "", String(cell))));
    body.append(tr);
  }
  holder.replaceChildren(node);
}
