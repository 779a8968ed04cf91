"""A prompt's run: as far as its view needs, so that a slow model shows its layer soon, and then the layers that it lacks.

What has been measured is kept layer by layer: a run that was stopped goes on from there.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from model.errors import BlockscopeError
from model.view import Request
from viz.pages import answers
from viz.pages.forecast import LONG, Pace, Paces
from viz.shelf import LM, Run, Shelf
from viz.state import UiState
from viz.worker import BEAT, Step, watched

AT_ONCE = 2  # runs that compute at a time
SOON = 1.5  # seconds that a first view waits for the layers which it does not show
Report = Callable[[Step], None]
T = TypeVar("T")


def unheard(step: Step) -> None:
    """Nobody listens to the progress."""


@dataclass(frozen=True)
class Asked:
    """One request of a browser: `token` tells its answer from others, `scheme` is what its screen shows, light or dark.

    `which` spells the changes of its model once they are settled, "" for the model as loaded. `aside`: its text is not what
    runs, because the model takes token numbers.
    """

    token: int
    scheme: str
    name: str
    state: UiState
    notes: tuple[str, ...]
    which: str = ""
    aside: bool = False


class Runs:
    """The runs of the Explore page's visitors, kept on the shelf."""

    def __init__(self, shelf: Shelf, paces: Paces):
        self.shelf, self.paces = shelf, paces
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def in_turn(self, work: Callable[[Report], T], report: Report) -> T:
        """work(report) once fewer than AT_ONCE others compute. Opening needs no turn: a download keeps nobody waiting."""
        while not self._turns.acquire(timeout=BEAT):
            report(Step(0, 0, "waiting for its turn: others run"))
        try:
            return work(report)
        finally:
            self._turns.release()

    def kept(self, asked: Asked) -> Run | None:
        return self.shelf.find(asked.name, asked.which, asked.state.prompt)

    def until_view(self, asked: Asked, report: Report = unheard) -> Run:
        """Run a prompt within the budget as far as its view needs, or to the end where that comes soon.

        What was measured before is not run again. Raises BlockscopeError, a sentence to show.
        """
        name, state, before = asked.name, asked.state, self.kept(asked)
        if before is not None and before.whole:
            return before
        if not state.prompt:
            raise BlockscopeError("The prompt is empty: type some text and press Run.")
        report(Step(0, 0, f"running {name}"))
        lm = self.shelf.model(name, asked.which)
        tokens = list(lm.encode(state.prompt))
        if not tokens:
            raise BlockscopeError("The prompt holds no token that this model knows: type some other text.")
        if len(tokens) > self.shelf.max_tokens:
            raise BlockscopeError(
                f"This prompt has {len(tokens):,} tokens and the budget of this app is {self.shelf.max_tokens:,} "
                f"(--max-tokens), so it was not run. {lm.cost(len(tokens)).sentence}"
            )
        began, layers = time.perf_counter(), lm.config.n_layers
        layer, last = min(state.layer, layers - 1), answers.reach(lm, tokens, state)
        first = Step(0, 0, f"running {name}" + (f" · {lm.cost(len(tokens)).sentence}" if len(tokens) > LONG else ""))
        needed = [request for request in answers.run_requests(lm, tokens, state) if lm.stage_of(request.tap) <= last]
        walk(lm, tokens, needed, layer, report, first, until=last)
        seconds = time.perf_counter() - began
        took = seconds + (before.seconds if before is not None else 0)
        run = answers.grown(Run(lm, tuple(tokens), tuple(lm.pieces(tokens)), answers.peaks(lm, tokens, last + 1), took))
        soon = before is None and seconds / (last + 1) * (layers - last - 1) < SOON
        return self._finished(asked, run, report) if soon or run.whole else self._keep(asked, run)

    def whole(self, asked: Asked, report: Report = unheard) -> Run:
        """The run of every layer, kept or made now."""
        run = self.until_view(asked, report)
        return run if run.whole else self._finished(asked, run, report)

    def filling(self, asked: Asked, run: Run) -> Iterator[tuple[Step, Run]]:
        """Runs the layers that a view does not show; what is there so far is kept, wherever this is closed."""
        began, seconds = time.perf_counter(), run.seconds
        with closing(watched(partial(self.in_turn, partial(self._finished, asked, run)))) as steps:
            for step in steps:
                if len((more := answers.grown(run)).peaks) > len(run.peaks):
                    run = self._keep(asked, replace(more, seconds=seconds + time.perf_counter() - began))
                yield step, run

    def _finished(self, asked: Asked, run: Run, report: Report) -> Run:
        """The run with the layers that it lacks."""
        began, lm = time.perf_counter(), run.lm
        last = lm.config.n_layers - 1
        if not run.whole:
            needed = answers.run_requests(lm, run.tokens, asked.state)
            walk(lm, run.tokens, needed, min(asked.state.layer, last), report, Step(0, 0, f"running {asked.name}"), until=last)
            run = replace(run, peaks=answers.peaks(lm, run.tokens), seconds=run.seconds + time.perf_counter() - began)
        self.paces.keep(asked.name, Pace(lm.cost(len(run.tokens)), run.seconds))
        return self._keep(asked, run)

    def _keep(self, asked: Asked, run: Run) -> Run:
        return self.shelf.keep(asked.name, asked.which, asked.state.prompt, run)


def walk(
    lm: LM, tokens: Sequence[int], requests: list[Request], layer: int, report: Report, first: Step, until: int | None = None
) -> None:
    """Answer the requests for later; tells the layer that runs, and how far its attention is.

    `until`: the layer where these requests end in a run of all layers, of which the share done is then told.
    """
    done = [first]
    report(first)

    def pulse(share: float) -> None:
        report(replace(done[0], done=done[0].done + share) if done[0].total else done[0])

    for step in lm.walk(tokens, requests, checking=layer, pulse=pulse):
        more = 0 if until is None else until + 2 - step.total  # the embedding is a step too
        done[0] = Step(step.done + more, step.total if until is None else lm.config.n_layers + 1, step.now or step.what)
        report(done[0])
