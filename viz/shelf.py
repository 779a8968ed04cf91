"""The models an app was started with, and the runs that are kept: shared by all visitors, changed by none of them.

A visitor names a model by its entry here or by a name of the library, never by a path. A kept run is found by everything
that decides its numbers (model, changes, prompt), so nobody can be shown another person's run for their own prompt.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.errors import BlockscopeError
from viz.change import changes
from viz.library import Library

MOST_TYPED = 32  # names from the library that are remembered
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
    """`sources`: what a visitor may choose -> what `opener` opens. `max_tokens` is the budget of one prompt.

    `shown_first` is the entry of a link that names none; `groups` puts entries of the menu under a heading, the others stand
    above. A model with parts changed is a variant, named by the spelling of its changes ("qk_norm=head"; "" as loaded);
    a handful is kept, with their runs. A model that a visitor trained is lent a place: it is opened by its name, which
    nobody can guess, and stands in no menu but that of whoever names it. `library` says what else a visitor may name; a
    handful of models stays open, and the one unused for longest is closed.
    """

    def __init__(
        self, sources: Mapping[str, object], opener: Callable[[object], LM], *, max_tokens=1024, runs=128, variants=6, lent=8,
        opened=6, shown_first: str = "", groups: Mapping[str, Sequence[str]] | None = None, library: Library | None = None,
    ):  # fmt: skip
        if not sources:
            raise BlockscopeError("there is no model to show: name one with --model, a folder or a preset")
        self.sources, self.max_tokens = dict(sources), max_tokens
        self.groups = {heading: list(names) for heading, names in (groups or {}).items()}
        self._first = shown_first if shown_first in self.sources else next(iter(self.sources))
        self._opener, self._most_runs, self._most_variants = opener, runs, variants
        self._most_lent, self._most_opened, self.library = lent, opened, library or Library()
        self._models: OrderedDict[str, LM] = OrderedDict()
        self._typed: OrderedDict[str, str] = OrderedDict()  # names that visitors found in the library -> sources
        self._lent: OrderedDict[str, None] = OrderedDict()
        self._variants: OrderedDict[tuple[str, str], LM] = OrderedDict()
        self._runs: OrderedDict[tuple[str, str, str], Run] = OrderedDict()
        self._opening = {name: threading.Lock() for name in self.sources}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        return list(self.sources)

    @property
    def lends(self) -> int:
        """How many models of visitors are kept."""
        return self._most_lent

    @property
    def menu(self) -> list[list]:
        """[heading, entries] in the order of the chooser; the first has no heading."""
        under = {name for names in self.groups.values() for name in names}
        return [["", [name for name in self.sources if name not in under]], *([h, n] for h, n in self.groups.items())]

    def menu_with(self, name: str) -> list[list]:
        """The menu of a visitor who shows `name`: a lent or typed model is in it, under a heading of its own."""
        heading = "trained live" if name in self._lent else "typed" if name in self._typed else ""
        return [*self.menu, [heading, [name]]] if heading else self.menu

    def lend(self, lm: LM) -> str:
        """Take in a model under a new name; the one lent longest ago goes where there are too many."""
        name = f"live-{secrets.token_urlsafe(12)}"
        with self._lock:
            self._models[name], self._opening[name], self._lent[name] = lm, threading.Lock(), None
            gone = [self._lent.popitem(last=False)[0] for _ in range(len(self._lent) - self._most_lent)]
            for old in gone:
                del self._opening[old]
                self._close(old)
        return name

    def _close(self, name: str) -> None:
        """Forget an open model with its variants and runs; whoever still runs it keeps it until then."""
        self._models.pop(name, None)
        for kept in (self._runs, self._variants):
            for key in [key for key in kept if key[0] == name]:
                del kept[key]

    def name(self, wanted: str) -> tuple[str, list[str]]:
        """The entry a visitor means; for none the one shown first; one that does not exist says so, whatever it looks like."""
        if wanted in self.sources or wanted in self._lent or wanted in self._typed or not wanted:
            return wanted or self._first, []
        if (source := self.library.find(wanted)) is not None:
            with self._lock:
                self._typed[wanted] = source
                self._opening.setdefault(wanted, threading.Lock())
                while len(self._typed) > MOST_TYPED:
                    old = self._typed.popitem(last=False)[0]
                    del self._opening[old]
                    self._close(old)
            return wanted, []
        return self._first, [f"no model of that name is open here: showing {self._first}"]

    def source(self, name: str) -> object | None:
        """What an entry is opened from; None for a model that was trained here."""
        return self.sources.get(name, self._typed.get(name))

    def ready(self, name: str) -> bool:
        """Whether `model(name)` answers without reading weights."""
        return name in self._models

    def model(self, name: str, which: str = "") -> LM:
        """The model, opened once however many visitors ask at the same time; a variant shares its weights and its memory."""
        opening = self._opening.get(name)
        if opening is None:
            raise BlockscopeError("this model was trained live and is no longer kept: train it again")
        with opening:
            built = self._open(name)
            if not which:
                return built
            with self._lock:
                variant = self._variants.get((name, which))
            return self._used(name, which, variant or built.variant(**changes(which)))

    def _open(self, name: str) -> LM:
        """The model as loaded, from now on the one used last; the one unused for longest is closed where there are too many."""
        if (built := self._models.get(name)) is None:
            if (source := self.sources.get(name) or self._typed.get(name)) is None:
                raise BlockscopeError("this model is no longer at hand: choose it again")
            built = self._opener(source)
        with self._lock:
            self._models[name] = built
            self._models.move_to_end(name)
            others = [other for other in self._models if other not in self._lent]
            for other in others[: max(len(others) - self._most_opened, 0)]:
                self._close(other)
        return built

    def _used(self, name: str, which: str, variant: LM) -> LM:
        """Keep a variant as the newest; the one unused for longest goes, and its runs with it."""
        with self._lock:
            self._variants[name, which] = variant
            self._variants.move_to_end((name, which))
            while len(self._variants) > self._most_variants:
                gone, _ = self._variants.popitem(last=False)
                for key in [key for key in self._runs if key[:2] == gone]:
                    del self._runs[key]
        return variant

    def keep(self, name: str, which: str, prompt: str, run: Run) -> Run:
        if which:
            self._used(name, which, run.lm)
        with self._lock:
            self._runs[name, which, prompt] = run
            self._runs.move_to_end((name, which, prompt))
            while len(self._runs) > self._most_runs:
                self._runs.popitem(last=False)
        return run

    def find(self, name: str, which: str, prompt: str) -> Run | None:
        """The kept run of this model or variant and prompt, if there is one."""
        with self._lock:
            if (run := self._runs.get((name, which, prompt))) is not None:
                self._runs.move_to_end((name, which, prompt))
                if (name, which) in self._variants:
                    self._variants.move_to_end((name, which))
            return run
