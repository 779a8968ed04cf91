"""The Compare page: the same prompt, weights and seed, one part changed, and the difference of every tensor.

As on the Explore page the browser sends the whole view; `look` answers from kept comparisons, `run` makes one, says how far
it is, and ends with what takes longer (the loss of every token).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import gradio as gr

from model.compare import Lockstep, Side
from model.errors import BlockscopeError
from viz.compare_state import LETTERS, OWN, PARTS, CompareState, field, parse
from viz.pages import compare_answers as answers
from viz.pages.compare_done import Done
from viz.pages.compare_sides import LM, Spec, edits, specs, variant
from viz.pages.explore import _progress, _sentence
from viz.pages.shell import on_load, plotly_url, template
from viz.shelf import Shelf
from viz.state import DEFAULT_PROMPT
from viz.store import Store
from viz.theme import THEMES, count
from viz.worker import Step

KEPT, VARIANTS = 6, 24  # comparisons and models that are remembered
LOSSES_UNDER = 20.0  # seconds: after a longer comparison the losses are not made unasked
Report = Callable[[Step], None]


@dataclass(frozen=True)
class Asked:
    token: int
    scheme: str
    state: CompareState
    notes: tuple[str, ...]


class Compare:
    """The page's handlers over one shelf and one store; what it keeps belongs to nobody in particular."""

    def __init__(self, shelf: Shelf, store: Store):
        self.shelf, self.store = shelf, store
        self._done: OrderedDict[tuple, Done] = OrderedDict()
        self._variants: OrderedDict[Spec, LM] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, sent: object) -> dict:
        """The view if its comparison is kept, else {"kind": "run"}."""
        asked = self._asked(sent)
        try:
            ready = self.shelf.ready(self.shelf.name(asked.state.model)[0])
            sides, notes = specs(asked.state, self.shelf) if ready else ([], [])
            done = self._find(sides, asked.state.prompt)
            told = {"kind": "run"} if done is None else self._view(asked, done, sides, notes)
        except Exception as error:
            told = _sentence(error) | {"notes": self._faults(asked)}
        return self._told(asked, told)

    def run(self, sent: object) -> Iterator[dict]:
        """Progress, the view, and at last the loss of every token."""
        asked = self._asked(sent)
        for work in (self._compared, self._losses):
            try:
                told = yield from _progress(asked.token, partial(work, asked))
            except Exception as error:
                yield self._told(asked, _sentence(error) | {"notes": self._faults(asked)})
                return
            if told:
                yield self._told(asked, told)

    def api(
        self,
        model: str = "",
        prompt: str = DEFAULT_PROMPT,
        quick: str = "qk_norm",
        change: str = "",
        b_model: str = "",
        b_change: str = "",
        b_layers: str = "",
        b_edit: str = "",
        layer: int = 0,
        head: int = 0,
        tap: str = "attn.hook_logits",
    ) -> dict:
        """Two or more models on one prompt: relative change per tensor, where it starts, next tokens, KL, per-token loss.

        `quick` is an entry of the one-click list; "own" takes the sides from `change` and the b_ fields ("qk_norm=head",
        layers "8-29", edit "head:3:4:0"). A value that is not valid is replaced by the nearest valid one; `notes` says so.
        """  # fmt: skip
        asked = self._asked({"state": {key: value for key, value in locals().items() if key != "self"}})
        try:
            sides, notes = specs(asked.state, self.shelf)
            done = self._find(sides, asked.state.prompt) or self._make(sides, asked.state.prompt, lambda step: None)
            self._finish(done, lambda step: None)
            told = self._view(asked, done, sides, notes)
        except BlockscopeError as error:
            raise gr.Error(str(error), print_exception=False) from None
        cells = [{tap: asdict(cell) for tap, cell in found.items()} for found in done.lock.cells]
        kept = ("state", "sides", "next", "table", "starts", "identities", "title", "caption")
        losses = {"loss": done.losses.loss, "kl": done.losses.kl}
        return answers.plain(
            {name: told[name] for name in kept} | {"notes": [*asked.notes, *told["notes"]], "cells": cells, **losses}
        )

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _asked(self, sent: object) -> Asked:
        sent = sent if isinstance(sent, Mapping) else {}
        token = sent.get("token")
        state, notes = parse(sent.get("state", {}))
        name, more = self.shelf.name(state.model)
        state = replace(state, model=name)
        return Asked(
            token if isinstance(token, int) else 0, "dark" if sent.get("scheme") == "dark" else "light", state, (*notes, *more)
        )

    def _told(self, asked: Asked, told: dict) -> dict:
        notes = [*asked.notes, *told.get("notes", [])]
        return told | {
            "token": asked.token,
            "models": self.shelf.menu_with(asked.state.model),
            "notes": notes,
            "menus": answers.MENUS,
        }

    def _faults(self, asked: Asked) -> list[str]:
        """What else was wrong with a view that cannot be shown."""
        try:
            return specs(asked.state, self.shelf)[1]
        except Exception:
            return []

    def _view(self, asked: Asked, done: Done, sides: list[Spec], notes: list[str]) -> dict:
        state = asked.state
        theme = THEMES[asked.scheme if state.theme == "auto" else state.theme]
        if state.quick != OWN:  # the sides in words, so that they can be edited from here
            filled = {field(LETTERS[n], part): getattr(side, part) for n, side in enumerate(sides) for part in PARTS}
            state = replace(state, sides=len(sides), **filled | {"model": sides[0].model})
        told = answers.view(done, state, self.store, theme, self.shelf)
        return told | {"notes": [*told["notes"], *notes]}

    def _find(self, sides: list[Spec], prompt: str) -> Done | None:
        key = (tuple(sides), prompt)
        with self._lock:
            if key in self._done:
                self._done.move_to_end(key)
                return self._done[key]
        return None

    def _compared(self, asked: Asked, report: Report) -> dict:
        report(Step(0, 0, "opening the models"))
        sides, notes = specs(asked.state, self.shelf)
        done = self._find(sides, asked.state.prompt) or self._make(sides, asked.state.prompt, report)
        return self._view(asked, done, sides, notes)

    def _model(self, spec: Spec) -> tuple[LM, LM]:
        built = self.shelf.model(spec.model)
        key = replace(spec, edit="")
        with self._lock:
            if key in self._variants:
                self._variants.move_to_end(key)
                return built, self._variants[key]
        lm = variant(built, spec)
        with self._lock:
            self._variants[key] = lm
            while len(self._variants) > VARIANTS:
                self._variants.popitem(last=False)
        return built, lm

    def _models(self, sides: list[Spec]) -> list[tuple[LM, LM]]:
        """Every side's model as opened and as changed. Raises one BlockscopeError that tells what is wrong with each side."""
        models, wrong = [], {}
        for n, spec in enumerate(sides):
            try:
                edits(spec)
                models.append(self._model(spec))
            except BlockscopeError as error:
                wrong.setdefault(str(error).rstrip("."), []).append("ABCD"[n])
        if len(wrong) == 1:
            raise BlockscopeError(next(iter(wrong)))
        if wrong:
            raise BlockscopeError(". ".join(f"Side {', '.join(who)}: {why}" for why, who in wrong.items()))
        return models

    def _make(self, sides: list[Spec], prompt: str, report: Report) -> Done:
        """Run every side and keep what came out. Raises BlockscopeError, a sentence to show."""
        if not prompt:
            raise BlockscopeError("The prompt is empty: type some text and press Run.")
        models = self._models(sides)
        tokens = [lm.encode(prompt) for _, lm in models]
        if not all(tokens):
            raise BlockscopeError("The prompt holds no token that these models know: type some other text.")
        most = max(map(len, tokens))
        if most > self.shelf.max_tokens:
            raise BlockscopeError(
                f"This prompt has {most:,} tokens and the budget of this app is {self.shelf.max_tokens:,} "
                f"(--max-tokens), so it was not run. {models[0][1].cost(most).sentence}"
            )
        began = time.perf_counter()
        ends = [lm.ends(prompt) for _, lm in models]
        both = [Side(lm, edits(spec)) for spec, (_, lm) in zip(sides, models, strict=True)]
        lock = Lockstep(both, tokens, ends=None if None in ends else ends)
        _drain(lock.walk(), report)
        outcomes = lock.outcomes()
        pieces = [list(lm.pieces(ids)) for (_, lm), ids in zip(models, tokens, strict=True)]
        notes = [] if lock.one_vocabulary else [_alignment(lock)]
        done = Done(sides, lock, [built for built, _ in models], outcomes, pieces, time.perf_counter() - began, notes=notes)
        with self._lock:
            self._done[tuple(sides), prompt] = done
            while len(self._done) > KEPT:
                self._done.popitem(last=False)
        return done

    def _losses(self, asked: Asked, report: Report) -> dict | None:
        sides, _ = specs(asked.state, self.shelf)
        done = self._find(sides, asked.state.prompt)
        if done is None or (done.losses is None and done.seconds > LOSSES_UNDER):
            return None
        self._finish(done, report)
        theme = THEMES[asked.scheme if asked.state.theme == "auto" else asked.state.theme]
        return {"kind": "late", "late": [answers.describe(answers.late_card(done, theme), self.store)]}

    def _finish(self, done: Done, report: Report) -> None:
        if done.losses is None:
            done.losses = _drain(done.lock.losses(), report)


def _alignment(lock: Lockstep) -> str:
    """How sides without a common vocabulary are compared."""
    if lock.at is None:
        return "the sides do not share a vocabulary: tensors are compared by position, predictions are not"
    counts = ", ".join(f"{'ABCD'[n]} {ids.shape[1]}" for n, ids in enumerate(lock.ids))
    where = f"{count(len(lock.at[0]), 'position')}, where all have read the same characters"
    return f"the sides cut this text differently ({counts} tokens): tensors are compared at {where}, predictions are not"


def _drain(walk: Generator, report: Report):
    """Pass progress on; what the generator returns. A `report` that raises closes it."""
    try:
        while True:
            try:
                step = next(walk)
            except StopIteration as end:
                return end.value
            report(Step(step.done, step.total, step.what))
    finally:
        walk.close()


def blocks(compare: Compare) -> gr.Blocks:
    """The page as Gradio blocks, at its own address: what the parent serves lies one step above it."""
    on_bus = on_load("compare", "compare.js", "startBus", events=["look", "run", "halt"])
    on_view = on_load("compare", "compare.js", "startView", plotly=plotly_url("compare"))
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    html = template("compare.html", "compare")
    with gr.Blocks(title="Blockscope: compare", fill_width=True, analytics_enabled=False) as demo:
        view = gr.HTML({}, html_template=html, js_on_load=on_view, elem_id="view", apply_default_css=False)
        bus = gr.HTML({}, html_template="<i></i>", js_on_load=on_bus, elem_id="bus", visible="hidden", interactive=True)
        bus.look(compare.look, bus, view, queue=False, trigger_mode="always_last", **quiet)
        running = bus.run(compare.run, bus, view, trigger_mode="multiple", concurrency_id="torch", concurrency_limit=2, **quiet)
        bus.halt(None, None, None, cancels=[running], queue=False, **quiet)
        gr.api(compare.api, api_name="compare", concurrency_id="torch")
    demo.state_session_capacity = 200
    return demo
