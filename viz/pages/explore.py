"""The Explore page: what happened inside layer L for this prompt. Thin handlers; what they say is put together in answers.py.

The browser sends one value, the whole view. `look` answers from kept runs at once, outside the queue; where there is
none it says so and the page asks `run`, which is queued, reports progress and can be stopped. Every answer carries
the request's token, so that the page drops what is no longer wanted. A handler never raises: what went wrong is a
sentence in its answer, and the page keeps its last view.
"""

import json
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import gradio as gr

from model.errors import BlockscopeError
from viz.nodes import cards
from viz.pages import answers
from viz.pages.shell import own_url, plotly_url, template
from viz.shelf import Run, Shelf
from viz.state import DEFAULT_PROMPT, UiState, parse
from viz.store import Store
from viz.theme import LIGHT
from viz.worker import Step, watched

COUNTERFACTUAL_UNDER = 5.0  # seconds: a run that took longer is not repeated unasked with QK-norm the other way round
Report = Callable[[Step], None]
log = logging.getLogger("blockscope")


@dataclass(frozen=True)
class Asked:
    """One request of a browser: `token` tells its answer from others, `scheme` is what its screen shows, light or dark."""

    token: int
    scheme: str
    name: str
    state: UiState
    notes: tuple[str, ...]


class Explore:
    """The page's handlers over one shelf of models and one store of figures; holds nothing that belongs to a visitor."""

    def __init__(self, shelf: Shelf, store: Store):
        self.shelf, self.store = shelf, store

    def look(self, sent: object) -> dict:
        """The view if its run is kept, else {"kind": "run"}: the page then asks for the run."""
        asked = self._asked(sent)
        try:
            run = self._kept(asked.name, asked.state)
            told = {"kind": "run"} if run is None else self._view(asked, run)
        except Exception as error:
            told = _sentence(error)
        return self._told(asked, told)

    def run(self, sent: object) -> Iterator[dict]:
        """Progress while the model runs, the view, and at last the layer strip with its counterfactual line."""
        asked = self._asked(sent)
        for work in (self._view_of_run, self._strip):
            try:
                told = yield from _progress(asked.token, partial(work, asked))
            except Exception as error:
                yield self._told(asked, _sentence(error))
                return
            yield self._told(asked, told)

    def api(
        self,
        model: str = "",
        prompt: str = DEFAULT_PROMPT,
        layer: int = 0,
        head: int = 0,
        token: int = -1,
        node: str = "logits",
        stage: str = "scaled",
        qk: str = "as-built",
        log: int = 0,
        hide_first: int = 0,
        neurons: str = "index",
    ) -> dict:
        """What the page shows, as JSON: the numbers of the diagram, the identities, and every card with its data.

        `model` is one of /models, "" the first. `token` is a query position, -1 the last. `qk` is as-built, off, head or
        projection. A value that is not valid is replaced by the nearest valid one, and `notes` says so.
        """
        asked = self._asked({"state": {key: value for key, value in locals().items() if key != "self"}})
        try:
            run = self._kept(asked.name, asked.state) or self._run(asked.name, asked.state)
            state, notes = answers.fitted(run, asked.state)
            answers.look_ahead(run.lm, list(run.tokens), state)
            told = answers.words(self.shelf, asked.name, run, state)
            shown = cards(run.lm, list(run.tokens), state, LIGHT, self.shelf.model(asked.name))
        except BlockscopeError as error:
            raise gr.Error(str(error), print_exception=False) from None
        return told | {"notes": [*asked.notes, *notes], "cards": [answers.data_of(card) for card in shown]}

    def models(self) -> list[str]:
        """The models that this app was started with."""
        return self.shelf.names

    def _asked(self, sent: object) -> Asked:
        sent = sent if isinstance(sent, Mapping) else {}
        token = sent.get("token")
        state, notes = parse(sent.get("state", {}))
        name, more = self.shelf.name(state.model)
        state = replace(state, model=name)  # a link names its model, also where that is the first one
        scheme = "dark" if sent.get("scheme") == "dark" else "light"
        return Asked(token if isinstance(token, int) else 0, scheme, name, state, (*notes, *more))

    def _told(self, asked: Asked, told: dict) -> dict:
        return told | {"token": asked.token, "models": self.shelf.names, "notes": [*asked.notes, *told.get("notes", [])]}

    def _view(self, asked: Asked, run: Run) -> dict:
        return answers.view(self.shelf, self.store, asked.name, run, asked.state, asked.scheme)

    def _view_of_run(self, asked: Asked, report: Report) -> dict:
        run = self._kept(asked.name, asked.state) or self._run(asked.name, asked.state, report)
        return self._view(asked, run)

    def _strip(self, asked: Asked, report: Report) -> dict:
        """The layer strip once more; runs the counterfactual where the run itself was short."""
        run = self._kept(asked.name, asked.state)
        other = replace(asked.state, qk=answers.other_qk(run.lm, self.shelf.model(asked.name)))
        if run.seconds < COUNTERFACTUAL_UNDER and self._kept(asked.name, other) is None:
            self._run(asked.name, other, report)
        return {"kind": "strip", "strip": answers.strip(self.shelf, asked.name, run, asked.state.prompt)}

    def _kept(self, name: str, state: UiState) -> Run | None:
        return self.shelf.find(name, self._actual(name, state.qk), state.prompt) if self.shelf.ready(name) else None

    def _actual(self, name: str, qk: str) -> str:
        return self.shelf.model(name).qk_norm if qk == "as-built" else qk

    def _run(self, name: str, state: UiState, report: Report = lambda step: None) -> Run:
        """Run the model on a prompt within the budget and keep the run. Raises BlockscopeError, a sentence to show."""
        if not state.prompt:
            raise BlockscopeError("The prompt is empty: type some text and press Run.")
        report(Step(0, 0, f"running {name}" if self.shelf.ready(name) else f"opening {name}"))
        lm = self.shelf.model(name, state.qk)
        tokens = list(lm.encode(state.prompt))
        if not tokens:
            raise BlockscopeError("The prompt holds no token that this model knows: type some other text.")
        if len(tokens) > self.shelf.max_tokens:
            raise BlockscopeError(
                f"This prompt has {len(tokens):,} tokens and the budget of this app is {self.shelf.max_tokens:,} "
                f"(--max-tokens), so it was not run. {lm.cost(len(tokens)).sentence}"
            )
        began = time.perf_counter()
        layer = min(state.layer, lm.config.n_layers - 1)
        walk = lm.walk(tokens, answers.run_requests(lm, tokens, state), checking=layer)
        for step in walk:
            report(Step(step.done, step.total, step.what))
        run = Run(lm, tuple(tokens), tuple(lm.pieces(tokens)), answers.peaks(lm, tokens), time.perf_counter() - began)
        return self.shelf.keep(name, self._actual(name, state.qk), state.prompt, run)


def blocks(explore: Explore) -> gr.Blocks:
    """The page as Gradio blocks: a hidden bus that every handler reads, and the view that every handler writes."""
    script = "import(new URL({url}, document.baseURI)).then((m) => m.{start}({{element, trigger, props, watch, {more}}}));"
    page_js = json.dumps(own_url("page.js"))
    on_bus = script.format(url=page_js, start="startBus", more='events: ["look", "run", "halt"]')
    on_view = script.format(url=page_js, start="startView", more=f"plotly: {json.dumps(plotly_url())}")
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    with gr.Blocks(title="Blockscope", fill_width=True, analytics_enabled=False) as demo:
        view = gr.HTML({}, html_template=template("page.html"), js_on_load=on_view, elem_id="view", apply_default_css=False)
        bus = gr.HTML({}, html_template="<i></i>", js_on_load=on_bus, elem_id="bus", visible="hidden", interactive=True)
        bus.look(explore.look, bus, view, queue=False, trigger_mode="always_last", **quiet)
        running = bus.run(explore.run, bus, view, trigger_mode="multiple", concurrency_id="torch", concurrency_limit=2, **quiet)
        bus.halt(None, None, None, cancels=[running], queue=False, **quiet)
        gr.api(explore.api, api_name="explore", concurrency_id="torch")
        gr.api(explore.models, api_name="models", queue=False)
    demo.state_session_capacity = 200  # a session keeps its last answer, some 30 kB
    return demo


def _progress(token: int, work: Callable[[Report], dict]) -> Generator[dict, None, dict]:
    """Yields progress answers for as long as the work takes, returns what it returns; closing it stops the work."""
    steps = watched(work)
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            yield {"kind": "progress", "token": token, **asdict(step)}
    finally:
        steps.close()


def _sentence(error: Exception) -> dict:
    """An error as the page shows it. What a person could not have caused is logged in full on the server."""
    if isinstance(error, BlockscopeError):
        return {"kind": "error", "sentence": str(error)}
    log.error("a handler failed", exc_info=error)
    return {"kind": "error", "sentence": f"Blockscope failed here ({type(error).__name__}); the app's log says where."}
