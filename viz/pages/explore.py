"""The Explore page: what happened inside layer L for this prompt. Thin handlers; what they say is put together in answers.py.

The browser sends one value, the whole view. `look` answers from kept runs at once, outside the queue; where there is
none it says so and the page asks `run`, which is queued, reports progress and can be stopped. Every answer carries
the request's token, so that the page drops what is no longer wanted. A handler never raises: what went wrong is a
sentence in its answer, and the page keeps its last view.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import gradio as gr

from model.errors import BlockscopeError
from viz.change import spelled
from viz.nodes import cards
from viz.pages import answers, files
from viz.pages.forecast import Paces, forecast
from viz.pages.running import Asked, Runs, walk
from viz.pages.shell import on_load, plotly_url, template
from viz.pages.surgery import counterfactual, settled
from viz.prompts import readable
from viz.shelf import Run, Shelf
from viz.state import DEFAULT_PROMPT, UiState, parse
from viz.store import Store
from viz.theme import LIGHT
from viz.worker import Step, watched

COUNTERFACTUAL_UNDER = 5.0  # seconds: a run that took longer is not repeated unasked as its counterfactual
VISITS = 16  # visitors whose models are opened or run at a time: running.AT_ONCE compute, the others open theirs or wait
QUICK = 0.5  # seconds: a block that takes longer is run where its progress is seen and it can be stopped
PROGRESS: Mapping = MappingProxyType({"kind": "progress"})
Report = Callable[[Step], None]
T = TypeVar("T")
log = logging.getLogger("blockscope")


class Explore:
    """The page's handlers over one shelf of models and one store of figures; holds nothing that belongs to a visitor."""

    def __init__(self, shelf: Shelf, store: Store):
        self.shelf, self.store, self.paces = shelf, store, Paces()
        self.runs = Runs(shelf, self.paces)

    def look(self, sent: object) -> dict:
        """The view if its run is kept, else {"kind": "run"}: the page then asks for the run."""
        asked = self._asked(sent)
        try:
            asked = self._settled(asked) if self.shelf.ready(asked.name) else asked
            run = self.runs.kept(asked)
            told = {"kind": "run"} if run is None or _takes_long(run, asked.state) else self._view(asked, run)
        except Exception as error:
            told = _sentence(error)
        return self._told(asked, told)

    def run(self, sent: object) -> Iterator[dict]:
        """Progress while the model runs, the view, and at last the layer strip with its counterfactual line.

        Where all layers take long the view comes as soon as the chosen one has run, and the strip grows while the others do.
        """
        asked = self._asked(sent)
        try:
            with self.shelf.using(asked.name):
                asked = yield from _progress(asked.token, partial(self._settled, asked))
                told = yield from _progress(asked.token, partial(self.runs.in_turn, partial(self._view_of_run, asked)))
                yield self._told(asked, told)
                if (run := self.runs.kept(asked)) is not None and not run.whole:
                    with closing(self.runs.filling(asked, run)) as steps:
                        for step, so_far in steps:
                            yield {"token": asked.token, "kind": "filling", **asdict(step)} | self._strip_of(asked, so_far)
                told = yield from _progress(asked.token, partial(self.runs.in_turn, partial(self._strip, asked)))
                yield self._told(asked, told)
        except Exception as error:
            refused = {} if self.shelf.ready(asked.name) else {"refused": asked.name}
            yield self._told(asked, _sentence(error) | refused)

    def weigh(self, sent: object) -> dict:
        """What the prompt of `sent` would take, before it is run; nothing where its model is not open yet."""
        asked, told = self._asked(sent), {"text": "", "from": "", "warning": ""}
        try:
            if self.shelf.ready(asked.name):
                prompt, asked = asked.state.prompt, self._settled(asked)
                lm = self.shelf.model(asked.name, asked.which)
                tokens = len(lm.encode(prompt))
                told = forecast(lm, tokens, self.paces.get(asked.name), self.shelf.max_tokens)
        except Exception as error:
            told |= {"warning": _sentence(error)["sentence"]}
        draft = sent.get("draft") if isinstance(sent, Mapping) else None
        return told | {"kind": "cost", "draft": draft if isinstance(draft, int) else 0}

    def files(self, sent: object) -> dict:
        """What is in the files of the chosen model, from their headers."""
        asked = self._asked(sent)
        try:
            return files.contents(self.shelf, asked.name)
        except Exception as error:
            return _sentence(error) | {"kind": "files-error", "name": asked.name}

    def examine(self, sent: object) -> Iterator[dict]:
        """Progress while every number of these files is read, then what was found."""
        asked = self._asked(sent)
        try:
            work = partial(files.examined, self.shelf, asked.name)
            yield (yield from _progress(asked.token, work, {"kind": "files-progress", "name": asked.name}))
        except Exception as error:
            yield _sentence(error) | {"kind": "files-error", "name": asked.name}

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
        change: str = "",
        log: int = 0,
        hide_first: int = 0,
        neurons: str = "index",
        zoom: str = "",
    ) -> dict:
        """What the page shows, as JSON: the numbers of the diagram, the identities, and every card with its data.

        `model` is one of /models, "" the first. `token` is a query position, -1 the last. `qk` is as-built, off, head or
        projection; `change` names other parts that are changed, as "norm=layernorm,window=8" (`parts` in the answer lists
        them). A value that is not valid is replaced by the nearest valid one, and `notes` says so.
        """
        asked = self._asked({"state": {key: value for key, value in locals().items() if key != "self"}})
        try:
            asked = self._settled(asked)
            run = self.runs.whole(asked)
            state, notes = answers.fitted(run, asked.state)
            answers.look_ahead(run.lm, list(run.tokens), state)
            told = answers.words(self.shelf, asked.name, asked.which, run, state)
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
        notes = [*asked.notes, *told.get("notes", [])]
        told = told | {"token": asked.token, "models": self.shelf.menu_with(asked.name), "notes": notes}
        return told | {"aside": True} if asked.aside else told

    def _settled(self, asked: Asked, report: Report = lambda step: None) -> Asked:
        """The request with those changes only that its model can have, and a prompt that it reads; opens the model."""
        report(Step(0, 0, f"opening {asked.name}"))
        lm = self.shelf.model(asked.name, report=report)
        state, which, notes = settled(lm, asked.state)
        prompt, aside = readable(lm, state.prompt)
        notes = (*asked.notes, *notes, *([aside] if aside else []))
        return replace(asked, state=replace(state, prompt=prompt), which=which, notes=notes, aside=asked.aside or bool(aside))

    def _view(self, asked: Asked, run: Run) -> dict:
        return answers.view(self.shelf, self.store, asked.name, asked.which, run, asked.state, asked.scheme)

    def _view_of_run(self, asked: Asked, report: Report) -> dict:
        run = self.runs.until_view(asked, report)
        state, _ = answers.fitted(run, asked.state)
        asked_for = answers.block_requests(run.lm, run.tokens, state)
        walk(run.lm, run.tokens, asked_for, state.layer, report, Step(0, 0, f"layer {state.layer}"))
        return self._view(asked, run)

    def _strip(self, asked: Asked, report: Report) -> dict:
        """The layer strip once more; runs the counterfactual where the run itself was short."""
        run = self.runs.whole(asked, report)
        changed = counterfactual(self.shelf.model(asked.name), asked.which)
        if changed is not None and run.seconds < COUNTERFACTUAL_UNDER:
            other = replace(asked, which=spelled(changed))
            self.runs.whole(other, report)
        return self._strip_of(asked, run) | {"kind": "strip"}

    def _strip_of(self, asked: Asked, run: Run) -> dict:
        strip = answers.strip(self.shelf, asked.name, asked.which, run, asked.state.prompt)
        return {"strip": strip, "said": answers.took(run)}


def blocks(explore: Explore) -> gr.Blocks:
    """The page as Gradio blocks: a hidden bus that every handler reads, and the view that every handler writes."""
    on_bus = on_load("explore", "page.js", "startBus", events=["look", "run", "halt", "weigh", "files", "examine"])
    on_view = on_load("explore", "page.js", "startView", plotly=plotly_url())
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    with gr.Blocks(title="Blockscope", fill_width=True, analytics_enabled=False) as demo:
        view = gr.HTML({}, html_template=template("page.html"), js_on_load=on_view, elem_id="view", apply_default_css=False)
        bus = gr.HTML({}, html_template="<i></i>", js_on_load=on_bus, elem_id="bus", visible="hidden", interactive=True)
        bus.look(explore.look, bus, view, queue=False, trigger_mode="always_last", **quiet)
        running = bus.run(explore.run, bus, view, trigger_mode="multiple", concurrency_limit=VISITS, **quiet)
        bus.weigh(explore.weigh, bus, view, queue=False, trigger_mode="always_last", **quiet)
        bus.files(explore.files, bus, view, queue=False, **quiet)
        looking = bus.examine(explore.examine, bus, view, trigger_mode="once", concurrency_limit=1, **quiet)
        bus.halt(None, None, None, cancels=[running, looking], queue=False, **quiet)
        gr.api(explore.api, api_name="explore", concurrency_limit=2)
        gr.api(explore.models, api_name="models", queue=False)
    demo.state_session_capacity = 200  # a session keeps its last answer, some 30 kB
    return demo


def _takes_long(run: Run, state: UiState) -> bool:
    """Whether this view needs layers that have not run, or a block to run again that takes longer than a click may."""
    state, _ = answers.fitted(run, state)
    if not run.whole and answers.reach(run.lm, run.tokens, state) >= len(run.peaks):
        return True
    if run.seconds < QUICK * len(run.peaks):
        return False
    asked = answers.block_requests(run.lm, run.tokens, state)
    return any(run.lm.recall(run.tokens, what) is None for what in (*asked, state.layer))


def _progress(token: int, work: Callable[[Report], T], about: Mapping = PROGRESS) -> Generator[dict, None, T]:
    """Yields progress answers for as long as the work takes, returns what it returns; closing it stops the work."""
    steps = watched(work)
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            yield {"token": token, **about, **asdict(step)}
    finally:
        steps.close()


def _sentence(error: Exception) -> dict:
    """An error as the page shows it. What a person could not have caused is logged in full on the server."""
    if isinstance(error, BlockscopeError):
        return {"kind": "error", "sentence": str(error)}
    log.error("a handler failed", exc_info=error)
    return {"kind": "error", "sentence": f"Blockscope failed here ({type(error).__name__}); the app's log says where."}
