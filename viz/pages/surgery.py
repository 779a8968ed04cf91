"""Changing a part of the model that is shown: what can be changed here, what was, and what that means for its weights."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from model.errors import BlockscopeError
from model.lm import Decoder
from model.surgery import CHANGES, Change, change, read_all
from viz.change import spelled
from viz.shelf import LM
from viz.state import UiState
from viz.theme import count

WORDS = {  # values that need more than their name, by part; what is not here is shown as it is
    "qk_norm": {"head": "per head", "projection": "whole projection"},
    "norm": {
        "rmsnorm": "RMSNorm",
        "rmsnorm-fp32-gain": "RMSNorm, gain in fp32",
        "rmsnorm-offset": "RMSNorm, gain 1 + w",
        "rmsnorm-no-gain": "RMSNorm without gain",
        "layernorm": "LayerNorm",
        "layernorm-no-bias": "LayerNorm without bias",
    },
    "wiring": {
        "pre": "before each half",
        "post": "after each add (2017)",
        "output": "on each output (OLMo 2)",
        "sandwich": "before and on outputs (Gemma)",
        "parallel": "one, halves parallel (GPT-J)",
    },
    "mlp": {
        "swiglu": "SwiGLU", "geglu": "GEGLU", "geglu-tanh": "GEGLU (tanh)", "reglu": "ReGLU", "glu": "GLU (sigmoid)",
        "bilinear": "bilinear", "relu": "ReLU, plain", "gelu": "GELU, plain", "gelu-tanh": "GELU (tanh), plain",
        "silu": "SiLU, plain", "experts": "experts",
    },
    "pairing": {"half": "half-split", "interleaved": "interleaved"},
}  # fmt: skip
MANY = {
    "unit gain": "unit gains", "zero bias": "zero biases", "sink at 0": "sinks at 0", "random matrix": "random matrices",
}  # fmt: skip
ONE_SHAPE = "these weights were trained in one shape; choose a model with random weights"


def word(part: str, value: str) -> str:
    """A value as people read it: 500000 -> 500,000."""
    known = WORDS.get(part, {}).get(value)
    if known is not None:
        return known
    try:
        number = float(value)
    except ValueError:
        return value.replace("-", " ")
    return f"{number:,.0f}" if number == int(number) and number >= 1 else f"{number:g}"


def menu(built: LM, state: UiState) -> list[dict]:
    """Every part that CHANGES knows: its choices, what this model has, what the view asks for, and why it cannot be changed."""
    return [entry | {"value": state.changes.get(entry["name"], "")} for entry in _menu(built.config, built.random)]


def parts(built: LM) -> list[dict]:
    """The same without a view: what there is to change in a model as loaded."""
    return list(_menu(built.config, built.random))


@lru_cache(maxsize=64)
def _menu(config: Decoder.Config, random: bool) -> tuple[dict, ...]:
    found = []
    for name, part in CHANGES.items():
        why = ONE_SHAPE if part.resizes and not random else _refused(config, name, part)
        has = read_all(config, name)
        choices = [[value, word(name, value)] for value in part.choices if has != [value]]
        built = " / ".join(word(name, value) for value in has)
        found.append(
            {"name": name, "title": part.title, "built": built, "choices": choices, "free": part.free, "why": why or ""}
        )
    return tuple(found)


def _refused(config: Decoder.Config, name: str, part: Change) -> str | None:
    """The sentence of a part that this model has no place for: that of every choice."""
    refusals = set()
    for value in part.choices:
        try:
            if change(config, {name: value}) != config:
                return None
        except BlockscopeError as error:
            refusals.add(str(error))
    return next(iter(refusals), None)


def settled(built: LM, state: UiState) -> tuple[UiState, str, list[str]]:
    """The view with those changes only that this model can have -> it, their one spelling ("" = as loaded), and notes."""
    effective, notes = _settled(built.config, built.random, tuple(state.changes.items()))
    kept = {name: value for name, value in effective if name != "qk_norm"}
    qk = state.qk if possible(built, "qk_norm") else "as-built"
    state = replace(state, qk=qk, change=spelled(kept))
    return state, spelled(dict(effective)), list(notes)


def possible(built: LM, part: str) -> bool:
    """Whether this model has a place for a part."""
    return not next(entry for entry in _menu(built.config, built.random) if entry["name"] == part)["why"]


@lru_cache(maxsize=256)
def _settled(config: Decoder.Config, random: bool, asked: tuple[tuple[str, str], ...]) -> tuple[tuple, tuple]:
    """The changes that differ from what the model has, one at a time in their order, and a note for each left out."""
    effective, notes, now = [], [], config
    for name, value in asked:
        try:
            if name in CHANGES and CHANGES[name].resizes and not random:
                raise BlockscopeError(ONE_SHAPE)
            changed = change(now, {name: value})
        except BlockscopeError as error:
            title = CHANGES[name].title if name in CHANGES else "a change"
            notes.append(f"{title} was left as built: {error}")
            continue
        if changed != now:
            effective.append((name, value))
            now = changed
    return tuple(effective), tuple(notes)


def differs(built: LM, lm: LM) -> str:
    """What differs from the model as loaded, and what that means for its weights; "" where nothing does."""
    if lm is built or lm.config == built.config:
        return ""
    new = invented(lm)
    one = len(phrases(built, lm)) == 1
    if lm.random:
        said = f"random weights; drawn anew: {new}" if new else "random weights, the same ones"
    else:
        said = f"counterfactual: these weights were trained without {'it' if one else 'these changes'}"
        said += f"; new: {new}" if new else "; no new weights"
    return f"{', '.join(phrases(built, lm))} · {said}"


def phrases(built: LM, lm: LM) -> list[str]:
    """One phrase per part that differs: "RoPE base 500,000 → 10,000 in 3 of 4 layers"."""
    found = []
    for name, part in CHANGES.items():
        pairs = [(part.read(a), part.read(b)) for a, b in zip(built.config.blocks, lm.config.blocks, strict=True)]
        moved = Counter(pair for pair in pairs if pair[0] != pair[1])
        if moved:
            (old, new), total = moved.most_common(1)[0][0], sum(moved.values())
            where = "" if total == len(pairs) else f" in {total} of {count(len(pairs), 'layer')}"
            found.append(f"{part.title} {word(name, old)} → {word(name, new)}{where}")
    return found


def invented(lm: LM) -> str:
    """The weights that the checkpoint lacks, by kind, with one name: "8 unit gains, e.g. blocks.0.attn.q_norm.weight"."""
    if not lm.invented:
        return ""
    shapes = {name: tuple(parameter.shape) for name, parameter in lm.net.named_parameters()}
    kinds = Counter(_kind(name, shapes[name]) for name in lm.invented)
    said = " and ".join(count(n, kind, MANY[kind]) for kind, n in kinds.most_common())
    return f"{said}, e.g. {lm.invented[0]}"


def _kind(name: str, shape: tuple[int, ...]) -> str:
    """What `model.weights.seeded` puts there."""
    leaf = name.rpartition(".")[2]
    if ".softmax." in name:
        return "sink at 0"
    if leaf in ("weight", "offset") and len(shape) == 1:
        return "unit gain"
    return "zero bias" if len(shape) == 1 or leaf.endswith("bias") else "random matrix"


def counterfactual(built: LM, which: str) -> Mapping[str, str] | None:
    """The other model of the layer strip: as loaded where something was changed, else with QK-norm the other way."""
    if which:
        return {}
    flipped = {"qk_norm": "head" if built.qk_norm == "off" else "off"}
    effective, _ = _settled(built.config, built.random, tuple(flipped.items()))
    return dict(effective) or None
