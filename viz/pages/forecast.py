"""What a prompt would take, said before anybody presses Run: tokens, FLOP, memory, and seconds where a run here tells them."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model.cost import Cost, amount
from model.memory import free
from viz.shelf import LM
from viz.theme import count

LONG = 1024  # tokens from which on a prompt's cost is said
SHORTEST, FURTHEST = 0.5, 64.0  # seconds that a run must have taken, and times its FLOP, to say how long another will take
MOST = 64  # models whose last run is remembered


@dataclass(frozen=True)
class Pace:
    """A run that this machine did: its cost and how long it took."""

    cost: Cost
    seconds: float

    def predicts(self, other: Cost) -> float | None:
        """Seconds that `other` takes if time goes with FLOP; None where this run was too short or too small to tell."""
        ratio = other.flops / max(self.cost.flops, 1)
        return self.seconds * ratio if self.seconds >= SHORTEST and ratio <= FURTHEST else None


class Paces:
    """The last run of each model, for all visitors."""

    def __init__(self):
        self._last: OrderedDict[str, Pace] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, name: str, pace: Pace) -> None:
        with self._lock:
            self._last[name] = pace
            self._last.move_to_end(name)
            while len(self._last) > MOST:
                self._last.popitem(last=False)

    def get(self, name: str) -> Pace | None:
        return self._last.get(name)


def forecast(lm: LM, tokens: int, pace: Pace | None, max_tokens: int, room: Callable[[Any], int] = free) -> dict[str, str]:
    """{"text", "from", "warning"}: one line, what its seconds come from, and why this prompt had better not be run.

    All empty for a prompt that is not long. `room`: bytes that can still be allocated on a device.
    """
    if tokens <= LONG:
        return {"text": "", "from": "", "warning": ""}
    found = lm.cost(tokens)
    seconds = pace.predicts(found) if pace is not None else None
    said = [count(tokens, "token"), f"about {amount(found.flops, 'FLOP')}", f"about {amount(found.bytes, 'B')} of memory"]
    why = ""
    if seconds is not None:
        said.append(f"about {duration(seconds)}")
        why = f"as long as its FLOP say, from the last run here: {count(pace.cost.tokens, 'token')} in {duration(pace.seconds)}"
    return {"text": " · ".join(said), "from": why, "warning": _warning(lm, found, max_tokens, room)}


def _warning(lm: LM, found: Cost, max_tokens: int, room: Callable[[Any], int]) -> str:
    if found.tokens > max_tokens:
        return f"The budget of this app is {max_tokens:,} tokens (--max-tokens): this prompt will not be run."
    bound = lm.store.bound
    if bound is not None and found.bytes > bound.kept:
        return f"That is more memory than this app was given ({amount(bound.kept, 'B')}, --memory)."
    left = room(lm.device)
    where = "on this machine" if lm.device.type == "cpu" else f"on {lm.device}"
    return f"That is more memory than the {amount(left, 'B')} that are free {where}." if found.bytes > left else ""


def duration(seconds: float) -> str:
    """8.4 s, 52 s, 12 min, 1 h 20 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
