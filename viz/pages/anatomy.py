"""The Anatomy page: what is this architecture? Everything from a config alone; no weights but those of the ladder's twins.

The browser sends the whole view and the keys of the sections that it has; `look` answers with the others, outside the
queue. `measure` runs the ladder's tiny twins, some seconds once, in it. A handler never raises.
"""

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace

import gradio as gr

from model.anatomy.ladder import WIDTHS
from model.errors import BlockscopeError
from model.presets import PRESETS
from viz.anatomy_state import CONFIG_IN_LINK, AnatomyState, parse
from viz.pages.anatomy_answers import SECTIONS, by_hand, head, key
from viz.pages.anatomy_charts import FIGURES
from viz.pages.anatomy_sight import Sight, sight
from viz.pages.answers import describe, plain
from viz.pages.shell import on_load, plotly_url, template
from viz.store import Store
from viz.theme import LIGHT, THEMES

log = logging.getLogger("blockscope")
UP = "../"  # this page lives one level below the app's root


class Anatomy:
    """The page's handlers over a store of figures; holds nothing that belongs to a visitor.

    `sources`: the models that the app was started with, which may be chosen beside the presets; only configs are read.
    """

    def __init__(self, store: Store, sources: Mapping[str, str] | None = None):
        self.store = store
        self.sources = {name: str(source) for name, source in (sources or {}).items()}
        self._twins: dict[str, dict] = {}
        self._lock = threading.Lock()

    def look(self, sent: object) -> dict:
        """The sections whose keys the browser does not have."""
        sent = sent if isinstance(sent, Mapping) else {}
        token = sent.get("token") if isinstance(sent.get("token"), int) else 0
        have = sent.get("have") if isinstance(sent.get("have"), Mapping) else {}
        state, notes = parse(sent.get("state", {}))
        dark = state.theme == "dark" or (state.theme == "auto" and sent.get("scheme") == "dark")
        base = {"token": token, "state": asdict(state), "models": list(PRESETS), "own": list(self.sources), "notes": notes}
        try:
            seen, more = sight(state, THEMES["dark" if dark else "light"], self.sources)
            return base | self._view(seen, have, [*notes, *more])
        except Exception as error:
            return base | _sentence(error)

    def measure(self, sent: object) -> dict:
        """The tiny twins of every rung, for one width of the gated MLP."""
        sent = sent if isinstance(sent, Mapping) else {}
        width = sent.get("width") if sent.get("width") in WIDTHS else WIDTHS[0]
        try:
            return {"kind": "twins", "width": width, "twins": self._measured(width)}
        except Exception as error:
            return _sentence(error)

    def api(
        self,
        model: str = "llama-3.1-8b",
        config: str = "",
        batch: int = 1,
        length: int = 1024,
        context: int = 8192,
        together: int = 32,
        bits: str = "16",
        compare: str = "gpt2,llama-3.1-8b,qwen3-8b",
        width: str = "matched",
        kind: int = 0,
    ) -> dict:
        """What the page shows, as JSON: equations, shapes, parameters with their formulas, budgets, designs, the ladder.

        `model` is a preset; `config`, the text of a config.json, takes its place. `kind` is one of the model's block designs.
        """
        state, notes = parse({name: value for name, value in locals().items() if name != "self"})
        try:
            seen, more = sight(state, LIGHT, self.sources)
            sections = {name: build(seen) for name, (_, build) in SECTIONS.items() if name != "hand"}
        except BlockscopeError as error:
            raise gr.Error(str(error), print_exception=False) from None
        sections["block"].pop("drawing")
        return plain({"model": head(seen), "notes": [*notes, *more], "state": asdict(state)} | sections)

    def by_hand(
        self,
        x: str = AnatomyState.x,
        eps: float = AnatomyState.eps,
        swiglu_x: str = AnatomyState.swiglu_x,
        w_gate: str = AnatomyState.w_gate,
        w_up: str = AnatomyState.w_up,
        pair: str = AnatomyState.pair,
        position: float = AnatomyState.position,
        frequency: float = AnatomyState.frequency,
        q: str = AnatomyState.q,
        k1: str = AnatomyState.k1,
        k2: str = AnatomyState.k2,
    ) -> dict:
        """Every calculator with every intermediate. Vectors are numbers with commas, matrices rows with semicolons."""
        state, notes = parse({name: value for name, value in locals().items() if name != "self"})
        return plain(by_hand(state) | {"notes": notes})

    def _view(self, seen: Sight, have: Mapping, notes: list[str]) -> dict:
        sections = {}
        for name, (fields, build) in SECTIONS.items():
            if have.get(name) != (named := key(seen, fields)):
                sections[name] = {"key": named, **plain(build(seen))}
        for name, (fields, build) in FIGURES.items():
            if have.get(name) != (named := key(seen, fields, seen.theme.name)):
                cards = [describe(card, self.store) for card in build(seen)]
                sections[name] = {"key": named, "cards": [card | {"url": UP + card["url"]} for card in cards]}
        if len(seen.state.config) > CONFIG_IN_LINK:
            notes.append(f"this config has {len(seen.state.config):,} characters: the link leaves it out")
        twins = self._twins.get(seen.state.width)
        told = {"kind": "view", "notes": notes, "query": seen.state.query(), "model": head(seen), "sections": sections}
        return told | {"twins": twins, "state": asdict(replace(seen.state, kind=_kind(seen)))}

    def _measured(self, width: str) -> dict:
        from model.anatomy.twin import twins

        with self._lock:
            if width not in self._twins:
                self._twins[width] = {name: _twin(asdict(one)) for name, one in twins(width).items()}
            return self._twins[width]


def blocks(anatomy: Anatomy) -> gr.Blocks:
    """The page as Gradio blocks: a hidden bus that the handlers read, the view, and the twins beside it."""
    on_bus = on_load("anatomy", "anatomy.js", "startBus", events=["look", "measure"])
    on_view = on_load("anatomy", "anatomy.js", "startView", plotly=plotly_url("anatomy"))
    on_twins = on_load("anatomy", "anatomy.js", "startTwins")
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    with gr.Blocks(title="Blockscope: anatomy", fill_width=True, analytics_enabled=False) as demo:
        page = template("anatomy.html", "anatomy")
        view = gr.HTML({}, html_template=page, js_on_load=on_view, elem_id="view", apply_default_css=False)
        twins = gr.HTML({}, html_template="<i></i>", js_on_load=on_twins, elem_id="twins", visible="hidden")
        bus = gr.HTML({}, html_template="<i></i>", js_on_load=on_bus, elem_id="bus", visible="hidden", interactive=True)
        bus.look(anatomy.look, bus, view, queue=False, trigger_mode="always_last", **quiet)
        bus.measure(anatomy.measure, bus, twins, trigger_mode="multiple", concurrency_id="torch", concurrency_limit=2, **quiet)
        gr.api(anatomy.api, api_name="anatomy", queue=False)
        gr.api(anatomy.by_hand, api_name="by_hand", queue=False)
    demo.state_session_capacity = 200  # a session keeps its last answer, some 60 kB
    return demo


def _kind(seen: Sight) -> int:
    """The block design that is shown: the last one, where a link asks for more than there are."""
    from model.anatomy.kinds import kinds

    return min(seen.state.kind, len(kinds(seen.config)) - 1)


def _twin(values: dict[str, float]) -> dict[str, str]:
    return {
        name: f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" for name, value in values.items() if math.isfinite(value)
    }


def _sentence(error: Exception) -> dict:
    """An error as the page shows it. What a person could not have caused is logged in full on the server."""
    if isinstance(error, BlockscopeError):
        return {"kind": "error", "sentence": str(error)}
    log.error("a handler failed", exc_info=error)
    return {"kind": "error", "sentence": f"Blockscope failed here ({type(error).__name__}); the app's log says where."}
