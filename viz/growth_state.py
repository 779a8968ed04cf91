"""What the Growth page shows, as one frozen value that is also its query string. Nothing that a browser sends is trusted.

`model`, `prompt` and `theme` are UiState's, so that the view goes along between the pages; the recorded runs have layers and
heads of their own (`at_layer`, `at_head`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import parse_qsl, quote, urlencode

from model.growth.quantities import QUANTITIES
from viz.state import CHOICES as SHARED_CHOICES
from viz.state import DEFAULT_PROMPT, LONGEST_PROMPT

MOST = 1_000_000
CHOICES: dict[str, tuple[str, ...]] = {
    "quantity": tuple(QUANTITIES),
    "untrained": ("scale", "depth", "context", "width"),
    "theme": SHARED_CHOICES["theme"],
}
RANGES = {
    "at_layer": (-1, MOST), "at_head": (-1, MOST), "run_step": (-1, MOST), "details": (0, 1), "factor": (0, 100),
    "live_steps": (1, 5000), "live_seed": (0, MOST),
}  # fmt: skip
LONGEST = {"models": 2000, "a_fixes": 400, "b_fixes": 400}
GROUPED = re.compile(r"-?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)
PROMPT_IN_LINK = 2000  # characters; a longer text is kept on the page and left out of the link


@dataclass(frozen=True, kw_only=True)
class GrowthState:
    """`lr`: of a recorded run, as text; `run_seed`: a seed or "all"; `at_layer`, `at_head`: -1 the worst; `run_step`: -1 the
    last snapshot. `factor`: which of the scale's measured factors. `a_...` and `b_...` are the two live arms: an architecture
    ("" the Llama block of this size) and names of fixes with commas. `text`: what they read, "" the standard library.
    `models`: checkpoints beside `model`, with commas; `seen`: the stage or quantity that is drawn of them."""

    group: str = ""
    lr: str = ""
    fix: str = ""
    run_seed: str = ""
    at_layer: int = -1
    at_head: int = -1
    run_step: int = -1
    quantity: str = "max_logit"
    details: int = 0
    size: str = "M2"
    live_lr: str = "0.1"
    live_seed: int = 0
    live_steps: int = 200
    a_arch: str = ""
    a_fixes: str = ""
    b_arch: str = ""
    b_fixes: str = "qk-norm"
    text: str = ""
    untrained: str = "scale"
    factor: int = 100
    model: str = ""
    models: str = ""
    prompt: str = DEFAULT_PROMPT
    seen: str = "masked"
    theme: str = "auto"

    def query(self) -> str:
        """The query string that restores this view; what is at its default, or too long for an address, is left out."""
        changed = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        if len(changed.get("prompt", "")) > PROMPT_IN_LINK:
            del changed["prompt"]
        return urlencode(changed, quote_via=quote, safe="=,")

    def names(self, field: str) -> tuple[str, ...]:
        """The entries of a field with commas, in order, each once."""
        return tuple(dict.fromkeys(name.strip() for name in getattr(self, field).split(",") if name.strip()))


def parse(raw: object) -> tuple[GrowthState, list[str]]:
    """A mapping of anything, or a query string -> the nearest valid state, and a sentence for each value that was changed."""
    if isinstance(raw, str):
        raw = dict(parse_qsl(raw.lstrip("?"), keep_blank_values=True))
    if not isinstance(raw, Mapping):
        return GrowthState(), [f"the view was not a set of named values ({shown(raw)}): showing the default view"]
    taken, notes = {}, []
    for field in fields(GrowthState):
        if field.name in raw:
            value, note = _read(field.name, raw[field.name], field.default)
            taken[field.name] = value
            notes += [note] if note else []
    return GrowthState(**taken), notes


def real(value: object) -> float:
    """A typed number; NaN where it is none. A comma groups thousands: with 0,1 somebody means a tenth, and gets no 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or (isinstance(value, str) and len(value) > 40):
        return math.nan
    try:
        if isinstance(value, str):
            value = value.replace("−", "-")
            return float(value.replace(",", "") if GROUPED.fullmatch(value.strip()) else value)
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _read(name: str, value: object, default: object) -> tuple[object, str | None]:
    if name in RANGES:
        return _whole(name, value, default)
    if isinstance(value, int | float) and not isinstance(value, bool) and name in ("lr", "live_lr", "run_seed"):
        value = f"{value:g}"  # an API caller may give numbers as numbers
    if not isinstance(value, str):
        return default, f"{_word(name)} must be text, got {shown(value)}: using {shown(default)}"
    if name in CHOICES and value not in CHOICES[name]:
        return default, f"{_word(name)} must be one of {', '.join(CHOICES[name])}, got {shown(value)}: using {default}"
    if name == "prompt":
        text = value.encode("utf-8", "replace").decode()
        return text[:LONGEST_PROMPT], None if len(text) <= LONGEST_PROMPT else f"only {LONGEST_PROMPT:,} characters are read"
    most = LONGEST.get(name, 200)
    if len(value) > most:
        return default, f"{_word(name)} has {len(value):,} characters, at most {most:,} are read: using {shown(default)}"
    return value.encode("utf-8", "replace").decode(), None


def _whole(name: str, value: object, default: object) -> tuple[object, str | None]:
    number = real(value)
    if not (math.isfinite(number) and number == int(number)):
        return default, f"{_word(name)} must be a whole number, got {shown(value)}: using {default}"
    low, high = RANGES[name]
    nearest = max(low, min(int(number), high))
    if nearest == number:
        return nearest, None
    return nearest, f"{_word(name)} must lie between {low:,} and {high:,}, got {shown(value)}: using {nearest:,}"


def _word(name: str) -> str:
    """A field as the page calls it."""
    words = {"run_seed": "seed", "run_step": "step", "at_layer": "layer", "at_head": "head", "live_lr": "learning rate"}
    return words.get(name, name.removeprefix("live_").replace("_", " "))


def shown(value: object) -> str:
    """A hostile value in a sentence: short, and on one line."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
