"""Llama 4 (text): experts beside a shared one, in all layers or in some; layers that rotate see their chunk of the text.

A layer without rotation sees everything and scales its queries with their position instead. QK-norm, where it is on, has
no gain, follows the rotation, and is absent where there is none.
"""

from dataclasses import replace

from model.attention import Attention, RotateThenNorm
from model.block import PreNorm
from model.checkpoints.families.common import Family, head_dim, heads, layer_types, norm_eps, size
from model.checkpoints.families.sparse import ALL_BUT_MLP, experts, layer_list, topk
from model.checkpoints.fields import Fields, shown
from model.checkpoints.recipes import Part, Turned, table
from model.checkpoints.rope import read_rope
from model.lm import Decoder
from model.masks import Causal, Chunked
from model.mlp import SwiGLU
from model.moe import MoE
from model.norms import RMSNorm, UnitRMSNorm
from model.routing import SigmoidTopK
from model.temperature import Temperature

CHUNKED, FULL = "chunked_attention", "full_attention"


def llama4(fields: Fields) -> Decoder.Config:
    d_model, layers = size(fields, "hidden_size"), size(fields, "num_hidden_layers")
    fields.only("hidden_act", ("silu", "swish"), "the gate of this model_type is SiLU")
    fields.asked.add("for_llm_compressor")  # how a quantiser sees the experts
    eps, context = norm_eps(fields, default=1e-5), size(fields, "max_position_embeddings", 131_072)
    norm = RMSNorm.Config(d=d_model, eps=eps)
    rotates, chunk = _rotates(fields, layers), _chunk(fields)
    masks = {CHUNKED: Causal() if chunk is None else Chunked(chunk=chunk), FULL: Causal()}
    near = FULL if chunk is None else CHUNKED
    kinds = layer_types(fields, layers, tuple(masks)) or [near if rotary else FULL for rotary in rotates]
    if chunk is None and CHUNKED in kinds:
        raise fields.fail(f"layer_types names {CHUNKED} but attention_chunk_size is null")
    attention = {rotary: _attention(fields, d_model, eps, context, rotary) for rotary in (True, False)}
    moe, dense = _mlps(fields, d_model)
    sparse = _moe_layers(fields, layers)
    made = {
        (kind, rotary, mlp): PreNorm.Config(ln1=norm, attn=replace(attention[rotary], mask=mask), ln2=norm, mlp=mlp)
        for kind, mask in masks.items()
        for rotary in (True, False)
        for mlp in (moe, dense)
    }
    blocks = (made[kinds[i], rotates[i], moe if i in sparse else dense] for i in range(layers))
    return Decoder.Config(
        d_vocab=size(fields, "vocab_size"), d_model=d_model, blocks=tuple(blocks), ln_final=norm,
        tied=fields.flag("tie_word_embeddings"), context=context,
    )  # fmt: skip


def _attention(fields: Fields, d_model: int, eps: float, context: int, rotary: bool) -> Attention.Config:
    n, kv = heads(fields)
    d_head, bias = head_dim(fields, d_model, n, 128), fields.flag("attention_bias")
    shape = {"d_model": d_model, "n_heads": n, "n_kv_heads": kv, "d_head": d_head, "qkv_bias": bias, "o_bias": bias}
    rope = replace(read_rope(fields, d_head, context, base=500_000.0), pairing="interleaved")
    unit = UnitRMSNorm.Config(d=d_head, eps=eps) if fields.flag("use_qk_norm", True) else None
    if rotary:
        return RotateThenNorm.Config(**shape, rope=rope, q_norm=unit, k_norm=unit)
    return Attention.Config(**shape, rope=None, temperature=_temperature(fields))


def _temperature(fields: Fields) -> Temperature.Config | None:
    every, slope = size(fields, "floor_scale", 8192), fields.number("attn_scale", 0.1, "what llama4 defaults to")
    tuned = fields.raw("attn_temperature_tuning")
    if tuned is not None and type(tuned) not in (bool, int):  # the first files said 4 for true
        raise fields.fail(f"attn_temperature_tuning is {shown(tuned)}; expected true or false")
    return Temperature.Config(every=every, slope=slope) if tuned is None or tuned else None


def _rotates(fields: Fields, layers: int) -> list[bool]:
    """no_rope_layers says 1 for a layer that rotates, in spite of its name; without it, every fourth layer does not."""
    listed, name = fields.raw("no_rope_layers"), "no_rope_layer_interval"
    every = 4 if fields.raw(name) is None else fields.whole(name, 1 << 10)
    if not listed:
        return [(i + 1) % every != 0 for i in range(layers)]
    if not isinstance(listed, list) or len(listed) < layers or any(i not in (0, 1) for i in listed):
        raise fields.fail(f"no_rope_layers is {shown(listed)}; expected a 1 or 0 for each of {layers} layers")
    return [bool(i) for i in listed[:layers]]


def _chunk(fields: Fields) -> int | None:
    """null is no chunks; a missing field means 8192."""
    if "attention_chunk_size" in fields.values and fields.raw("attention_chunk_size") is None:
        return None
    return size(fields, "attention_chunk_size", 8192)


def _mlps(fields: Fields, d_model: int) -> tuple[MoE.Config, SwiGLU.Config]:
    """(experts of width intermediate_size, dense MLP of width intermediate_size_mlp)."""
    n, width = experts(fields, "num_local_experts", "num_experts", absent=16), size(fields, "intermediate_size", 8192)
    moe = MoE.Config(
        d_model=d_model, d_mlp=width, n_experts=n, routing=SigmoidTopK(topk=topk(fields, n, 1)),
        shared=SwiGLU.Config(d_model=d_model, d_mlp=width),
    )  # fmt: skip
    return moe, SwiGLU.Config(d_model=d_model, d_mlp=size(fields, "intermediate_size_mlp", 16_384))


def _moe_layers(fields: Fields, layers: int) -> list[int]:
    """moe_layers where it is given; else every interleave_moe_layer_step-th layer, the first being step - 1."""
    step = fields.whole("interleave_moe_layer_step", 1 << 10, 1, "every layer")
    listed = layer_list(fields, "moe_layers", layers)
    return list(range(step - 1, layers, step)) if listed is None else listed


GATE_UP = "layers.{i}.feed_forward.experts.gate_up_proj"  # [expert, d_model, gate | up]: input first

NAMES = table(
    ALL_BUT_MLP
    | {
        "blocks.{i}.mlp.gate_proj.weight": "layers.{i}.feed_forward.gate_proj.weight",
        "blocks.{i}.mlp.up_proj.weight": "layers.{i}.feed_forward.up_proj.weight",
        "blocks.{i}.mlp.down_proj.weight": "layers.{i}.feed_forward.down_proj.weight",
        "blocks.{i}.mlp.router.weight": "layers.{i}.feed_forward.router.weight",
        "blocks.{i}.mlp.experts.gate_proj": Turned(Part(GATE_UP, 0, 2, axis=-1)),
        "blocks.{i}.mlp.experts.up_proj": Turned(Part(GATE_UP, 1, 2, axis=-1)),
        "blocks.{i}.mlp.experts.down_proj": Turned("layers.{i}.feed_forward.experts.down_proj"),
        "blocks.{i}.mlp.shared.gate_proj.weight": "layers.{i}.feed_forward.shared_expert.gate_proj.weight",
        "blocks.{i}.mlp.shared.up_proj.weight": "layers.{i}.feed_forward.shared_expert.up_proj.weight",
        "blocks.{i}.mlp.shared.down_proj.weight": "layers.{i}.feed_forward.shared_expert.down_proj.weight",
    }
)

FAMILIES = {"llama4_text": Family(llama4, NAMES)}
