"""What a model costs, from its config alone: cache, FLOPs and their shares, FLOPs per byte, users a card.

Every number comes with the formula that gave it, as words and figures; conventions are those of model.counting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from model.anatomy.writing import several
from model.cost import amount
from model.counting import BlockCount, Count, count_config
from model.lm import Decoder
from model.mla import MLA
from model.moe import MoE

CARD = 80e9  # bytes of memory that users share: one 80 GB accelerator


@dataclass(frozen=True)
class Number:
    """A counted quantity: its plain value, how it is written, and where it comes from."""

    name: str
    value: float
    text: str
    formula: str


@dataclass(frozen=True)
class Shares:
    """FLOPs of the last of `context` tokens, by what they are spent on; they add up to flops_per_token."""

    context: int
    projections: int  # attention's matrices
    mixing: int  # q . k and pattern . v
    mlp: int  # dense, shared and chosen experts, router
    unembedding: int
    rest: int  # gains, biases of norms, the embedding's row

    @property
    def total(self) -> int:
        return self.projections + self.mixing + self.mlp + self.unembedding + self.rest

    @property
    def attention(self) -> float:
        return (self.projections + self.mixing) / self.total


def shares(config: Decoder.Config, context: int) -> Shares:
    found = count_config(config)
    projections = sum(b.by_part.get("attention", 0) for b in found.by_block)
    mlp = sum(b.active - b.by_part.get("attention", 0) - b.by_part.get("norms", 0) for b in found.by_block)
    mixing = sum(b.work_per_key * b.mask.reach(context) for b in found.by_block)
    unembedding = config.d_vocab * config.d_model + config.d_vocab * config.unembed_bias
    rest = found.active - projections - mlp - unembedding
    return Shares(context, 2 * projections, 2 * mixing, 2 * mlp, 2 * unembedding, 2 * rest)


def weights_read(config: Decoder.Config, tokens: int) -> float:
    """Parameters that a step of `tokens` tokens reads once: experts as often as chance picks a new one.

    With k of E experts a token, n tokens meet E (1 - (1 - k/E)^n) of them on average where choices are even.
    """
    found = count_config(config)
    read = found.active
    for block, counted in zip(config.blocks, found.by_block, strict=True):
        if experts := counted.by_part.get("experts", 0):
            share = block.mlp.routing.topk / block.mlp.n_experts
            read += experts * ((1 - (1 - share) ** tokens) - share)
    return read


def intensity(config: Decoder.Config, tokens: int, context: int, itemsize: int = 2, cached: bool = False) -> float:
    """FLOPs per byte of weights read when `tokens` sequences each decode one token; `cached`: the cache's bytes count too."""
    found = count_config(config)
    read = weights_read(config, tokens) * itemsize
    read += tokens * found.kv_cache_bytes(context, itemsize) if cached else 0
    return tokens * found.flops_per_token(context) / read


def users(cache_bytes: int, room: float = CARD) -> int:
    """Caches of this size that fit."""
    return int(max(room, 0) // cache_bytes)


def numbers(config: Decoder.Config, context: int, batch: int = 32, itemsize: int = 2) -> list[Number]:
    """The page's table of totals."""
    found = count_config(config)
    part = shares(config, context)
    weights, cache = found.weight_bytes(itemsize), found.kv_cache_bytes(context, itemsize)
    per_token = found.kv_bytes_per_token(itemsize)
    room = CARD - weights
    cards = -(-weights // int(CARD))
    beside = f"({amount(CARD, 'B')} − {amount(weights, 'B')}) / {amount(cache, 'B')}, rounded down"
    if room <= 0:
        beside = f"the weights alone, {amount(weights, 'B')}, need {several(cards, 'card')} of {amount(CARD, 'B')}"
    read, bits = weights_read(config, batch), f"{8 * itemsize} bits"
    alone, together = (intensity(config, n, context, itemsize) for n in (1, batch))
    cached = intensity(config, batch, context, itemsize, cached=True)
    return [
        Number("parameters", found.parameters, f"{found.parameters:,}", summed_words(found)),
        Number("met by one token", found.active, f"{found.active:,}", met_words(config, found)),
        Number(f"weights in {bits}", weights, amount(weights, "B"), f"{found.parameters:,} × {itemsize} bytes"),
        Number(
            f"cache of one more token, {bits}", per_token, amount(per_token, "B"),
            f"{itemsize} bytes × {cached_words(config)}",
        ),
        Number(
            f"cache of {several(context, 'token')}, {bits}", cache, amount(cache, "B"),
            f"{itemsize} bytes × {kept_words(found, context)}",
        ),
        Number(
            f"users whose caches fill 80 GB, {bits}", users(cache), f"{users(cache):,}",
            f"{amount(CARD, 'B')} / {amount(cache, 'B')}, rounded down; weights elsewhere",
        ),
        Number(f"users beside the weights in 80 GB, {bits}", users(cache, room), f"{users(cache, room):,}", beside),
        Number(
            f"FLOPs of token {context:,}", part.total, amount(part.total, "FLOP"),
            f"2 × ({found.active:,} weights met + {mixed_words(found, context)})",
        ),
        Number(
            "of them attention", part.attention, f"{part.attention:.1%}",
            f"projections {amount(part.projections, 'FLOP')} + q·k and pattern·v {amount(part.mixing, 'FLOP')} "
            f"of {amount(part.total, 'FLOP')}",
        ),
        Number(
            "of them MLP", part.mlp / part.total, f"{part.mlp / part.total:.1%}",
            f"{amount(part.mlp, 'FLOP')} of {amount(part.total, 'FLOP')}; the rest is the unembedding and the norms",
        ),
        Number(
            "FLOPs per byte, batch 1", alone, f"{alone:.3g}",
            f"{amount(part.total, 'FLOP')} / ({found.active:,} weights read × {itemsize} bytes)",
        ),
        Number(
            f"FLOPs per byte, batch {batch:,}", together, f"{together:.3g}",
            f"{batch:,} × {amount(part.total, 'FLOP')} / ({read:,.0f} weights read × {itemsize} bytes)",
        ),
        Number(
            "with the caches read too", cached, f"{cached:.3g}",
            f"the same FLOPs / (weights + {several(batch, 'cache')} of {amount(cache, 'B')})",
        ),
    ]  # fmt: skip


def summed_words(found: Count) -> str:
    """Every part and its parameters, in words."""
    return " + ".join(f"{part} {n:,}" for part, n in found.by_part.items())


def met_words(config: Decoder.Config, found: Count) -> str:
    """The parameters that one token meets, in words."""
    idle = found.parameters - found.active
    if not idle:
        return "every parameter"
    experts = sum(b.parameters - b.active for b in found.by_block)
    parts = [f"{experts:,} of experts not chosen"] if experts else []
    if idle - experts:
        parts.append(f"{idle - experts:,} of embedding or position rows not looked up")
    return f"{found.parameters:,} − {' − '.join(parts)}"


def _runs(found: Count) -> list[tuple[BlockCount, int]]:
    """Blocks that keep the same, and how many there are."""
    kept: dict[tuple, list[BlockCount]] = {}
    for block in found.by_block:
        kept.setdefault((block.mask, block.cached, block.work_per_key), []).append(block)
    return [(same[0], len(same)) for same in kept.values()]


def cached_words(config: Decoder.Config) -> str:
    """What one token keeps in every layer, in words."""
    layers: dict[str, int] = {}
    for block in config.blocks:
        attn = block.attn
        said = f"2 · n_kv_heads {attn.n_kv_heads} · d_head {attn.d_head}"
        said = f"(kv_latent {attn.kv_latent} + d_rope {attn.rope.d})" if isinstance(attn, MLA.Config) else said
        layers[said] = layers.get(said, 0) + 1
    return " + ".join(f"{several(n, 'layer')} × {said}" for said, n in layers.items())


def kept_words(found: Count, context: int) -> str:
    """What a whole text keeps, in words: windows stop growing."""
    return " + ".join(
        f"{several(n, 'layer')} × {block.cached:,} × {several(reach, 'token')}{'' if reach == context else ' (window)'}"
        for block, n in _runs(found)
        for reach in [block.mask.reach(context)]
    )


def mixed_words(found: Count, context: int) -> str:
    """Products of the last token with the keys that it sees, in words."""
    seen = ((b, n, several(b.mask.reach(context), "key")) for b, n in _runs(found))
    return " + ".join(f"{several(n, 'layer')} × {b.work_per_key:,} × {keys}" for b, n, keys in seen)


def routing_biases(config: Decoder.Config) -> int:
    """Entries of the biases that only choose experts: stored like weights, and buffers in transformers, not counted there."""
    moes = [block.mlp for block in config.blocks if isinstance(block.mlp, MoE.Config)]
    return sum(mlp.n_experts for mlp in moes if "correction" in _stored(mlp))


@lru_cache(maxsize=64)
def _stored(mlp: MoE.Config) -> frozenset[str]:
    with torch.device("meta"):
        return frozenset(name for name, _ in mlp.build().named_parameters())


def uncounted(config: Decoder.Config) -> str:
    """Why another count may differ; "" where nothing does."""
    n = routing_biases(config)
    if not n:
        return ""
    whole = count_config(config).parameters
    return f"{n:,} of the parameters are routing biases, buffers in transformers, which counts {whole - n:,}"


def contexts(longest: int = 1 << 20, shortest: int = 128) -> Sequence[int]:
    """Powers of two for a logarithmic axis."""
    found = []
    while shortest <= longest:
        found.append(shortest)
        shortest *= 2
    return tuple(found)
