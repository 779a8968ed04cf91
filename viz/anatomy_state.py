"""What the Anatomy page shows, as one frozen value that is also its query string. Nothing that a browser sends is trusted.

`parse` never raises: it keeps what is valid, moves what is out of range to the nearest value, and says so in a sentence.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import parse_qsl, quote, urlencode

from viz.strangers import strangers

CHOICES: dict[str, tuple[str, ...]] = {
    "width": ("matched", "same"),
    "bits": ("16", "8", "32"),
    "theme": ("auto", "light", "dark"),
}
RANGES = {
    "batch": (1, 1 << 20),
    "length": (1, 1 << 24),
    "context": (1, 1 << 24),
    "together": (1, 1 << 20),
    "kind": (0, 1 << 20),
}
VECTORS = ("x", "swiglu_x", "w_gate", "w_up", "pair", "q", "k1", "k2")
NUMBERS = ("eps", "position", "frequency")
CONFIG_IN_LINK = 4000  # characters of a pasted config that a link carries; published configs have some 1,000
LONGEST = {"config": 1 << 16, "compare": 600, "model": 200} | dict.fromkeys(VECTORS, 200)
MOST_COMPARED = 6


@dataclass(frozen=True, kw_only=True)
class AnatomyState:
    """`config`: a pasted config.json, used in place of `model`; `compare`: presets with commas; `kind`: which block design."""

    model: str = "llama-3.1-8b"
    config: str = ""
    kind: int = 0
    batch: int = 1
    length: int = 1024
    context: int = 8192
    together: int = 32
    bits: str = "16"
    compare: str = "gpt2,llama-3.1-8b,qwen3-8b"
    width: str = "matched"
    theme: str = "auto"
    x: str = "2, 4, 6, 8"
    eps: float = 1e-5
    swiglu_x: str = "1, 2"
    w_gate: str = "2, 0; 1, -1"
    w_up: str = "1, 1; -1, 1"
    pair: str = "1, 0"
    position: float = 3.0
    frequency: float = 0.5
    q: str = "2, 1"
    k1: str = "1, 0"
    k2: str = "0, 1"

    @property
    def named(self) -> tuple[str, ...]:
        """Every model that is to stand beside the others, each once."""
        names = [name.strip() for name in self.compare.split(",")]
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def compared(self) -> tuple[str, ...]:
        return self.named[:MOST_COMPARED]

    @property
    def itemsize(self) -> int:
        return int(self.bits) // 8

    def query(self) -> str:
        """The query string that restores this view; what is at its default, or too long for an address, is left out."""
        changed = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        if len(changed.get("config", "")) > CONFIG_IN_LINK:
            del changed["config"]
        return urlencode(changed, quote_via=quote)


def parse(raw: object) -> tuple[AnatomyState, list[str]]:
    """A mapping of anything, or a query string -> the nearest valid state, and a sentence for each value that was changed."""
    if isinstance(raw, str):
        raw = dict(parse_qsl(raw.lstrip("?"), keep_blank_values=True))
    if not isinstance(raw, Mapping):
        return AnatomyState(), [f"the view was not a set of named values ({_show(raw)}): showing the default view"]
    taken, notes = {}, strangers(raw)
    for field in fields(AnatomyState):
        if field.name in raw:
            value, note = _read(field.name, raw[field.name], field.default)
            taken[field.name] = value
            notes += [note] if note else []
    return AnatomyState(**taken), notes


def numbers(text: str) -> list[float | str]:
    """ "2, 4 6" -> [2, 4, 6]; what is no number stays the word that was typed, which the calculators refuse by name."""
    words = [word for word in re.split(r"[,\s]+", text.strip("[]() \t")) if word]
    return [word if math.isnan(value := _real(word)) else value for word in words]


def rows(text: str) -> list[list[float | str]]:
    """ "2, 0; 1, -1" -> two rows."""
    return [numbers(row) for row in re.split(r"[;\n]|\]\s*,\s*\[", text) if row.strip()]


def _read(name: str, value: object, default: object) -> tuple[object, str | None]:
    if name in RANGES:
        return _whole(name, value, default)
    if name in NUMBERS:
        real = _real(value)
        if math.isfinite(real) and abs(real) <= 1e6:
            return real, None
        return default, f"{name} must be a number up to a million, got {_show(value)}: using {default:g}"
    if not isinstance(value, str):
        return default, f"{name} must be text, got {_show(value)}: using {_show(default)}"
    if name in CHOICES and value not in CHOICES[name]:
        return default, f"{name} must be one of {', '.join(CHOICES[name])}, got {_show(value)}: using {default}"
    if len(value) > LONGEST.get(name, 200):
        return default, f"{name} has {len(value):,} characters, at most {LONGEST.get(name, 200):,} are read: using the default"
    return value.encode("utf-8", "replace").decode(), None


def _whole(name: str, value: object, default: object) -> tuple[object, str | None]:
    number = _real(value)
    if not (math.isfinite(number) and number == int(number)):
        return default, f"{name} must be a whole number, got {_show(value)}: using {default}"
    low, high = RANGES[name]
    nearest = max(low, min(int(number), high))
    if nearest == number:
        return nearest, None
    return nearest, f"{name} must lie between {low:,} and {high:,}, got {_show(value)}: using {nearest:,}"


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or (isinstance(value, str) and len(value) > 40):
        return math.nan
    try:
        return float(value.replace(",", "").replace("−", "-") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return math.nan


def _show(value: object) -> str:
    """A hostile value in a sentence: short, and on one line."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
