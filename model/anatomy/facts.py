"""A model line by line, so that any models can stand side by side; each line knows where its value is written.

A Fact reads a config; `fields` are the keys of a Hugging Face config.json that say the same, whichever its family has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from model.anatomy.kinds import kinds
from model.anatomy.sublayers import (
    ACTIVATION_NAMES,
    GLU_NAMES,
    heads_name,
    mask_name,
    routing_text,
)
from model.anatomy.writing import norm_name, number, several
from model.attention import Attention
from model.block import WIRINGS, BlockConfig
from model.cost import amount
from model.counting import count_config
from model.lm import Decoder
from model.mla import MLA
from model.mlp import GLU
from model.moe import MoE
from model.norms import NormConfig

NONE = "–"
PLACEMENT = {
    "pre": "before each part", "post": "after each sum", "output": "on each output", "sandwich": "before and after",
    "parallel": "one, before both",
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    group: str
    name: str
    read: Callable[[Decoder.Config, int], str]
    fields: tuple[str, ...] = ()
    formula: str = ""  # of a counted value


@dataclass(frozen=True)
class Line:
    """One row of the table: `differs` where the models do not agree; `sources` beside each value."""

    group: str
    name: str
    values: tuple[str, ...]
    sources: tuple[str, ...]
    differs: bool


def side_by_side(models: Mapping[str, Decoder.Config], origins: Mapping[str, str], context: int) -> list[Line]:
    """Every fact of every model. `origins`: model -> where its values come from, in one phrase."""
    lines = []
    for fact in FACTS:
        values = tuple(fact.read(config, context) for config in models.values())
        if all(value == NONE for value in values):
            continue
        told = tuple(_source(fact, origins.get(name, "")) for name in models)
        lines.append(Line(fact.group, fact.name, values, told, len(set(values)) > 1))
    return lines


def _source(fact: Fact, origin: str) -> str:
    if fact.formula:
        return f"counted from the config: {fact.formula}"
    keys = " or ".join(fact.fields)
    return " · ".join(filter(None, [origin, f"config.json: {keys}" if keys else ""]))


def each(read: Callable[[BlockConfig], object]) -> Callable[[Decoder.Config, int], str]:
    """A value of the blocks: once where all agree, else every one with its number of layers."""

    def joined(config: Decoder.Config, context: int) -> str:
        found: dict[str, int] = {}
        for kind in kinds(config):
            value = read(kind.block)
            text = NONE if value is None or value == "" else f"{value:,}" if isinstance(value, int) else str(value)
            found[text] = found.get(text, 0) + len(kind.layers)
        if len(found) == 1:
            return next(iter(found))
        return ", ".join(f"{text} ({several(n, 'layer')})" for text, n in found.items())

    return joined


def _norms(block: BlockConfig) -> list[NormConfig]:
    return [norm for norm in vars(block).values() if isinstance(norm, NormConfig)]


def _rope(read: Callable) -> Callable[[BlockConfig], object]:
    return lambda block: None if block.attn.rope is None else read(block.attn.rope)


def _scaling(rope) -> str | None:
    return None if rope.scaling is None else f"{type(rope.scaling).__name__} × {number(rope.scaling.factor)}"


def _qk_norm(block: BlockConfig) -> str | None:
    attn = block.attn
    if not isinstance(attn, Attention.Config) or attn.q_norm is None:
        return None
    return f"{norm_name(attn.q_norm)} {'per head' if attn.qk_norm_over == 'head' else 'over all heads'}"


def _kept(block: BlockConfig) -> str:
    if isinstance(block.attn, MLA.Config):
        return f"latent {block.attn.kv_latent:,} + {block.attn.rope.d}"
    return f"{block.attn.n_kv_heads:,}"


def _biases(block: BlockConfig) -> str | None:
    attn, mlp = block.attn, block.mlp
    q, o = getattr(attn, "qkv_bias", False), getattr(attn, "o_bias", False) or getattr(attn, "bias", False)
    where = [("q, k, v", q), ("o", o), ("MLP", getattr(mlp, "bias", False) or getattr(mlp, "expert_bias", False))]
    return ", ".join(name for name, there in where if there) or "none"


def _mlp(block: BlockConfig) -> str:
    mlp = block.mlp
    if isinstance(mlp, MoE.Config):
        return "experts: clamped SwiGLU" if mlp.gate == "clamped-swiglu" else "experts: SwiGLU"
    if isinstance(mlp, GLU.Config):
        return GLU_NAMES.get(mlp.activation, "GLU")
    return f"plain, {ACTIVATION_NAMES.get(mlp.activation, mlp.activation).split('_')[0]}"


def _moe(read: Callable[[MoE.Config], object]) -> Callable[[BlockConfig], object]:
    return lambda block: read(block.mlp) if isinstance(block.mlp, MoE.Config) else None


def _wiring(block: BlockConfig) -> str:
    name = next((name for name, part in WIRINGS.items() if type(block) is part.Config), "")
    return PLACEMENT.get(name, type(block).__qualname__.partition(".")[0])


def _positions(config: Decoder.Config, context: int) -> str:
    added = type(config.positions).__qualname__.partition(".")[0] if config.positions else ""
    said = {"LearnedPositions": "learned", "Sinusoidal": "sinusoidal"}.get(added, added)
    if any(block.attn.rope is not None for block in config.blocks):
        said = " + ".join(filter(None, [said, "RoPE"]))
    return said or "none"


def _share(config: Decoder.Config, context: int) -> str:
    block = count_config(config).by_block[-1]
    return f"{block.by_part.get('attention', 0) / block.parameters:.1%}"


HEADS, KV = ("num_attention_heads", "n_head"), ("num_key_value_heads",)
FACTS: tuple[Fact, ...] = (
    Fact("size", "layers", lambda c, t: f"{c.n_layers}", ("num_hidden_layers", "n_layer")),
    Fact("size", "width d_model", lambda c, t: f"{c.d_model:,}", ("hidden_size", "n_embd")),
    Fact("size", "vocabulary", lambda c, t: f"{c.d_vocab:,}", ("vocab_size",)),
    Fact("size", "context", lambda c, t: f"{c.context:,}", ("max_position_embeddings", "n_positions")),
    Fact("attention", "kind", each(lambda b: heads_name(b.attn)), (*HEADS, *KV)),
    Fact("attention", "query heads", each(lambda b: b.attn.n_heads), HEADS),
    Fact("attention", "key/value heads", each(_kept), KV),
    Fact("attention", "head size", each(lambda b: b.attn.d_head), ("head_dim",)),
    Fact(
        "attention", "visible keys", each(lambda b: mask_name(b.attn.mask) or "all before"), ("sliding_window", "layer_types")
    ),
    Fact("attention", "QK-norm", each(_qk_norm)),
    Fact("attention", "logits", each(lambda b: f"× {number(b.attn.logit_scale)}"), ("query_pre_attn_scalar",)),
    Fact(
        "attention",
        "soft-cap",
        each(lambda b: number(c) if (c := getattr(b.attn, "softcap", None)) else None),
        ("attn_logit_softcapping",),
    ),
    Fact("attention", "sink", each(lambda b: "one a head" if getattr(b.attn, "sink", False) else None)),
    Fact("positions", "kind", _positions),
    Fact("positions", "RoPE base", each(_rope(lambda r: number(r.base))), ("rope_theta", "rope_parameters.rope_theta")),
    Fact("positions", "RoPE scaling", each(_rope(_scaling)), ("rope_scaling", "rope_parameters")),
    Fact(
        "positions",
        "rotated",
        each(lambda b: f"{b.attn.rope.d} of {b.attn.d_head}" if b.attn.rope else None),
        ("partial_rotary_factor", "rotary_dim"),
    ),
    Fact("positions", "pairs", each(_rope(lambda r: "half a head apart" if r.pairing == "half" else "adjacent"))),
    Fact("norms", "kind", each(lambda b: norm_name(_norms(b)[0]) if _norms(b) else None)),
    Fact("norms", "placement", each(_wiring)),
    Fact(
        "norms", "eps", each(lambda b: number(_norms(b)[0].eps) if _norms(b) else None), ("rms_norm_eps", "layer_norm_epsilon")
    ),
    Fact("MLP", "kind", each(_mlp), ("hidden_act", "activation_function")),
    Fact("MLP", "neurons", each(lambda b: b.mlp.d_mlp), ("intermediate_size", "n_inner", "moe_intermediate_size")),
    Fact(
        "MLP",
        "neurons met / width",
        each(lambda b: f"{b.mlp.active_neurons / b.d_model:.3g}"),
        formula="neurons that one token meets / d_model",
    ),
    Fact("MLP", "experts", each(_moe(lambda m: m.n_experts)), ("num_local_experts", "num_experts", "n_routed_experts")),
    Fact("MLP", "chosen a token", each(_moe(lambda m: m.routing.topk)), ("num_experts_per_tok",)),
    Fact(
        "MLP",
        "shared expert",
        each(_moe(lambda m: several(m.shared.d_mlp, "neuron") if m.shared else "none")),
        ("n_shared_experts",),
    ),
    Fact("MLP", "routing", each(_moe(lambda m: routing_text(m.routing).replace("_{e}", "")))),
    Fact("ends", "biases", each(_biases), ("attention_bias", "mlp_bias")),
    Fact("ends", "unembedding", lambda c, t: "tied to the embedding" if c.tied else "its own", ("tie_word_embeddings",)),
    Fact("ends", "embedding scale", lambda c, t: f"× {number(c.embed_scale)}" if c.embed_scale else NONE),
    Fact("ends", "output soft-cap", lambda c, t: number(c.softcap) if c.softcap else NONE, ("final_logit_softcapping",)),
    Fact(
        "counts",
        "parameters",
        lambda c, t: f"{count_config(c).parameters:,}",
        formula="every stored number, routing biases among them; a tied matrix once",
    ),
    Fact(
        "counts",
        "met by one token",
        lambda c, t: f"{count_config(c).active:,}",
        formula="without experts not chosen and rows not looked up",
    ),
    Fact("counts", "attention's share of a block", _share, formula="attention / parameters of the last block"),
    Fact(
        "counts",
        "cache of a token, 16 bits",
        lambda c, t: amount(count_config(c).kv_bytes_per_token(), "B"),
        formula="2 bytes a number, all layers",
    ),
    Fact(
        "counts",
        "cache at the context chosen, 16 bits",
        lambda c, t: amount(count_config(c).kv_cache_bytes(t), "B"),
        formula="2 bytes a number, windows capped",
    ),
    Fact(
        "counts",
        "FLOPs of a token there",
        lambda c, t: amount(count_config(c).flops_per_token(t), "FLOP"),
        formula="2 a weight met and 2 a product with each visible key",
    ),
)
