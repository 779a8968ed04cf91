"""A finished comparison, and a view moved inside it."""

from dataclasses import dataclass, field, replace
from typing import Any

from model.compare import Lockstep, Losses
from viz.compare_state import LETTERS, CompareState
from viz.nodes.attention import STAGES
from viz.pages.compare_sides import Spec

SCORES = {stage.tap for stage in STAGES.values()}


@dataclass
class Done:
    """A finished comparison: its sides, their models as opened, what came out; `losses` once they are made."""

    specs: list[Spec]
    lock: Lockstep
    built: list[Any]
    outcomes: list
    pieces: list[list[str]]
    seconds: float
    losses: Losses | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def letters(self) -> str:
        return LETTERS[: len(self.specs)].upper()

    @property
    def lms(self) -> list[Any]:
        return [side.lm for side in self.lock.sides]

    @property
    def heads(self) -> int:
        """Heads that every layer of every side has."""
        return min(block.attn.n_heads for lm in self.lms for block in lm.config.blocks)

    def nth(self, state: CompareState) -> int:
        return LETTERS.index(state.against)


def fit(done: Done, state: CompareState) -> tuple[CompareState, list[str]]:
    """The view moved inside this comparison: its layers, heads, sides and tensors."""
    notes, lms = [], done.lms
    if done.nth(state) >= len(lms):
        state = replace(state, against="b")
    for name, most in (("layer", done.lock.depth - 1), ("head", done.heads - 1)):
        if getattr(state, name) > most:
            notes.append(f"there is no {name} {getattr(state, name)} here (0 to {most}): showing {most}")
            state = replace(state, **{name: most})
    have = set().union(*(lm.tap_modules for lm in lms))
    if not {f"blocks.{state.layer}.{state.tap}", state.tap} & have:
        notes.append(f"layer {state.layer} has no tensor {state.tap!a}: showing the attention logits")
        state = replace(state, tap="attn.hook_logits")
    if state.tap in SCORES and STAGES[state.stage].tap != state.tap:
        state = replace(state, stage=next(name for name, stage in reversed(STAGES.items()) if stage.tap == state.tap))
    return state, notes


def tap_of(done: Done, state: CompareState) -> str:
    here = f"blocks.{state.layer}.{state.tap}"
    return here if any(here in lm.tap_modules for lm in done.lms) else state.tap
