"""The models that are open: each opened once, however many ask; a handful at a time; again where its files have changed."""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model.checkpoints.hub import is_id
from model.errors import BlockscopeError
from viz.worker import Step

LM = Any  # model.run.LM; typed loosely so that tests can pass a small stand-in
Report = Callable[[Step], None]
BEAT = 0.1  # seconds between two looks at whether a model that somebody else opens is there
BESIDE = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer.model")  # read with a weight file
READ = (".json", ".safetensors", ".pth", ".gguf", ".model")  # of a folder


class Opened:
    """At most `most` models that `opener(source)` opened, by their names; `forget(name)` is called when one is closed.

    Too many open: those unused for longest go, never one that is in use. `opener` takes `progress=` for a model of the hub.
    """

    def __init__(self, opener: Callable[..., LM], most: int, forget: Callable[[str], None]):
        self.opener, self._most, self._forget = opener, most, forget
        self.models: OrderedDict[str, LM] = OrderedDict()
        self._stamps: dict[str, object] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._steps: dict[str, Step] = {}  # how far a model is that is being opened
        self._users: Counter[str] = Counter()
        self._lock = threading.RLock()

    def __contains__(self, name: str) -> bool:
        return name in self.models

    def put(self, name: str, lm: LM) -> None:
        """A model that came from no source."""
        with self._lock:
            self.models[name] = lm

    def close(self, name: str) -> None:
        """Whoever still runs it keeps it until then."""
        with self._lock:
            self.models.pop(name, None)
            self._stamps.pop(name, None)
            if (turn := self._turns.get(name)) is not None and not turn.locked():
                del self._turns[name]
        self._forget(name)

    def check(self, name: str, source: object) -> bool:
        """Whether it is open and its files are as they were then; it is closed where they are not."""
        if name in self.models and source is not None and self._stamps.get(name) != stamp(source):
            self.close(name)
        return name in self.models

    def get(self, name: str, source: object | None, report: Report) -> LM:
        """The model, from now on the one used last. Called by whoever has the turn."""
        if not self.check(name, source):
            if source is None:
                raise BlockscopeError("this model is no longer at hand: choose it again")
            seen = stamp(source)
            if seen is None and os.path.isabs(str(source)):
                raise BlockscopeError(f"{name} is no longer where it was on this machine's disk: choose another model")
            progress = {"progress": self._told(name, report)} if isinstance(source, str) and is_id(source) else {}
            try:
                built = self.opener(source, **progress)
            finally:
                self._steps.pop(name, None)
            with self._lock:
                self.models[name], self._stamps[name] = built, seen
        with self._lock:
            built = self.models[name]
            self.models.move_to_end(name)
            self._trim(keep=name)
        return built

    @contextmanager
    def turn(self, name: str, report: Report) -> Iterator[None]:
        """One at a time opens a model; who waits hears how far the other one is, and may give up by raising in `report`."""
        with self._lock:
            turn = self._turns.setdefault(name, threading.Lock())
        while not turn.acquire(timeout=BEAT):
            if (step := self._steps.get(name)) is not None:
                report(step)
        try:
            yield
        finally:
            turn.release()

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Within this context the model is not closed for being one too many."""
        with self._lock:
            self._users[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._users[name] -= 1
                self._users += Counter()  # drops what is zero
                self._trim()

    def _trim(self, keep: str = "") -> None:
        counted = [name for name in self.models if name in self._stamps]
        unused = [name for name in counted if name != keep and not self._users[name]]
        for name in unused[: max(len(counted) - self._most, 0)]:
            self.close(name)

    def _told(self, name: str, report: Report) -> Callable[[str, int, int], None]:
        def told(file: str, done: int, total: int) -> None:
            unit, size = ("MB", 10**6) if total >= 10**7 else ("kB", 10**3)
            step = Step(done // size, max(total // size, 1), f"downloading {file} of {name}, in {unit}")
            self._steps[name] = step
            report(step)

        return told


def stamp(source: object) -> frozenset[tuple[str, int, int]] | None:
    """(name, size, time of change) of every file that a model on this disk is read from; None where nothing lies there."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            files = [file for file in path.iterdir() if file.suffix in READ]
        elif path.is_file():
            files = [path, *(path.parent / name for name in BESIDE)]
        else:
            return None
        return frozenset((file.name, (s := file.stat()).st_size, s.st_mtime_ns) for file in files if file.exists())
    except (OSError, ValueError, RuntimeError):
        return None
