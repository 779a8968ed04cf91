"""The weights of the next stage, read in a thread while this one computes."""

import threading
from collections.abc import Callable, Sequence

from torch import nn

from model.ending import started
from model.halting import Halted, asking, going
from model.stages import Stages

BEAT = 0.05  # seconds between two questions to whoever waits for a block


class Ahead:
    """Reads ahead through `stages`. Leaving its context ends the reading within a tensor or a few megabytes of one.

    `beat` is called while a block is waited for; an error that it raises ends the waiting.
    """

    def __init__(self, stages: Stages, beat: Callable[[], None] = lambda: None):
        self.stages, self.beat = stages, beat
        self._reading: _Reading | None = None

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *_) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._reading is not None:
            self._reading.gone.set()
            self._reading = None

    def take(self, stage: int) -> nn.Module | None:
        """The block of `stage`, waited for where it is on its way."""
        if self._reading is None or self._reading.stage != stage:
            self.begin([stage])
        reading, have = self._reading, {}
        if reading is not None:
            while reading.thread.is_alive():
                reading.thread.join(BEAT)
                going()
                self.beat()
            self._reading, have = None, reading.have
        with asking(self.beat):  # also where reading ahead failed: the error is raised here, to be seen
            block = self.stages.filled(stage, have)
        if block is not None:
            self.stages.store.meet(block.parameters())  # before more is sent, or that would be waited for as well
        return block

    def begin(self, upcoming: Sequence[int]) -> None:
        """Start on the first of the `upcoming` stages, if there is anything to read; what was under way is left."""
        self._leave()
        if upcoming and not self.stages.held(upcoming[0]):
            self._reading = _Reading(self.stages, upcoming[0])


class _Reading:
    """One block on its way. `have`: those of its parameters that are there, by name; the others lie ready in mapped pages."""

    def __init__(self, stages: Stages, stage: int):
        self.stages, self.stage = stages, stage
        self.have: dict[str, nn.Parameter] = {}
        self.gone = threading.Event()
        self.thread = started(self._run, self.gone.set)

    def _run(self) -> None:
        try:
            with asking(self._ask):
                self.stages.fetch(self.stage, self.have)
        except Exception:  # `take` reads again and raises it where somebody listens
            self.have.clear()

    def _ask(self) -> None:
        if self.gone.is_set():
            raise Halted
