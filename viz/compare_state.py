"""What the Compare page shows, as one frozen value that is also its query string; read like UiState, whose names it shares.

Side A is `model`, `change`, `layers`, `edit`; the others carry their letter: `b_model`, `b_change`, ... A `change` is
"qk_norm=head,window=64"; `layers` "8-29" bounds it; an `edit` is "head:3:4:0": what, layer, index, factor, of a patch the
tensor as well ("patch:3:-1:0:hook_attn_out"); several stand with commas. `quick` names an entry of the one-click list, which
fills the sides; "own" takes them from the fields.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import parse_qsl, quote, urlencode

from viz.change import PIECE, pieces
from viz.state import DEFAULT_PROMPT, _read, _show
from viz.strangers import strangers

LETTERS = "abcd"
PARTS = ("model", "change", "layers", "edit")
OWN, FIRST = "own", "qk_norm"
LAYERS = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")
EDIT = re.compile(r"([a-z_0-9]{1,20}):(\d{1,4})(?::(-?\d{1,6}))?(?::(-?\d{1,4}(?:\.\d{1,6})?))?(?::([a-z_0-9.]{1,60}))?")
TAP = re.compile(r"[A-Za-z0-9_.]{1,80}")
LISTS = {"change": (PIECE, "part=value"), "edit": (EDIT, "an edit such as head:3:4:0")}
LONGEST = {"change": 600, "edit": 600}  # characters


@dataclass(frozen=True, kw_only=True)
class CompareState:
    """`tap` is a path below its layer ("attn.hook_logits") or a whole name ("logits"); `against`: the side compared with A;
    `sides`: how many there are; `rows`: which tensors the strip shows, `diagrams`: whether the blocks are drawn."""

    model: str = ""
    prompt: str = DEFAULT_PROMPT
    quick: str = FIRST
    sides: int = 2
    change: str = ""
    layers: str = ""
    edit: str = ""
    b_model: str = ""
    b_change: str = ""
    b_layers: str = ""
    b_edit: str = ""
    c_model: str = ""
    c_change: str = ""
    c_layers: str = ""
    c_edit: str = ""
    d_model: str = ""
    d_change: str = ""
    d_layers: str = ""
    d_edit: str = ""
    against: str = "b"
    tap: str = "attn.hook_logits"
    layer: int = 0
    head: int = 0
    stage: str = "scaled"
    log: int = 0
    rows: str = "main"
    diagrams: int = 0
    theme: str = "auto"

    def query(self) -> str:
        """The query string that restores this view; defaults are left out, and sides that a quick choice fills."""
        skipped = set() if self.quick == OWN else {field(letter, part) for letter in LETTERS for part in PARTS} - {"model"}
        skipped |= (
            {"sides"} if self.quick != OWN else {field(letter, part) for letter in LETTERS[self.sides :] for part in PARTS}
        )
        changed = {f.name: v for f in fields(self) if f.name not in skipped and (v := getattr(self, f.name)) != f.default}
        return urlencode(changed, quote_via=quote)

    def side(self, letter: str) -> dict[str, str]:
        return {part: getattr(self, field(letter, part)) for part in PARTS}


def field(letter: str, part: str) -> str:
    return part if letter == "a" else f"{letter}_{part}"


NODES = {  # a node of Explore's diagram -> the tensor that Compare opens for it
    "resid_pre": "hook_resid_pre", "ln1": "ln1.hook_out", "q": "attn.hook_q", "k": "attn.hook_k", "v": "attn.hook_v",
    "rope": "attn.hook_rot_q", "logits": "attn.hook_logits", "capped": "attn.hook_capped", "pattern": "attn.hook_pattern",
    "z": "attn.hook_z", "attn_out": "hook_attn_out", "resid_mid": "hook_resid_mid", "ln2": "ln2.hook_out",
    "gate": "mlp.hook_pre", "up": "mlp.hook_pre_linear", "act": "mlp.hook_act", "post": "mlp.hook_post",
    "mlp_out": "hook_mlp_out", "resid_post": "hook_resid_post",
}  # fmt: skip
OWN_CHOICES = {"against": ("b", "c", "d"), "rows": ("main", "all")}
OWN_RANGES = {"sides": (2, 4), "diagrams": (0, 1)}
SHARED = ("model", "prompt", "layer", "head", "stage", "log", "theme")  # read by the rules of UiState
SIDE_FIELDS = {field(letter, part) for letter in LETTERS for part in PARTS} - {"model"}


def parse(raw: object) -> tuple[CompareState, list[str]]:
    """A mapping of anything, or a query string -> the nearest valid state, and a sentence for each value that was changed."""
    if isinstance(raw, str):
        raw = dict(parse_qsl(raw.lstrip("?"), keep_blank_values=True))
    if not isinstance(raw, Mapping):
        return CompareState(), [f"the view was not a set of named values ({_show(raw)}): showing the default view"]
    taken, notes = {}, strangers(raw)
    raw = _from_explore(raw)
    for each in fields(CompareState):
        if each.name in raw:
            value, note = _value(each.name, raw[each.name], each.default)
            taken[each.name] = value
            notes += [note] if note else []
    if "quick" not in taken and any(taken.get(name) for name in SIDE_FIELDS):
        taken["quick"] = OWN
        used = [n for n, letter in enumerate(LETTERS) if any(taken.get(field(letter, p)) for p in PARTS)]
        taken.setdefault("sides", max(2, 1 + max(used, default=0)))
    state = CompareState(**taken)
    if LETTERS.index(state.against) >= state.sides and state.quick == OWN:
        taken["against"] = "b"
    return CompareState(**taken), notes


def _from_explore(raw: Mapping) -> Mapping:
    """A view of Explore: its model as loaded is A, as changed there (`qk` has a field of its own) B; its node is the tensor."""
    qk, change, node = raw.get("qk", ""), raw.get("change", ""), raw.get("node")
    own = {"quick", "sides", *SIDE_FIELDS} - {"change"}
    if "qk" not in raw and "node" not in raw and not (change and own.isdisjoint(raw) and "tap" not in raw):
        return raw
    raw = dict(raw) | ({"tap": NODES[node]} if isinstance(node, str) and node in NODES and "tap" not in raw else {})
    asked = [change] if isinstance(change, str) and change else []
    asked += [f"qk_norm={qk}"] if qk in ("off", "head", "projection") else []
    if asked and own.isdisjoint(raw):
        raw |= {"quick": OWN, "change": "", "b_change": ",".join(asked)}
    return raw


def _value(name: str, value: object, default: object) -> tuple[object, str | None]:
    if name in SHARED:
        return _read(name, value, default)
    if name in OWN_RANGES:
        low, high = OWN_RANGES[name]
        text = str(value)
        if not re.fullmatch(r"-?\d{1,9}", text) or isinstance(value, bool):
            return default, f"{name} must be a whole number, got {_show(value)}: using {default}"
        nearest = max(low, min(int(text), high))
        return nearest, None if nearest == int(text) else f"{name} must lie between {low} and {high}: using {nearest}"
    if not isinstance(value, str):
        return default, f"{name} must be text, got {_show(value)}: using {_show(default)}"
    if name in OWN_CHOICES:
        known = OWN_CHOICES[name]
        return (value, None) if value in known else (default, f"{name} must be one of {', '.join(known)}, got {_show(value)}")
    part = name.rpartition("_")[2]
    if len(value) > (most := LONGEST.get(part, 200)):
        return default, f"{name} has {len(value)} characters, at most {most} are read: using {_show(default)}"
    pattern = {"layers": LAYERS, "tap": TAP}.get(part)
    if part in LISTS:
        wanted, what = LISTS[part]
        bad = [piece for piece in pieces(value) if not wanted.fullmatch(piece)]
        good = ",".join(piece for piece in pieces(value) if wanted.fullmatch(piece))
        return good, f"{name}: {_listed(bad)} not {what}: left out" if bad else None
    if part == "layers" and (found := LAYERS.fullmatch(value)) and found[2] and int(found[1]) > int(found[2]):
        return f"{found[2]}-{found[1]}", f"{name} {value} runs backwards: using {found[2]}-{found[1]}"
    if pattern is not None and value and not pattern.fullmatch(value):
        return default, f"{name} {_show(value)} cannot be read: using {_show(default)}"
    return value, None


def _listed(bad: list[str], most: int = 3) -> str:
    shown = [_show(piece) for piece in bad[:most]] + ([f"{len(bad) - most} more"] if len(bad) > most else [])
    return f"{' and '.join(filter(None, [', '.join(shown[:-1]), shown[-1]]))} {'are' if len(bad) > 1 else 'is'}"


def layer_range(layers: str) -> range | None:
    """ "8-29" -> range(8, 30); "" -> None, all layers."""
    if not (found := LAYERS.fullmatch(layers)):
        return None
    first = int(found[1])
    return range(first, int(found[2] if found[2] is not None else found[1]) + 1)
