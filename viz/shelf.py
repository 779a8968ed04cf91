"""The models an app was started with, and the runs that are kept: shared by all visitors, changed by none of them.

A visitor names a model by its entry here, never by a path. A kept run is found by everything that decides its numbers
(model, QK-norm, prompt), so nobody can be shown another person's run for their own prompt.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model.errors import BlockscopeError

LM = Any  # model.run.LM; typed loosely so that tests can pass a small stand-in


@dataclass(frozen=True)
class Run:
    """A finished run: the model as it ran, the tokens, and the largest |attention logit| of each layer."""

    lm: LM
    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    peaks: tuple[float, ...]
    seconds: float
    identities: dict[int, list] = field(default_factory=dict, compare=False)  # by layer, as layers are opened


class Shelf:
    """`sources`: what a visitor may choose -> what `opener` opens. `max_tokens` is the budget of one prompt."""

    def __init__(self, sources: Mapping[str, object], opener: Callable[[object], LM], *, max_tokens=1024, runs=128):
        if not sources:
            raise BlockscopeError("there is no model to show: name one with --model, a folder or a preset")
        self.sources, self.max_tokens = dict(sources), max_tokens
        self._opener, self._most_runs = opener, runs
        self._models: dict[tuple[str, str], LM] = {}
        self._runs: OrderedDict[tuple[str, str, str], Run] = OrderedDict()
        self._opening = {name: threading.Lock() for name in self.sources}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        return list(self.sources)

    def name(self, wanted: str) -> tuple[str, list[str]]:
        """The entry a visitor means, the first one for none; an entry that does not exist says so, whatever it looks like."""
        first = self.names[0]
        if wanted in self.sources or not wanted:
            return wanted or first, []
        return first, [f"no model of that name is open here: showing {first}"]

    def ready(self, name: str) -> bool:
        """Whether `model(name)` answers without reading weights."""
        return (name, "as-built") in self._models

    def model(self, name: str, qk: str = "as-built") -> LM:
        """The model, opened once however many visitors ask at the same time; with another `qk` it shares the same weights."""
        with self._opening[name]:
            if (name, "as-built") not in self._models:
                self._models[name, "as-built"] = self._opener(self.sources[name])
            built = self._models[name, "as-built"]
            if qk in ("as-built", built.qk_norm):
                return built
            if (name, qk) not in self._models:
                self._models[name, qk] = built.variant(qk_norm=qk)
            return self._models[name, qk]

    def keep(self, name: str, qk: str, prompt: str, run: Run) -> Run:
        with self._lock:
            self._runs[name, qk, prompt] = run
            self._runs.move_to_end((name, qk, prompt))
            while len(self._runs) > self._most_runs:
                self._runs.popitem(last=False)
        return run

    def find(self, name: str, qk: str, prompt: str) -> Run | None:
        """The kept run of this model, QK-norm and prompt, if there is one."""
        with self._lock:
            if (run := self._runs.get((name, qk, prompt))) is not None:
                self._runs.move_to_end((name, qk, prompt))
            return run
