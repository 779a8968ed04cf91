"""What needs a model to run but nothing to train: sweeps, and checkpoints over a text. Queued, with progress, remembered."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeVar

import torch

from model.errors import BlockscopeError
from model.growth import untrained
from model.growth.probing import windows
from model.growth.survey import Survey, surveying
from model.growth.sweeps import Sweep
from viz.growth_state import GrowthState
from viz.nodes.card import Card
from viz.pages import growth_survey
from viz.pages.answers import describe
from viz.pages.explore import _progress
from viz.pages.growth_texts import standard
from viz.pages.growth_untrained import CARDS, KINDS, scale_cards
from viz.shelf import LM, Shelf
from viz.store import Store
from viz.theme import Theme
from viz.worker import Step

UP = "../"
KEPT = 64  # surveys
STEPS = ": training steps"  # how the heading of a directory of checkpoints ends on the shelf
PAIR = ("qknorm-off", "qknorm-on")  # how the names of the trained pair end
TEXTS, LENGTH = 8, 256  # of held-out text for the scale sweep
SWEEPS = {"depth": untrained.depth_sweep, "context": untrained.context_sweep, "width": untrained.width_sweep}
Report = Callable[[Step], None]
T = TypeVar("T")


class Jobs:
    """`run(job)`: "untrained" or "survey". Results are kept, so that another stage or theme of the same costs nothing."""

    def __init__(self, shelf: Shelf, store: Store):
        self.shelf, self.store = shelf, store
        self._surveys: OrderedDict[tuple[str, str], Survey] = OrderedDict()
        self._sweeps: dict[str, list[Sweep]] = {}
        self._lock = threading.Lock()

    def run(self, job: object, state: GrowthState, theme: Theme, token: int) -> Iterator[dict]:
        """Progress, then {"kind": job, "cards": ...}."""
        works = {"untrained": self._untrained, "survey": self._survey}
        if job not in works:
            raise BlockscopeError("there is no such measurement here")
        told = yield from _told(_progress(token, partial(works[job], state, theme)), job)
        yield told | {"kind": job, "token": token, "job": job}

    # ---- growth without training ------------------------------------------------------------------------------------

    def _untrained(self, state: GrowthState, theme: Theme, report: Report) -> dict:
        found = self.sweeps(state.untrained, report)
        told = {"what": state.untrained, "title": KINDS[state.untrained], "label": _label(found)}
        if state.untrained == "scale":
            cards, more = scale_cards(found, theme)
            told["label"] = f"{told['label']} {more.pop('law')}"
            return told | {"cards": self._cards(cards), **more}
        return told | {"cards": self._cards(CARDS[state.untrained](found[0], theme))}

    def sweeps(self, kind: str, report: Report = lambda step: None) -> list[Sweep]:
        """Of the trained pair one each for "scale", else one; measured once for all visitors."""
        if kind not in self._sweeps:
            if kind == "scale":
                models = self._pair(report)
                context = min(LENGTH, *(lm.config.context for lm in models))
                held_out = standard().validation
                text = windows(held_out, torch.linspace(0, len(held_out) - context - 1, TEXTS).long(), context)
                found = [_drained(untrained.scale_sweep(lm, text), report) for lm in models]
            else:
                found = [_drained(SWEEPS[kind](), report)]
            self._sweeps[kind] = found
        return self._sweeps[kind]

    def _pair(self, report: Report) -> list[LM]:
        names = [next((name for name in self.shelf.names if name.endswith(end)), None) for end in PAIR]
        if None in names:
            raise BlockscopeError(
                "The trained pair, code-qknorm-off and code-qknorm-on, is not open here: name both folders with --model."
            )
        report(Step(0, 0, "opening the trained pair"))
        return [self.shelf.model(name) for name in names]

    # ---- checkpoints ------------------------------------------------------------------------------------------------

    def _survey(self, state: GrowthState, theme: Theme, report: Report) -> dict:
        names, notes = self.chosen(state)
        found, lines = [], []
        for name in names:
            survey, line = self.surveyed(name, state.prompt, report)
            found.append((name, survey))
            lines.append(line)
        seen = state.seen if state.seen in growth_survey.SEEN else "masked"
        steps = [(growth_survey.step_of(name), survey) for name, survey in found if self._is_step(name)]
        curve = growth_survey.growth([(step, s) for step, s in steps if step is not None], seen, theme)
        surveys = [survey for _, survey in found]
        if len(set(lines)) > 1:
            lines = [line and f"{name}: {line}" for name, line in zip(names, lines, strict=True)]
        about = [growth_survey.facts(survey) for survey in surveys]
        cards = [*([curve] if curve else []), *growth_survey.cards(surveys, seen, theme)]
        return {
            "cards": self._cards(cards), "table": growth_survey.table(surveys),
            "notes": notes + sorted(set(filter(None, lines))),
            "about": about[0] if len(set(about)) == 1 else "",  # else each map says its own
            "seen": seen, "names": names,
            "keys": [survey.name for survey in surveys[: growth_survey.MOST]],
        }  # fmt: skip

    def chosen(self, state: GrowthState) -> tuple[list[str], list[str]]:
        """The models that a state names, by their entries on the shelf; a group's heading stands for all of its entries."""
        asked, names, notes = state.names("models"), [], []
        for name in ((state.model,) if state.model or not asked else ()) + asked:
            if name in self.step_groups:
                names += self.shelf.groups[name]
            else:
                known, wrong = self.shelf.name(name)
                names += [] if wrong else [known]
                notes = [*notes, *wrong]
        names = list(dict.fromkeys(names))
        names = names or [self.shelf.name("")[0]]
        steps = [name for name in names if self._is_step(name)]
        rest = [name for name in names if name not in steps]
        if len(rest) > growth_survey.MOST:
            notes = [*notes, f"at most {growth_survey.MOST} models are shown beside each other"]
        return [*rest[: growth_survey.MOST], *steps], notes

    def _is_step(self, name: str) -> bool:
        """Whether an entry is one of a directory of training steps, which the app was started with."""
        return any(name in self.shelf.groups[heading] for heading in self.step_groups)

    @property
    def step_groups(self) -> list[str]:
        return [heading for heading in self.shelf.groups if heading.endswith(STEPS)]

    @property
    def offered(self) -> tuple[str, ...]:
        """Models one by one, and each directory of training steps as one."""
        steps = {name for heading in self.step_groups for name in self.shelf.groups[heading]}
        return (*(name for name in self.shelf.names if name not in steps), *self.step_groups)

    def surveyed(self, name: str, text: str, report: Report = lambda step: None) -> tuple[Survey, str]:
        """The survey of a model over a text, and a sentence where only the text's beginning fits the budget."""
        key = (name, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())
        if not text.strip():
            raise BlockscopeError("The text is empty: type some, or choose a text file.")
        with self._lock:
            kept = self._surveys.get(key)
        report(Step(0, 0, f"opening {name}"))
        lm = self.shelf.model(name)
        tokens = lm.encode(text[: 32 * self.shelf.max_tokens])
        line = ""
        if len(tokens) > self.shelf.max_tokens or len(text) > 32 * self.shelf.max_tokens:
            line = f"the text is longer than the budget of this app: its first {self.shelf.max_tokens:,} tokens are measured"
            tokens = tokens[: self.shelf.max_tokens]
        if not tokens:
            raise BlockscopeError(f"The text holds no token that {name} knows: type some other text.")
        if kept is None:
            kept = _drained(surveying(lm, list(tokens)), report, name)
            with self._lock:
                self._surveys[key] = kept
                while len(self._surveys) > KEPT:
                    self._surveys.popitem(last=False)
        return kept, line

    def _cards(self, found: list[Card]) -> list[dict]:
        told = [describe(one, self.store) for one in found]
        return [one | {"url": UP + one["url"]} if "url" in one else one for one in told]


def _label(found: list[Sweep]) -> str:
    """The sentence of every sweep, once where two models have the same: "a, b: ..."."""
    parts = [sweep.label.partition(": ") for sweep in found]
    if len({rest for _, _, rest in parts}) == 1:
        return f"{', '.join(name for name, _, _ in parts)}: {parts[0][2]}"
    return " ".join(sweep.label for sweep in found)


def _told(answers: Generator[dict, None, T], job: str) -> Generator[dict, None, T]:
    """Progress answers that say which job they are of."""
    try:
        while True:
            try:
                told = next(answers)
            except StopIteration as end:
                return end.value
            yield told | {"job": job}
    finally:
        answers.close()


def _drained(walk: Generator, report: Report, name: str = "") -> T:
    """What a walk returns, its progress passed on; a `report` that raises closes it."""
    try:
        while True:
            try:
                step = next(walk)
            except StopIteration as end:
                return end.value
            report(Step(step.done, step.total, f"{name}: {step.what}" if name else step.what))
    finally:
        walk.close()
