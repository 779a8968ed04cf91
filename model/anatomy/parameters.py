"""Every parameter of a model, by part and block, with the product that gives its size.

The products are in the words of the part's own Config, so that a hover can show n_kv_heads · d_head · d_model and a test
can multiply it out. A parameter that no table names shows its shape.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import nn

from model.anatomy.kinds import layer_text
from model.anatomy.writing import several
from model.attention import Attention
from model.block import BlockConfig
from model.counting import part_of
from model.lm import Decoder
from model.mla import MLA
from model.mlp import GLU, MLP
from model.moe import MoE
from model.norms import Norm

Q, KV = "n_heads d_head", "n_kv_heads d_head"
PRODUCTS: dict[type, dict[str, str]] = {
    Attention.Config: {
        "q_proj.weight": f"{Q} d_model", "q_proj.bias": Q, "k_proj.weight": f"{KV} d_model", "k_proj.bias": KV,
        "v_proj.weight": f"{KV} d_model", "v_proj.bias": KV, "o_proj.weight": f"d_model {Q}", "o_proj.bias": "d_model",
        "softmax.weight": "n_heads",
    },
    MLA.Config: {
        "q_down.weight": "q_latent d_model", "q_down.bias": "q_latent", "q_proj.weight": "n_heads (d_nope+d_rope) q_latent",
        "kv_down.weight": "(kv_latent+d_rope) d_model", "kv_down.bias": "(kv_latent+d_rope)",
        "kv_up.weight": "n_heads (d_nope+d_value) kv_latent", "o_proj.weight": "d_model n_heads d_value",
        "o_proj.bias": "d_model",
    },
    GLU.Config: {
        "gate_proj.weight": "d_mlp d_model", "up_proj.weight": "d_mlp d_model", "down_proj.weight": "d_model d_mlp",
        "gate_proj.bias": "d_mlp", "up_proj.bias": "d_mlp", "down_proj.bias": "d_model",
    },
    MLP.Config: {
        "up_proj.weight": "d_mlp d_model", "down_proj.weight": "d_model d_mlp", "up_proj.bias": "d_mlp",
        "down_proj.bias": "d_model",
    },
    MoE.Config: {
        "router.weight": "n_experts d_model", "router.bias": "n_experts", "correction": "n_experts",
        "experts.gate_proj": "n_experts d_mlp d_model", "experts.up_proj": "n_experts d_mlp d_model",
        "experts.down_proj": "n_experts d_model d_mlp", "experts.gate_bias": "n_experts d_mlp",
        "experts.up_bias": "n_experts d_mlp", "experts.down_bias": "n_experts d_model",
    },
}  # fmt: skip
OUTSIDE = {
    "embed.weight": ("embedding", "d_vocab d_model"),
    "positions.weight": ("positions", "context d_model"),
    "unembed.weight": ("unembedding", "d_vocab d_model"),
    "unembed.bias": ("unembedding", "d_vocab"),
}


@dataclass(frozen=True)
class Row:
    """One parameter of `times` equal blocks. `product` is in words and `formula` ends in the number."""

    part: str
    name: str
    shape: tuple[int, ...]
    product: str
    formula: str
    each: int
    times: int
    where: str

    @property
    def total(self) -> int:
        return self.each * self.times


def parameters(config: Decoder.Config) -> list[Row]:
    """What stands before the blocks, every kind of block, what stands behind them."""
    with torch.device("meta"):
        ends = Decoder(_endless(config))
    rows = []
    for name, parameter in ends.named_parameters():
        if name.startswith("blocks."):
            continue
        part, product = OUTSIDE.get(name, ("norms", ""))
        rows.append(_row(part, name, tuple(parameter.shape), product, vars(config), 1, ""))
    before = [row for row in rows if row.part in ("embedding", "positions")]
    inside = [row for layers, block in _alike(config) for row in block_rows(block, len(layers), layer_text(layers))]
    return [*before, *inside, *(row for row in rows if row not in before)]


def block_rows(block: BlockConfig, times: int = 1, where: str = "") -> list[Row]:
    with torch.device("meta"):
        net = block.build()
    rows = []
    for path, module in net.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            name = f"{path}.{leaf}"
            product, values = ("", {}) if isinstance(module, Norm) else product_of(block, name)
            rows.append(_row(part_of(name, module), name, tuple(parameter.shape), product, values, times, where))
    return rows


def product_of(block: BlockConfig, name: str) -> tuple[str, Mapping[str, int]]:
    """The product behind a parameter of a block, and the values of its words."""
    slot, _, rest = name.partition(".")
    config = getattr(block, slot, None)
    if isinstance(config, MoE.Config) and rest.startswith("shared."):
        config, rest = config.shared, rest.removeprefix("shared.")
    known = next((PRODUCTS[kind] for kind in type(config).__mro__ if kind in PRODUCTS), {})
    product = known.get(rest, "")
    if isinstance(config, MLA.Config) and config.q_latent is None and rest == "q_proj.weight":
        product = "n_heads (d_nope+d_rope) d_model"
    return product, words(config)


def words(config) -> dict[str, int]:
    """Whole numbers of a Config by name; a rotary width as d_rope."""
    found = {k: v for k, v in vars(config).items() if isinstance(v, int) and not isinstance(v, bool)}
    rope = getattr(config, "rope", None)
    return found | ({"d_rope": rope.d} if rope is not None else {})


def multiplied(product: str, values: Mapping[str, int]) -> int:
    """ "n_heads (d_nope+d_rope)" -> the number."""
    return math.prod(sum(values[word] for word in re.findall(r"\w+", factor)) for factor in product.split())


def _row(part: str, name: str, shape, product: str, values: Mapping, times: int, where: str) -> Row:
    each = math.prod(shape)
    numbers = " × ".join(f"{n:,}" for n in shape)
    if product:
        numbers = " × ".join(_filled(factor, values) for factor in product.split())
        equals = "" if numbers == f"{each:,}" else f" = {numbers}"
        formula = f"{product.replace(' ', ' · ').replace('+', ' + ')}{equals} = {each:,}"
    else:
        formula = f"{numbers} = {each:,}" if len(shape) > 1 else several(each, "entry", "entries")
    return Row(part, name, shape, product, formula, each, times, where)


def _filled(factor: str, values: Mapping[str, int]) -> str:
    return re.sub(r"\w+", lambda word: f"{values[word[0]]:,}", factor).replace("+", " + ")


def _endless(config: Decoder.Config) -> Decoder.Config:
    """The same ends with a single block, which is left out."""
    return replace(config, blocks=config.blocks[:1])


@lru_cache(maxsize=256)
def _signature(block: BlockConfig) -> tuple:
    with torch.device("meta"):
        net: nn.Module = block.build()
    return tuple((name, tuple(p.shape)) for name, p in net.named_parameters())


def _alike(config: Decoder.Config) -> list[tuple[tuple[int, ...], BlockConfig]]:
    """Layers whose blocks have the same parameters, whatever their masks and angles."""
    groups: dict[tuple, list[int]] = {}
    for layer, block in enumerate(config.blocks):
        groups.setdefault(_signature(block), []).append(layer)
    return [(tuple(layers), config.blocks[layers[0]]) for layers in groups.values()]
