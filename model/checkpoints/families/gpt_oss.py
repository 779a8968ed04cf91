"""gpt-oss: attention sinks, windows in every other layer, biases everywhere, experts with a clamped SwiGLU."""

from dataclasses import replace

from model.attention import Attention
from model.block import PreNorm
from model.checkpoints.families.common import Family, head_dim, heads, layer_types, norm_eps, size, window
from model.checkpoints.families.sparse import ALL_BUT_MLP, experts, topk
from model.checkpoints.fields import Fields
from model.checkpoints.recipes import Every, Turned, table
from model.checkpoints.rope import BLOCKS, ORIGINAL, read_rope
from model.lm import Decoder
from model.masks import Causal, Sliding
from model.moe import MoE
from model.norms import FullPrecisionRMSNorm
from model.positions import Rope, Yarn
from model.routing import TopKSoftmax

SLIDING, FULL = "sliding_attention", "full_attention"


def gpt_oss(fields: Fields) -> Decoder.Config:
    """Layers 0, 2, 4, ... slide unless layer_types says otherwise."""
    d_model, layers = size(fields, "hidden_size"), size(fields, "num_hidden_layers")
    fields.only("hidden_act", ("silu", "swish"), "the gate of gpt_oss is its own clamped form of SiLU")
    (n_heads, kv_heads), context = heads(fields), size(fields, "max_position_embeddings", 131_072)
    d_head, bias = head_dim(fields, d_model, n_heads, 64), fields.flag("attention_bias", True)
    rope, norm = _rope(fields, d_head, context), FullPrecisionRMSNorm.Config(d=d_model, eps=norm_eps(fields, default=1e-5))
    width = size(fields, "sliding_window", 128) if "sliding_window" not in fields.values else window(fields)
    masks = {SLIDING: Causal() if width is None else Sliding(window=width), FULL: Causal()}
    kinds = layer_types(fields, layers, tuple(masks)) or [FULL if i % 2 else SLIDING for i in range(layers)]
    moe = _experts(fields, d_model)
    blocks = {
        kind: PreNorm.Config(
            ln1=norm,
            attn=Attention.Config(
                d_model=d_model,
                n_heads=n_heads,
                n_kv_heads=kv_heads,
                d_head=d_head,
                rope=rope,
                mask=mask,
                sink=True,
                qkv_bias=bias,
                o_bias=bias,
            ),
            ln2=norm,
            mlp=moe,
        )
        for kind, mask in masks.items()
    }
    return Decoder.Config(
        d_vocab=size(fields, "vocab_size"), d_model=d_model, blocks=tuple(blocks[kind] for kind in kinds), ln_final=norm,
        tied=fields.flag("tie_word_embeddings"), context=context,
    )  # fmt: skip


def _experts(fields: Fields, d_model: int) -> MoE.Config:
    n = experts(fields, "num_local_experts", "num_experts", absent=128)
    fields.only("swiglu_limit", (7.0, 7), "gpt_oss clamps at 7")
    fields.only("swiglu_alpha", (1.702,), "the slope of gpt_oss's sigmoid is 1.702")
    return MoE.Config(
        d_model=d_model, d_mlp=size(fields, "intermediate_size"), n_experts=n, gate="clamped-swiglu",
        routing=TopKSoftmax(topk=topk(fields, n, 4, "experts_per_token")), router_bias=True, expert_bias=True,
    )  # fmt: skip


def _rope(fields: Fields, d_head: int, context: int) -> Rope.Config:
    """Without any rotary settings: YaRN by 32 from 4096 positions, the ends of its ramp not rounded."""
    rope = read_rope(fields, d_head, context, base=150_000.0)
    if not any(fields.raw(name) for name in BLOCKS):
        fields.note("rope_parameters are not given: yarn by 32 from 4096 positions is used (what gpt_oss defaults to)")
        rope = replace(rope, scaling=Yarn(factor=32.0, original=4096, truncate=False))
    original = rope.scaling.original if isinstance(rope.scaling, Yarn) else None
    first = fields.raw("initial_context_length")
    if None not in (first, original) and first != original:
        raise fields.fail(f"initial_context_length is {first} but {ORIGINAL} is {original}; make them equal")
    return rope


EXPERTS = "layers.{i}.mlp.experts"  # input first, gate and up in alternating columns

NAMES = table(
    ALL_BUT_MLP
    | {
        "blocks.{i}.attn.softmax.weight": "layers.{i}.self_attn.sinks",
        "blocks.{i}.mlp.router.{leaf}": "layers.{i}.mlp.router.{leaf}",
        "blocks.{i}.mlp.experts.gate_proj": Turned(Every(f"{EXPERTS}.gate_up_proj", 0, 2, axis=-1)),
        "blocks.{i}.mlp.experts.up_proj": Turned(Every(f"{EXPERTS}.gate_up_proj", 1, 2, axis=-1)),
        "blocks.{i}.mlp.experts.down_proj": Turned(f"{EXPERTS}.down_proj"),
        "blocks.{i}.mlp.experts.gate_bias": Every(f"{EXPERTS}.gate_up_proj_bias", 0, 2, axis=-1),
        "blocks.{i}.mlp.experts.up_bias": Every(f"{EXPERTS}.gate_up_proj_bias", 1, 2, axis=-1),
        "blocks.{i}.mlp.experts.down_bias": f"{EXPERTS}.down_proj_bias",
    }
)

FAMILIES = {"gpt_oss": Family(gpt_oss, NAMES)}
