"""Change one part of a configuration; everything else stays what it was.

Each Change reads its part of a config and writes it. Values are short strings, so that a link can carry them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from model.attention import Attention
from model.block import WIRINGS, BlockConfig
from model.errors import BlockscopeError
from model.lm import Decoder
from model.masks import Causal, Chunked, Sliding
from model.mlp import MLPS, MLPConfig
from model.norms import NORMS, NormConfig
from model.positions import PAIRINGS, Linear, Llama3, Yarn

OFF = "off"


@dataclass(frozen=True)
class Change:
    """`choices`: the values of a menu ("1000", "off", ...; with `free`, any number fits as well).

    `read(block)` gives the value as a string; `write(block, value)` gives the changed block.
    """

    title: str
    choices: tuple[str, ...]
    read: Callable[[BlockConfig], str]
    write: Callable[[BlockConfig, str], BlockConfig]
    free: bool = False
    resizes: bool = False  # matrices change their shape, so only random weights can follow


def _norms(block: BlockConfig) -> dict[str, NormConfig]:
    return {name: norm for name, norm in vars(block).items() if isinstance(norm, NormConfig)}


def _any_norm(block: BlockConfig) -> NormConfig:
    return next(iter(_norms(block).values()))


def _kind(config: object, table: Mapping[str, type]) -> str:
    return next((name for name, part in table.items() if type(config) is part.Config), "other")


def _attention(block: BlockConfig) -> Attention.Config:
    if not isinstance(block.attn, Attention.Config):
        raise BlockscopeError("latent attention has no such slot; choose a model with ordinary heads")
    return block.attn


def _attn(block: BlockConfig, **fields) -> BlockConfig:
    return replace(block, attn=replace(_attention(block), **fields))


def _number(text: str, least: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < 1e12:
        raise BlockscopeError(f"expected a number from {least:g} on, or off, got {text!r}")
    return value


def _whole(text: str) -> int:
    if (value := _number(text, 1)) != int(value):
        raise BlockscopeError(f"expected a whole number, got {text!r}")
    return int(value)


def _read_qk_norm(block: BlockConfig) -> str:
    attn = block.attn
    return attn.qk_norm_over if isinstance(attn, Attention.Config) and attn.q_norm is not None else OFF


def _write_qk_norm(block: BlockConfig, value: str) -> BlockConfig:
    attn = replace(_attention(block), q_norm=None, k_norm=None)
    if value != OFF:
        kind, eps = type(_any_norm(block)), _any_norm(block).eps
        attn = replace(attn, qk_norm_over=value)
        q, k = (kind(d=attn.norm_width(heads), eps=eps) for heads in (attn.n_heads, attn.n_kv_heads))
        attn = replace(attn, q_norm=q, k_norm=k)
    return replace(block, attn=attn)


def _write_norm(block: BlockConfig, value: str) -> BlockConfig:
    return replace(block, **{name: NORMS[value].Config(d=n.d, eps=n.eps) for name, n in _norms(block).items()})


def _write_eps(block: BlockConfig, value: str) -> BlockConfig:
    return replace(block, **{name: replace(norm, eps=_number(value)) for name, norm in _norms(block).items()})


def _write_wiring(block: BlockConfig, value: str) -> BlockConfig:
    """Norms that the new wiring also has keep their name and gain; the others are like them, with unit gain."""
    kind, have, model = WIRINGS[value].Config, _norms(block), _any_norm(block)
    wanted = [name for name in kind.__dataclass_fields__ if name not in ("attn", "mlp")]
    return kind(attn=block.attn, mlp=block.mlp, **{name: have.get(name, model) for name in wanted})


def _read_mlp(block: BlockConfig) -> str:
    for name, make in MLPS.items():
        if type(block.mlp) is make.func and block.mlp.activation == make.keywords["activation"]:
            return name
    return "experts"


def _write_mlp(block: BlockConfig, value: str) -> BlockConfig:
    if not isinstance(block.mlp, MLPConfig):
        raise BlockscopeError("this block has a mixture of experts; choose a model with one MLP a block")
    return replace(block, mlp=MLPS[value](d_model=block.mlp.d_model, d_mlp=block.mlp.d_mlp, bias=block.mlp.bias))


def _rope(block: BlockConfig, **fields) -> BlockConfig:
    if block.attn.rope is None:
        raise BlockscopeError("this attention does not rotate, so there is no rotary part to change")
    return replace(block, attn=replace(block.attn, rope=replace(block.attn.rope, **fields)))


def _read_scaling(block: BlockConfig) -> str:
    scaling = block.attn.rope and block.attn.rope.scaling
    return f"{type(scaling).__name__.lower()}-{scaling.factor:g}" if scaling else OFF


ORIGINAL = 8192  # positions that the stretched tables assume the model was trained on: Llama 3's
STRETCHED = {
    "linear-8": Linear(factor=8.0),
    "llama3-8": Llama3(factor=8.0, low=1.0, high=4.0, original=ORIGINAL),
    "yarn-8": Yarn(factor=8.0, original=ORIGINAL),
}


def _write_scaling(block: BlockConfig, value: str) -> BlockConfig:
    return _rope(block, scaling=None if value == OFF else STRETCHED[value])


def _read_mask(block: BlockConfig) -> str:
    mask = block.attn.mask
    return str(mask.window) if isinstance(mask, Sliding) else f"chunks of {mask.chunk}" if isinstance(mask, Chunked) else OFF


def _write_mask(block: BlockConfig, value: str) -> BlockConfig:
    return replace(block, attn=replace(block.attn, mask=Causal() if value == OFF else Sliding(window=_whole(value))))


def _read_softcap(block: BlockConfig) -> str:
    cap = getattr(block.attn, "softcap", None)
    return OFF if cap is None else f"{cap:g}"


def _read_biases(block: BlockConfig) -> str:
    return "on" if getattr(block.attn, "qkv_bias", False) else OFF


def _write_biases(block: BlockConfig, value: str) -> BlockConfig:
    block = _attn(block, qkv_bias=value == "on", o_bias=value == "on")
    return replace(block, mlp=replace(block.mlp, bias=value == "on")) if isinstance(block.mlp, MLPConfig) else block


def _read_kv_heads(block: BlockConfig) -> str:
    return str(block.attn.n_kv_heads) if isinstance(block.attn, Attention.Config) else "latent"


def _write_kv_heads(block: BlockConfig, value: str) -> BlockConfig:
    attn, heads = _attention(block), _whole(value)
    if attn.k_norm is not None and attn.qk_norm_over == "projection":
        attn = replace(attn, k_norm=replace(attn.k_norm, d=heads * attn.d_head), n_kv_heads=heads)
    return replace(block, attn=replace(attn, n_kv_heads=heads))


def _write_d_mlp(block: BlockConfig, value: str) -> BlockConfig:
    if not isinstance(block.mlp, MLPConfig):
        raise BlockscopeError("this block has a mixture of experts; choose a model with one MLP a block")
    return replace(block, mlp=replace(block.mlp, d_mlp=_whole(value)))


ON_OFF = ("on", OFF)
CHANGES: dict[str, Change] = {
    "qk_norm": Change("QK-norm", (OFF, "head", "projection"), _read_qk_norm, _write_qk_norm),
    "norm": Change("norm", tuple(NORMS), lambda b: _kind(_any_norm(b), NORMS), _write_norm),
    "eps": Change("norm eps", ("1e-05", "1e-06"), lambda b: f"{_any_norm(b).eps:g}", _write_eps, free=True),
    "wiring": Change("norm placement", tuple(WIRINGS), lambda b: _kind(b, WIRINGS), _write_wiring),
    "mlp": Change("MLP", tuple(MLPS), _read_mlp, _write_mlp),
    "rope_base": Change(
        "RoPE base", ("10000", "500000", "1000000"), lambda b: f"{b.attn.rope.base:.17g}" if b.attn.rope else OFF,
        lambda b, v: _rope(b, base=_number(v, 1)), free=True,
    ),
    "rope_scaling": Change("RoPE scaling", (OFF, *STRETCHED), _read_scaling, _write_scaling),
    "pairing": Change(
        "RoPE pairing", tuple(PAIRINGS), lambda b: b.attn.rope.pairing if b.attn.rope else OFF,
        lambda b, v: _rope(b, pairing=v),
    ),
    "window": Change("window", (OFF, "8", "64"), _read_mask, _write_mask, free=True),
    "softcap": Change(
        "logit soft-cap", (OFF, "5", "50"), _read_softcap,
        lambda b, v: _attn(b, softcap=None if v == OFF else _number(v, 1e-6)), free=True,
    ),
    "sink": Change(
        "attention sink", ON_OFF, lambda b: "on" if getattr(b.attn, "sink", False) else OFF,
        lambda b, v: _attn(b, sink=v == "on"),
    ),
    "biases": Change("biases", ON_OFF, _read_biases, _write_biases),
    "kv_heads": Change(
        "KV heads", ("1", "2", "4"), _read_kv_heads, _write_kv_heads,
        free=True, resizes=True,
    ),
    "d_mlp": Change(
        "MLP width", ("64", "256", "1024"), lambda b: str(getattr(b.mlp, "d_mlp", OFF)), _write_d_mlp, free=True, resizes=True,
    ),
}  # fmt: skip


def read(config: Decoder.Config, name: str) -> str:
    """The value that the first block has for one change."""
    return CHANGES[name].read(config.blocks[0])


def read_all(config: Decoder.Config, name: str) -> list[str]:
    """The values that the blocks have for one change, each once, the most frequent first."""
    return [value for value, _ in Counter(map(CHANGES[name].read, config.blocks)).most_common()]


def change(config: Decoder.Config, changes: Mapping[str, str], layers: range | None = None) -> Decoder.Config:
    """The same model with each named part changed in every block, or in those of `layers`; the values are those of CHANGES.

    A part that was not there before is new: its weights are not in any checkpoint. A change that a block already has
    leaves that block as it is, and so does one that it has no place for, as long as another block has.
    """
    layers = range(config.n_layers) if layers is None else layers
    if not layers or layers[0] < 0 or layers[-1] >= config.n_layers:
        raise BlockscopeError(f"layers {span(layers)} do not lie within 0–{config.n_layers - 1}, the layers of this model")
    for name, value in changes.items():
        if name not in CHANGES:
            raise BlockscopeError(f"there is no part {name!r} to change; there are {', '.join(CHANGES)}")
        part = CHANGES[name]
        if value not in part.choices and not (part.free and value != OFF):
            raise BlockscopeError(f"{part.title} must be one of {', '.join(part.choices)}, got {value!r}")
        config = replace(config, blocks=_written(part, config.blocks, value, layers))
    return config


def _written(part: Change, blocks: tuple[BlockConfig, ...], value: str, layers: range) -> tuple[BlockConfig, ...]:
    """Every block that has the part, changed; those without it (a layer that does not rotate) stay, unless all are."""
    changed, refused = list(blocks), []
    for i in layers:
        try:
            changed[i] = blocks[i] if part.read(blocks[i]) == value else part.write(blocks[i], value)
        except BlockscopeError as error:
            refused.append(error)
    if len(refused) == len(layers):
        raise refused[0]
    return tuple(changed)


def span(layers: range) -> str:
    """range(8, 30) -> "8–29"."""
    return f"{layers[0]}–{layers[-1]}" if len(layers) > 1 else str(layers[0]) if layers else "none"


def summary(original: Decoder.Config, changed: Decoder.Config) -> list[str]:
    """One phrase per part that differs, e.g. "QK-norm off → head", read in the first block that differs."""
    pairs = zip(original.blocks, changed.blocks, strict=False)
    old, new = next((pair for pair in pairs if pair[0] != pair[1]), (original.blocks[0], changed.blocks[0]))
    both = {c.title: (c.read(old), c.read(new)) for c in CHANGES.values()}
    return [f"{title} {was} → {now}" for title, (was, now) in both.items() if was != now]
