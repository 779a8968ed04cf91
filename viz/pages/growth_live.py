"""Training in front of a visitor: two arms step in turn in a worker thread; what is new is handed out as it comes."""

import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from model.counting import count_config
from model.errors import BlockscopeError
from model.growth.arms import ARCHITECTURE, Arm, differences, pair
from model.growth.corpus import Corpus
from model.growth.fixes import FIXES, fixed
from model.growth.record import Record
from model.growth.sizes import SIZES, base_arm
from model.growth.train import Event, Training, interleave
from model.presets import PRESETS
from viz.growth_state import GrowthState, real
from viz.pages.growth_records import over_heads
from viz.pages.growth_texts import Texts, standard
from viz.worker import Step

ARCHITECTURES = [name for name, config in PRESETS.items() if name.startswith("tiny-") and config.d_vocab >= 256]
LONGEST_PAUSE = 600.0  # seconds: after that a paused run ends, so that others get their turn
BREATH = 0.05  # seconds between two looks while paused
SNAPSHOTS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)  # of the run
LIVE = ("max_logit", "entropy", "one_hot")  # sent while it trains; the rest is in the record

Report = Callable[[Step], None]


def arms(state: GrowthState) -> tuple[Arm, Arm, list[str]]:
    """The two arms that a state describes and the names of what was chosen to differ; refused where more than that does."""
    left, right = (_arm(state, side) for side in "ab")
    chosen = sorted(set(state.names("a_fixes")) ^ set(state.names("b_fixes")))
    if state.a_arch != state.b_arch:
        chosen.append(ARCHITECTURE)
    pair(left, right, chosen)
    if not differences(left, right):
        raise BlockscopeError("Nothing differs between the two arms: choose a fix or another architecture for one of them.")
    return left, right, chosen


def _arm(state: GrowthState, side: str) -> Arm:
    if state.size not in SIZES:
        raise BlockscopeError(f"there is no size {state.size[:20]!r}: choose one of {', '.join(SIZES)}.")
    lr, steps = real(state.live_lr), state.live_steps
    if not math.isfinite(lr) or lr <= 0:
        raise BlockscopeError(
            f"The learning rate must be a number above 0, got {state.live_lr[:30]!r}: 0.1 shows growth, 0.003 learns well."
        )
    every = max(1, steps // 35, min(8, steps // 12))  # a probe costs near half a step: seldom enough to stay a small share
    arm = base_arm(
        state.size, lr=lr, steps=steps, seed=state.live_seed, record_every=every, validate_every=4 * every,
        validation_sequences=32,
    )  # fmt: skip
    architecture, fixes = getattr(state, f"{side}_arch"), state.names(f"{side}_fixes")
    if architecture:
        if architecture not in ARCHITECTURES:
            raise BlockscopeError(f"there is no small architecture {architecture[:40]!r}: choose one of the list.")
        arm = replace(arm, name=architecture, config=PRESETS[architecture])
    for name in fixes:
        if name not in FIXES:
            raise BlockscopeError(f"there is no fix {name[:40]!r}: there are {', '.join(FIXES)}.")
    held = fixed(arm, *(name for name in FIXES if name in fixes))
    return (
        replace(held, name=" + ".join([*([architecture] if architecture else []), *fixes])) if architecture and fixes else held
    )


def words(arm: Arm) -> str:
    """What an arm is, as the page writes it."""
    parts = arm.name.replace(" + ", "+").split("+")
    return ", ".join(FIXES[part].title if part in FIXES else "no fix" if part == "off" else part for part in parts)


@dataclass(eq=False)
class Live:
    """One run of two arms on the text that `read` gives. `points` grow while it trains; any thread may read them, and set
    `paused` or `stopped`."""

    left: Arm
    right: Arm
    chosen: list[str]
    read: Callable[[], Corpus] = standard
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    points: list[list] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    corpus: Corpus | None = None
    paused: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)  # the worker has left it
    began: float = 0.0
    resting: float = 0.0  # seconds spent paused
    done: int = 0

    @property
    def total(self) -> int:
        return 2 * self.left.recipe.steps

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take at the speed so far; None before anything is known."""
        spent = time.monotonic() - self.began - self.resting
        return spent / self.done * (self.total - self.done) if self.began and self.done > 3 else None

    def work(self, report: Report) -> None:
        """Train until the end, until `stopped`, or until `report` raises because nobody is there any more."""
        try:
            self._work(report)
        finally:
            self.over.set()

    def _work(self, report: Report) -> None:
        report(Step(0, 0, "reading the text"))
        text, steps = self.read(), self.left.recipe.steps
        text.require(self.left.recipe.context)
        report(Step(0, 0, "counting its bigrams and trigrams"))
        text.described()  # counts them, once a text, before the clock starts
        self.corpus = text
        snapshots = sorted({round(share * steps) for share in SNAPSHOTS})
        self.trainings = [Training(arm, text, snapshots=snapshots) for arm in (self.left, self.right)]
        self.began = time.monotonic()
        for which, event in interleave(self.trainings, self.chosen):
            self.points.append(point(which, event))
            self.done = sum(training.step for training in self.trainings)
            report(Step(self.done, self.total, "training"))
            self._rest(report)
            if self.stopped.is_set():
                return

    def _rest(self, report: Report) -> None:
        began = time.monotonic()
        while self.paused.is_set() and not self.stopped.is_set():
            report(Step(self.done, self.total, "paused"))
            time.sleep(BREATH)
            if time.monotonic() - began > LONGEST_PAUSE:
                self.stopped.set()
        self.resting += time.monotonic() - began

    def records(self) -> list[Record]:
        """What was measured, as two records; empty where nothing was yet."""
        if not all(training.probes for training in self.trainings):
            return []
        return [training.record(name=f"live-{training.arm.name}", label=words(training.arm)) for training in self.trainings]


def point(which: int, event: Event) -> list:
    """[arm, step, loss of the batch, probe or None]; a probe is [validation loss, bound, each of LIVE by layer]."""
    if event.probe is None:
        return [which, event.step, _number(event.train_loss), None]
    probe = event.probe
    layers = [[_number(v) for v in over_heads(probe.values[quantity], quantity)] for quantity in LIVE]
    bounds = probe.bound[np.isfinite(probe.bound)]
    told = [_number(probe.validation_loss), _number(float(bounds.max())) if len(bounds) else None, *layers]
    return [which, event.step, _number(event.train_loss), told]


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def form(state: GrowthState, texts: Texts) -> dict:
    """What may be chosen, what differs as chosen now, or the sentence on why it cannot be trained."""
    told: Mapping = {
        "sizes": [[name, size.title, size.steps] for name, size in SIZES.items()],
        "fixes": [[name, fix.title] for name, fix in FIXES.items()],
        "architectures": ARCHITECTURES,
        "texts": texts.menu(state.text),
        "text": texts.facts(state.text),
    }
    try:
        left, right, _ = arms(state)
    except BlockscopeError as error:
        return {**told, "wrong": str(error), "differs": [], "names": ["", ""]}
    counts = [count_config(arm.config).parameters for arm in (left, right)]
    names = [f"{words(arm)}: {n:,} parameters" for arm, n in zip((left, right), counts, strict=True)]
    return {**told, "wrong": "", "differs": differences(left, right), "names": names}
