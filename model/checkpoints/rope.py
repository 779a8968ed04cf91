"""The rotary settings of a config, in both spellings: the old top level and transformers 5's `rope_parameters`.

    {"rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8, ...}}
    {"rope_parameters": {"rope_theta": 500000, "rope_type": "llama3", "factor": 8, ...}}

Gemma 3 turns its local and its global layers differently, again in two spellings:

    {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8}}
    {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4, ...}, "full_attention": {"rope_theta": 1e6, ...}}}

Both at once are accepted when they agree. `type` is the old name of `rope_type`. A type that is not known is refused:
reading it as none would give fluent nonsense on long texts only.
"""

from collections.abc import Iterable, Mapping

from model.checkpoints.fields import Fields, listed, shown
from model.positions import Dynamic, Linear, Llama3, Rope, Yarn

DEFAULT_BASE = 10_000.0
LARGEST_BASE, LARGEST_FACTOR = 1e15, 1e6  # far above any published model, and no power of them overflows
BLOCKS = ("rope_parameters", "rope_scaling")
ORIGINAL = "original_max_position_embeddings"
Home = tuple[str, Mapping[str, object]]  # where settings were found -> the settings


def read_rope(
    fields: Fields, width: int, context: int, make: type[Rope.Config] = Rope.Config, base: float = DEFAULT_BASE
) -> Rope.Config:
    """The rotation of heads of `width` coordinates in a model of `context` positions, as half-split pairs.

    `base` is used where none is given.
    """
    homes = [(name, _block(fields, name)) for name in BLOCKS]
    for name, block in homes:
        if nested := [key for key, value in block.items() if isinstance(value, dict)]:
            raise fields.fail(
                f"{name} is given per layer type ({listed(nested)}); blocks of this model_type share one rotation"
            )
    top = {name: fields.raw(name) for name in ("rope_theta", "partial_rotary_factor")}
    homes = [("", top), *homes, *_outside(fields)]
    return _settle(fields, homes, width, context, make, base, "what these families default to")


def read_two_ropes(fields: Fields, width: int, context: int, full: float, sliding: float) -> dict[str, Rope.Config]:
    """Layer type -> its rotation. `full` and `sliding` are the bases where none is given; a scaling at top level belongs
    to the full layers alone."""
    name, scaling = BLOCKS
    nested = _block(fields, name)
    if unknown := [key for key in nested if key not in ("full_attention", "sliding_attention")]:
        raise fields.fail(f"{name} has {listed(unknown)}; expected one rotation for each type of layer")
    inner = Fields(nested, f"{fields.where}, {name}")
    theta, local = "rope_theta", "rope_local_base_freq"
    homes = {
        "full_attention": [("", {theta: fields.raw(theta)}), (scaling, _block(fields, scaling)), *_outside(fields)],
        "sliding_attention": [(local, {theta: fields.raw(local)})],
    }
    bases = {"full_attention": full, "sliding_attention": sliding}
    for kind in homes:
        homes[kind].append((f"{name}.{kind}", _block(inner, kind)))
    return {kind: _settle(fields, homes[kind], width, context, Rope.Config, bases[kind], f"for {kind}") for kind in homes}


def _settle(
    fields: Fields, homes: Iterable[Home], width: int, context: int, make: type[Rope.Config], default_base: float, why: str
) -> Rope.Config:
    """One rotation out of every home of its settings."""
    settings = _merge(fields, homes)
    where = " and ".join(name for name, block in homes if name.startswith(BLOCKS) and block) or BLOCKS[0]
    inner = Fields(settings, f"{fields.where}, {where}")
    kind = inner.raw("rope_type") or "default"
    if not isinstance(kind, str) or kind not in SCALING_READERS:
        raise inner.fail(f"rope_type is {shown(kind)}; the types known here are {', '.join(SCALING_READERS)}")
    base = inner.number("rope_theta", default_base, why)
    if not 1 < base <= LARGEST_BASE:
        raise inner.fail(f"rope_theta is {base:g}; expected a number above 1, at most {LARGEST_BASE:g}")
    inner.only("partial_rotary_factor", (1, 1.0), "the blocks of this model_type rotate whole heads")
    scaling = SCALING_READERS[kind](inner, context)
    if unread := {k: v for k, v in settings.items() if k not in inner.asked and v is not None}:
        raise inner.fail(f"{listed(unread)}: no meaning together with rope_type {kind!r}; remove what does not belong")
    fields.notes += inner.notes
    fields.defaults |= {homes[0][0] or name if name == "rope_theta" else name: d for name, d in inner.defaults.items()}
    if width % 2:
        raise fields.fail(f"head_dim is {width}; a rotary width must be even, because coordinates turn in pairs")
    if width == 2 and kind == "dynamic":
        raise fields.fail("head_dim is 2; dynamic scaling needs at least 4: its exponent is d / (d - 2)")
    return make(d=width, base=base, pairing="half", scaling=scaling)


def _block(fields: Fields, name: str) -> Mapping[str, object]:
    block = fields.raw(name)
    if block is not None and not isinstance(block, dict):
        raise fields.fail(f"{name} is {shown(block)}; expected null or an object with rope_type")
    return block or {}


def _outside(fields: Fields) -> list[Home]:
    """Some files keep the original context outside the block that needs it."""
    return [("", {ORIGINAL: fields.raw(ORIGINAL)})] if ORIGINAL in fields.values else []


def _merge(fields: Fields, homes: Iterable[Home]) -> dict[str, object]:
    """One dict out of all spellings; the first home that gives a value is named when a second one disagrees."""
    found: dict[str, tuple[object, str]] = {}
    fields.only("rope_interleaved", (False,), "heads of this model_type are stored with half-split pairs")
    for name, block in homes:
        for key, value in block.items():
            home = f"{name}.{key}" if name.startswith(BLOCKS) else name or key
            key = "rope_type" if key == "type" else key
            if value is None:
                continue
            if key in found and found[key][0] != value:
                raise fields.fail(
                    f"{found[key][1]} is {shown(found[key][0])} but {home} is {shown(value)}; they mean the same: keep one"
                )
            found.setdefault(key, (value, home))
    return {key: value for key, (value, _) in found.items()}


def _default(inner: Fields, context: int) -> None:
    return None


def _linear(inner: Fields, context: int) -> Linear:
    return Linear(factor=_factor(inner))


def _dynamic(inner: Fields, context: int) -> Dynamic:
    original = inner.raw(ORIGINAL)
    if original is not None and original != context:
        raise inner.fail(
            f"{ORIGINAL} is {shown(original)} but max_position_embeddings is {context}; dynamic scaling starts at the "
            "latter: make them equal"
        )
    return Dynamic(factor=_factor(inner), original=context)


def _llama3(inner: Fields, context: int) -> Llama3:
    low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
    if not 0 < low <= high:
        raise inner.fail(f"low_freq_factor is {low:g} and high_freq_factor {high:g}; expected 0 < low <= high")
    return Llama3(factor=_factor(inner), low=low, high=high, original=_original(inner, context))


def _yarn(inner: Fields, context: int) -> Yarn:
    fast, slow = (inner.number(name) if inner.raw(name) else d for name, d in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    if not 0 < slow <= fast:
        raise inner.fail(f"beta_fast is {fast:g} and beta_slow {slow:g}; expected 0 < beta_slow <= beta_fast")
    optional = {
        name: inner.number(name) if inner.raw(name) is not None else None
        for name in ("attention_factor", "mscale", "mscale_all_dim")
    }
    if optional["attention_factor"] is not None and optional["attention_factor"] <= 0:
        raise inner.fail(f"attention_factor is {optional['attention_factor']:g}; expected a number above 0")
    return Yarn(
        factor=_factor(inner),
        original=_original(inner, context),
        beta_fast=fast,
        beta_slow=slow,
        truncate=inner.flag("truncate", True),
        **optional,
    )


def _factor(inner: Fields) -> float:
    factor = inner.number("factor")
    if not 1 <= factor <= LARGEST_FACTOR:
        raise inner.fail(f"factor is {factor:g}; expected 1 to {LARGEST_FACTOR:g}: a scaling stretches the context")
    return factor


def _original(inner: Fields, context: int) -> int:
    return inner.whole(ORIGINAL, 2**31, context, "max_position_embeddings")


SCALING_READERS = {"default": _default, "linear": _linear, "dynamic": _dynamic, "llama3": _llama3, "yarn": _yarn}
