"""What the page shows, as one frozen value that is also the URL's query string.

Everything in it comes from a browser or an API caller, so nothing is trusted: `parse` never raises, keeps what is valid,
and says in one sentence each what it changed. `fit` does the same against a model that is loaded and a prompt that is read.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from urllib.parse import parse_qsl, quote, urlencode

from viz.change import changes, cleaned, spelled

DEFAULT_PROMPT = "def area(width, height):\n    return width * height\n"
LONGEST_PROMPT = 1_000_000  # characters; the token budget refuses far shorter prompts, with their cost
MOST = 1_000_000  # no layer, head or position reaches it; keeps hostile integers small
ZOOM = re.compile(r"(\d{1,7})-(\d{1,7}),(\d{1,7})-(\d{1,7})", re.ASCII)
LONGEST_CHANGE = 600  # characters

CHOICES: dict[str, tuple] = {
    "page": ("explore",),
    "stage": ("raw", "scaled", "capped", "masked", "pattern"),
    "qk": ("as-built", "off", "head", "projection"),
    "neurons": ("index", "sorted"),
    "theme": ("auto", "light", "dark"),
}
TWINS = ("capped", "pattern")  # nodes of the diagram that are stages of the scores too
RANGES = {"layer": (0, MOST), "head": (0, MOST), "token": (-1, MOST), "log": (0, 1), "hide_first": (0, 1)}


@dataclass(frozen=True, kw_only=True)
class UiState:
    """One view of the page. `token` is a query position, -1 the last; `node` is a node of the diagram; "" = the first model.

    `change` names the other parts that differ from the model as loaded ("norm=layernorm,window=8"); `qk` is the change that
    has a place of its own beside the picture. `zoom` is a window of the attention square: "4096-4351,0-255", queries and keys.
    """

    page: str = "explore"
    model: str = ""
    prompt: str = DEFAULT_PROMPT
    layer: int = 0
    head: int = 0
    token: int = -1
    node: str = "logits"
    stage: str = "scaled"
    qk: str = "as-built"
    change: str = ""
    log: int = 0
    hide_first: int = 0
    neurons: str = "index"
    zoom: str = ""
    theme: str = "auto"

    @property
    def changes(self) -> dict[str, str]:
        """Every part that is asked to differ, by its name in model.surgery."""
        return changes(self.change) | ({} if self.qk == "as-built" else {"qk_norm": self.qk})

    @property
    def window(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The stretches of queries and keys that are looked at, each from its first to behind its last; None: all."""
        found = ZOOM.fullmatch(self.zoom)
        if found is None:
            return None
        q0, q1, k0, k1 = map(int, found.groups())
        return (q0, q1 + 1), (k0, k1 + 1)

    def query(self) -> str:
        """The query string that restores this view; fields at their default are left out."""
        changed = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        return urlencode(changed, quote_via=quote, safe="=,")


def parse(raw: object) -> tuple[UiState, list[str]]:
    """A mapping of anything, or a query string -> the nearest valid state, and a sentence for each value that was changed."""
    if isinstance(raw, str):
        raw = dict(parse_qsl(raw.lstrip("?"), keep_blank_values=True))
    if not isinstance(raw, Mapping):
        return UiState(), [f"the view was not a set of named values ({_show(raw)}): showing the default view"]
    taken, notes = {}, []
    for field in fields(UiState):
        if field.name in raw:
            value, note = _read(field.name, raw[field.name], field.default)
            taken[field.name] = value
            notes += [note] if note else []
    parts = changes(taken.get("change", ""))
    qk = parts.pop("qk_norm", None)
    if qk in CHOICES["qk"]:  # QK-norm has a field of its own
        taken["qk"] = taken["qk"] if taken.get("qk", "as-built") != "as-built" else qk
    return UiState(**taken | {"change": spelled(parts)}), notes


def fit(state: UiState, *, layers: int, heads: int, tokens: int, nodes: Sequence[str]) -> tuple[UiState, list[str]]:
    """The same view on a model with so many layers and heads, a prompt of so many tokens and a block with these nodes."""
    notes, state = [], joined(state)
    for name, count, low in (("layer", layers, 0), ("head", heads, 0), ("token", tokens, -1)):
        value = getattr(state, name)
        nearest = max(low, min(value, count - 1))
        if nearest != value:
            notes.append(f"there is no {name} {value} here (0 to {count - 1}): showing {nearest}")
            state = replace(state, **{name: nearest})
    if state.window is not None:
        inside = [(low, min(high, tokens)) for low, high in state.window]
        spelled_out = ",".join(f"{low}-{high - 1}" for low, high in inside)
        if any(low >= high for low, high in inside):
            notes.append(f"there is no window {state.zoom} in {tokens:,} tokens: showing the whole square")
        state = replace(state, zoom="" if any(low >= high for low, high in inside) else spelled_out)
    if state.stage == "capped" and "capped" not in nodes:
        notes.append("this block has no soft-cap: showing the scaled logits")
        state = replace(state, stage="scaled", node="logits" if state.node == "capped" else state.node)
    if state.node not in nodes:
        nearest = UiState.node if UiState.node in nodes else nodes[0]
        notes.append(f"this block has no node {_show(state.node)}: showing {nearest}")
        state = replace(state, node=nearest)
    return joined(state), notes


def joined(state: UiState) -> UiState:
    """The nodes of softmax and soft-cap are stages as well, and the same pictures: choosing one chooses the other."""
    if state.node in TWINS:
        return replace(state, stage=state.node)
    return replace(state, node=state.stage) if state.node == "logits" and state.stage in TWINS else state


def _read(name: str, value: object, default: object) -> tuple[object, str | None]:
    if name in RANGES:
        return _whole(name, value, default)
    if not isinstance(value, str):
        return default, f"{name} must be text, got {_show(value)}: using {_show(default)}"
    if name in CHOICES and value not in CHOICES[name]:
        return default, f"{name} must be one of {', '.join(CHOICES[name])}, got {_show(value)}: using {default}"
    if name == "prompt":
        return _text(value)
    if name == "zoom" and value and not ZOOM.fullmatch(value):
        return default, f"zoom must be like 0-63,0-63, got {_show(value)}: showing the whole square"
    if name == "change" and len(value) <= LONGEST_CHANGE:
        clean, wrong = cleaned(value)
        return clean, None if wrong is None else f"change: {_show(wrong)} is not part=value: left out"
    if name == "model" and len(value) > 200:
        return default, f"the model's name has {len(value)} characters, at most 200 are read: showing the first model"
    if len(value) > 200:
        return default, f"{name} has {len(value)} characters, at most 200 are read: using {_show(default)}"
    return value, None


def _whole(name: str, value: object, default: object) -> tuple[object, str | None]:
    """A whole number, however it is spelled; 2.5, NaN, true and words are refused, far values moved to the nearest end."""
    number = value
    if isinstance(value, str) and len(value) <= 20:
        try:
            number = float(value)
        except ValueError:
            number = None
    whole = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number) and number == int(number)
    if not whole:
        return default, f"{name} must be a whole number, got {_show(value)}: using {default}"
    low, high = RANGES[name]
    nearest = max(low, min(int(number), high))
    if nearest == number:
        return nearest, None
    return nearest, f"{name} must lie between {low} and {high}, got {_show(value)}: using {nearest}"


def _text(prompt: str) -> tuple[str, str | None]:
    clean = prompt.encode("utf-8", "replace").decode("utf-8") if any("\ud800" <= c <= "\udfff" for c in prompt) else prompt
    if len(clean) > LONGEST_PROMPT:
        return clean[:LONGEST_PROMPT], f"the prompt has {len(clean)} characters: only the first {LONGEST_PROMPT} are read"
    return clean, None if clean == prompt else "the prompt held half of a character pair: it is shown as ?"


def _show(value: object) -> str:
    """A hostile value in a sentence: short, and on one line."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
