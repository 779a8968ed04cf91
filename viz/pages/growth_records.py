"""The recorded runs of the Growth page: which there are, which two are shown together, and reading them once."""

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model.errors import BlockscopeError
from model.growth.record import SHIPPED, Record, index
from viz.growth_state import GrowthState, real

GROUPS = {  # group -> its title, in the order of the page; other groups follow under their own names
    "stress": "High learning rate, three seeds",
    "sweep": "Learning rates",
    "fixes": "Fixes",
}
OFF, ON, ALL = "off", "on", "all"
KEPT = 32  # records read, the most recently shown


@dataclass(frozen=True)
class Entry:
    """One recorded run, from its description alone."""

    file: str
    groups: tuple[str, ...]  # its own, and others that show it too
    arm: str
    label: str
    lr: float
    seed: int

    @classmethod
    def of(cls, meta: dict) -> "Entry":
        recipe = meta.get("recipe") or {}
        lr, seed = real(recipe.get("lr")), meta.get("seed", recipe.get("seed", 0))
        also = meta.get("also")
        groups = (meta["group"], *(g for g in also if isinstance(g, str))) if isinstance(also, list) else (meta["group"],)
        return cls(meta["file"], groups, meta["arm"], meta["label"], lr, seed if isinstance(seed, int) else 0)


@dataclass(frozen=True)
class Choice:
    """What is chosen, as it exists: the left and right run of each seed, and what may be chosen instead."""

    group: str
    pairs: list[tuple[Entry, Entry | None]]
    lrs: list[str]
    lr: str
    fixes: list[tuple[str, str]]  # arm, label
    fix: str
    seeds: list[str]
    seed: str
    notes: list[str]


class Records:
    """The records of one folder; arrays are read when a run is first shown."""

    def __init__(self, folder: Path = SHIPPED):
        self.folder = folder
        self.entries = [Entry.of(meta) for meta in index(folder)] if folder.is_dir() else []
        self._kept: OrderedDict[str, Record] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def groups(self) -> list[str]:
        present = {group for entry in self.entries for group in entry.groups}
        return [g for g in GROUPS if g in present] + sorted(present - set(GROUPS))

    def read(self, entry: Entry) -> Record:
        with self._lock:
            if entry.file not in self._kept:
                self._kept[entry.file] = Record.read(self.folder / entry.file)
            self._kept.move_to_end(entry.file)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[entry.file]

    def own(self, group: str) -> list[Entry]:
        """The runs made for a group; `members` are those that it shows."""
        return [entry for entry in self.entries if entry.groups[0] == group]

    def members(self, group: str) -> list[Entry]:
        return [entry for entry in self.entries if group in entry.groups]

    def baseline(self, entry: Entry) -> Entry | None:
        """The run without a fix at the same rate and seed."""
        return next((e for e in self.entries if e.arm == OFF and (e.lr, e.seed) == (entry.lr, entry.seed)), None)

    def choose(self, state: GrowthState) -> Choice:
        """The nearest that exists to what a state asks for; raises where nothing is recorded."""
        if not self.entries:
            raise BlockscopeError("No run is recorded in this app: train one below, or open a record of your own.")
        notes, groups = [], self.groups
        group = state.group if state.group in groups else groups[0]
        if state.group and state.group != group:
            notes.append(f"there is no group of runs of that name: showing {GROUPS.get(group, group)}")
        members = self.members(group)
        lrs = sorted({e.lr for e in members if math.isfinite(e.lr)})
        wanted = real(state.lr) if state.lr else math.nan
        lr = self._nearest(lrs, wanted, 0.1)
        if state.lr and (not math.isfinite(wanted) or wanted != lr):
            notes.append(f"no run has the learning rate {state.lr[:20]!r}: showing {lr:g}, the nearest that was run")
        at = [e for e in members if e.lr == lr]
        seeds = [str(s) for s in sorted({e.seed for e in at})]
        seed = state.run_seed if state.run_seed in seeds or (state.run_seed == ALL and len(seeds) > 1) else seeds[0]
        if state.run_seed and state.run_seed != seed:
            notes.append(f"no run has the seed {state.run_seed[:20]!r} here: showing {seed}")
        arms = list(dict.fromkeys(e.arm for e in at if e.arm != OFF)) or [OFF]
        fixes = [(arm, next(e.label for e in at if e.arm == arm)) for arm in arms]
        fix = state.fix if state.fix in arms else ON if ON in arms else arms[0]
        if state.fix and state.fix != fix:
            notes.append(f"there is no run with the fix {state.fix[:40]!r} here: showing {dict(fixes).get(fix, fix)}")
        pairs = [self._pair(at, fix, int(s)) for s in (seeds if seed == ALL else [seed])]
        return Choice(group, pairs, [f"{x:g}" for x in lrs], f"{lr:g}", fixes, fix, seeds, seed, notes)

    def _pair(self, at: list[Entry], fix: str, seed: int) -> tuple[Entry, Entry | None]:
        right = next((e for e in at if e.arm == fix and e.seed == seed), None)
        left = next((e for e in at if e.arm == OFF and e.seed == seed), None) or (self.baseline(right) if right else None)
        if left is None:
            return right, None
        return left, right if right is not left else None

    @staticmethod
    def _nearest(values: list[float], wanted: float, otherwise: float) -> float:
        if not values:
            return math.nan
        wanted = wanted if math.isfinite(wanted) and wanted > 0 else otherwise
        return min(values, key=lambda value: abs(math.log(value / wanted)))

    def sweep(self) -> dict[str, list[tuple[Entry, Record]]]:
        """Arm -> its runs by rising learning rate."""
        members = self.members("sweep")
        return {arm: [(e, self.read(e)) for e in sorted(members, key=lambda e: e.lr) if e.arm == arm] for arm in (OFF, ON)}


def end(record: Record, quantity: str = "max_logit") -> float:
    """The largest over all layers and heads at the last probe; of entropy the smallest."""
    return _extreme(record.values[quantity][-1], quantity)


def peak(record: Record) -> float:
    return _extreme(record.values["max_logit"], "max_logit")


def final_loss(record: Record) -> float:
    known = record.validation_loss[np.isfinite(record.validation_loss)]
    return float(known[-1]) if len(known) and np.isfinite(record.validation_loss[-1]) else math.nan


def over_heads(values: np.ndarray, quantity: str) -> np.ndarray:
    """values [..., layer, head] -> [..., layer]: the largest over heads, of entropy the smallest; absent heads do not count."""
    with np.errstate(invalid="ignore"):
        return (np.fmin if quantity == "entropy" else np.fmax).reduce(values, axis=-1)


def worst_head(record: Record, quantity: str = "max_logit", probe: int = -1) -> tuple[int, int]:
    """(layer, head) with the largest value at a probe, of entropy the smallest."""
    values = record.values[quantity][probe]
    sign = 1.0 if quantity == "entropy" else -1.0
    flat = np.where(np.isnan(values), np.inf, sign * values)
    return tuple(int(i) for i in np.unravel_index(np.argmin(flat), values.shape))


def _extreme(values: np.ndarray, quantity: str) -> float:
    with np.errstate(invalid="ignore"):
        found = (np.fmin if quantity == "entropy" else np.fmax).reduce(values, axis=None)
    return float(found)
