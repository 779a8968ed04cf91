"""The models an app was started with, and the runs that are kept: shared by all visitors, changed by none of them.

A visitor names a model by its entry here or by a name of the library, never by a path. A kept run is found by everything
that decides its numbers (model, changes, prompt), so nobody can be shown another person's run for their own prompt.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from model.errors import BlockscopeError
from viz.change import changes
from viz.library import Library
from viz.opened import LM, Opened, Report

MOST_TYPED = 32  # names from the library that are remembered
LONGEST_NAME = 200  # characters
LIVE = "live-"  # how the names of models begin that visitors trained


def unheard(step: object) -> None:
    """Nobody listens to the progress."""


@dataclass(frozen=True)
class Run:
    """A run: the model as it ran, the tokens, and the largest |attention logit| of each layer that has run, in order."""

    lm: LM
    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    peaks: tuple[float, ...]
    seconds: float
    identities: dict[int, list] = field(default_factory=dict, compare=False)  # by layer, as layers are opened

    @property
    def whole(self) -> bool:
        """Whether every layer has run."""
        return len(self.peaks) == self.lm.config.n_layers


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
        self._most_runs, self._most_variants, self._most_lent = runs, variants, lent
        self.library = library or Library()
        self.opened = Opened(opener, opened, self._forget)
        self.on_close: list[Callable[[str], None]] = []  # called with the name of a model that is closed
        self._typed: OrderedDict[str, str] = OrderedDict()  # names that visitors found in the library -> sources
        self._lent: OrderedDict[str, None] = OrderedDict()
        self._variants: OrderedDict[tuple[str, str], LM] = OrderedDict()
        self._runs: OrderedDict[tuple[str, str, str], Run] = OrderedDict()
        self._lock = threading.RLock()

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
        name = f"{LIVE}{secrets.token_urlsafe(12)}"
        self.opened.put(name, lm)
        with self._lock:
            self._lent[name] = None
            gone = [self._lent.popitem(last=False)[0] for _ in range(len(self._lent) - self._most_lent)]
        for old in gone:
            self.opened.close(old)
        return name

    def _forget(self, name: str) -> None:
        """A model was closed: its variants and runs go with it."""
        with self._lock:
            for kept in (self._runs, self._variants):
                for key in [key for key in kept if key[0] == name]:
                    del kept[key]
        for told in self.on_close:
            told(name)

    def name(self, wanted: str) -> tuple[str, list[str]]:
        """The entry a visitor means; for none the one shown first; one that does not exist says so, whatever it looks like."""
        if not wanted or self._find(wanted):
            return wanted or self._first, []
        return self._first, [f"no model of that name is open here: showing {self._first}"]

    def choose(self, wanted: object) -> str:
        """The entry that a visitor typed. Raises BlockscopeError: of what is missing the same as of what may not be opened."""
        if not isinstance(wanted, str) or not wanted.strip():
            raise BlockscopeError(f"no name was typed{self._hint}")
        if len(wanted) > LONGEST_NAME:
            raise BlockscopeError(f"this name has {len(wanted):,} characters, and no model's has more than {LONGEST_NAME}")
        for name in dict.fromkeys((wanted, wanted.strip())):
            if self._find(name):
                return name
        raise BlockscopeError(f"no model named {ascii(wanted)[:80]} is open here{self._hint}")

    @property
    def _hint(self) -> str:
        found = {"name": "a model in this app's folders, as org/name or folder/file.gguf"} if self.library.roots else {}
        found |= {"hub": "an id of the Hugging Face hub, as org/name"} if self.library.hub else {}
        return f": type the name of {' or '.join(found.values())}" if found else ": choose one from the list"

    def _find(self, wanted: str) -> bool:
        """Whether this is an entry, or the name of a model in the library, which then becomes one."""
        if wanted in self.sources or wanted in self._lent or wanted in self._typed:
            return True
        if len(wanted) > LONGEST_NAME or (source := self.library.find(wanted)) is None:
            return False
        with self._lock:
            self._typed[wanted] = source
            gone = [self._typed.popitem(last=False)[0] for _ in range(len(self._typed) - MOST_TYPED)]
        for old in gone:
            self.opened.close(old)
        return True

    def source(self, name: str) -> object | None:
        """What an entry is opened from; None for a model that was trained here."""
        return self.sources.get(name, self._typed.get(name))

    def ready(self, name: str) -> bool:
        """Whether `model(name)` answers without reading weights; a model whose files have changed since is not."""
        return self.opened.check(name, self.source(name))

    def using(self, name: str) -> AbstractContextManager[None]:
        """Within this context the model is not closed for being one too many."""
        return self.opened.using(name)

    def model(self, name: str, which: str = "", report: Report = unheard) -> LM:
        """The model, opened once however many visitors ask at the same time; a variant shares its weights and its memory.

        `report` hears how far a download is, at any rate; what it raises ends the download, or the waiting for that of another
        visitor.
        """
        if name not in self.sources and name not in self._typed and name not in self._lent:
            live = "was trained live and is no longer kept: train it again"
            raise BlockscopeError(f"this model {live if name.startswith(LIVE) else 'is no longer at hand: choose it again'}")
        with self.opened.turn(name, report):
            built = self.opened.get(name, self.source(name), report)
            if not which:
                return built
            with self._lock:
                variant = self._variants.get((name, which))
            return self._used(name, which, variant or built.variant(**changes(which)))

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
