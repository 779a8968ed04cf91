"""Llama, Mistral, Qwen 2 and 3: one block of RMSNorm, grouped-query attention with RoPE and SwiGLU, and two residual adds.

They differ in biases, QK-norm and windows, and in what a missing field means.
"""

from model.attention import Attention
from model.block import PreNorm
from model.checkpoints.families.common import (
    MOST,
    Family,
    full_attention_only,
    head_dim,
    heads,
    layer_types,
    norm_eps,
    size,
    window,
)
from model.checkpoints.fields import Fields, shown
from model.checkpoints.recipes import table
from model.checkpoints.rope import DEFAULT_BASE, read_rope
from model.lm import Decoder
from model.masks import Causal, Sliding
from model.mlp import SwiGLU
from model.norms import RMSNorm

Mask = Causal | Sliding


def llama(fields: Fields) -> Decoder.Config:
    """Llama 1 to 3, SmolLM, TinyLlama and all that share the class: one flag puts biases on all four projections."""
    if fields.raw("use_sliding_window") is False:  # left over from a converted model, and switched off
        fields.asked |= {"sliding_window", "max_window_layers"}
    else:
        fields.only("sliding_window", (), "llama blocks have no window; a model trained with one is of type mistral")
    bias = fields.flag("attention_bias")
    layers = size(fields, "num_hidden_layers")
    full_attention_only(fields, layers, "llama")
    return decoder(
        fields,
        masks=(Causal(),) * layers,
        context=size(fields, "max_position_embeddings", 2048),
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=fields.flag("mlp_bias"),
    )


def mistral(fields: Fields) -> Decoder.Config:
    """Mistral: no biases, one window for every layer (4096 where the field is missing; null from v0.2 on)."""
    if "sliding_window" not in fields.values:
        fields.default("sliding_window", 4096, "what mistral defaults to")
        width = 4096
    else:
        width = window(fields)
    _no_biases(fields, "mistral")
    layers = size(fields, "num_hidden_layers")
    mask = Causal() if width is None else Sliding(window=width)
    kind = "full_attention" if width is None else "sliding_attention"
    if (kinds := fields.raw("layer_types")) is not None and kinds != [kind] * layers:
        raise fields.fail(f"layer_types is {shown(kinds)}; in a mistral model every layer is {kind!r}")
    return decoder(fields, masks=(mask,) * layers, context=size(fields, "max_position_embeddings", 131_072))


def qwen2(fields: Fields) -> Decoder.Config:
    """Qwen 2 and 2.5: biases on q, k and v, never on o, whatever the config says; a window on upper layers or none."""
    if fields.raw("attention_bias") is not None:
        fields.note("attention_bias is not read: qwen2 always has biases on q, k and v and none on o")
    fields.only("mlp_bias", (False,), "qwen2 has no MLP biases")
    return decoder(fields, masks=upper_windows(fields), context=size(fields, "max_position_embeddings", 32_768), qkv_bias=True)


def qwen3(fields: Fields) -> Decoder.Config:
    """Qwen 3: an RMSNorm on each head of q and k before the rotation; heads of 128 unless the config says otherwise."""
    fields.only("mlp_bias", (False,), "qwen3 has no MLP biases")
    bias = fields.flag("attention_bias")
    width = None if "head_dim" in fields.values else 128
    return decoder(
        fields,
        masks=upper_windows(fields),
        context=size(fields, "max_position_embeddings", 32_768),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=True,
        head_width=width,
    )


def decoder(
    fields: Fields,
    *,
    masks: tuple[Mask, ...],
    context: int,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    head_width: int | None = None,
    base: float = DEFAULT_BASE,
    absent_eps: float = 1e-6,
) -> Decoder.Config:
    """The block that the families share, with what differs filled in.

    `head_width`, `base` and `absent_eps` are what an absent head_dim, rope_theta and rms_norm_eps mean.
    """
    d_model = size(fields, "hidden_size")
    n_heads, kv_heads = heads(fields)
    d_head = head_dim(fields, d_model, n_heads, head_width)
    eps = norm_eps(fields, default=absent_eps)
    fields.only("hidden_act", ("silu", "swish"), "the gate of this model_type is SiLU")
    norm, head_norm = RMSNorm.Config(d=d_model, eps=eps), RMSNorm.Config(d=d_head, eps=eps) if qk_norm else None
    rope = read_rope(fields, d_head, context, base=base)
    mlp = SwiGLU.Config(d_model=d_model, d_mlp=size(fields, "intermediate_size"), bias=mlp_bias)
    blocks = {  # one config per kind of mask, shared by its layers
        mask: PreNorm.Config(
            ln1=norm,
            attn=Attention.Config(
                d_model=d_model,
                n_heads=n_heads,
                n_kv_heads=kv_heads,
                d_head=d_head,
                rope=rope,
                mask=mask,
                q_norm=head_norm,
                k_norm=head_norm,
                qkv_bias=qkv_bias,
                o_bias=o_bias,
            ),
            ln2=norm,
            mlp=mlp,
        )
        for mask in set(masks)
    }
    return Decoder.Config(
        d_vocab=size(fields, "vocab_size"),
        d_model=d_model,
        blocks=tuple(blocks[mask] for mask in masks),
        ln_final=norm,
        tied=fields.flag("tie_word_embeddings"),
        context=context,
    )


def upper_windows(fields: Fields) -> tuple[Mask, ...]:
    """With use_sliding_window, layers from max_window_layers on have the window; explicit layer_types win over that."""
    layers = size(fields, "num_hidden_layers")
    width = window(fields) if fields.flag("use_sliding_window") else None
    first = fields.raw("max_window_layers")
    fields.asked.add("sliding_window")
    slides = Sliding(window=width) if width else None
    kinds = layer_types(fields, layers, ("full_attention", "sliding_attention"))
    if kinds is not None:
        if slides is None and "sliding_attention" in kinds:
            raise fields.fail("layer_types names sliding_attention but no window is on; set use_sliding_window")
        return tuple(slides if kind == "sliding_attention" else Causal() for kind in kinds)
    if slides is None:
        return (Causal(),) * layers
    if first is None:
        first = 28
        fields.default("max_window_layers", first, "what this model_type defaults to")
    elif type(first) is not int or not 0 <= first <= MOST["max_window_layers"]:
        raise fields.fail(f"max_window_layers is {shown(first)}; expected a whole number of layers")
    return tuple(slides if i >= first else Causal() for i in range(layers))


def _no_biases(fields: Fields, family: str) -> None:
    for name in ("attention_bias", "mlp_bias"):
        fields.only(name, (False,), f"{family} has no biases")


NAMES = table(
    {
        "embed.weight": "embed_tokens.weight",
        "blocks.{i}.ln1.weight": "layers.{i}.input_layernorm.weight",
        "blocks.{i}.attn.q_proj.{leaf}": "layers.{i}.self_attn.q_proj.{leaf}",
        "blocks.{i}.attn.k_proj.{leaf}": "layers.{i}.self_attn.k_proj.{leaf}",
        "blocks.{i}.attn.v_proj.{leaf}": "layers.{i}.self_attn.v_proj.{leaf}",
        "blocks.{i}.attn.o_proj.{leaf}": "layers.{i}.self_attn.o_proj.{leaf}",
        "blocks.{i}.attn.q_norm.weight": "layers.{i}.self_attn.q_norm.weight",
        "blocks.{i}.attn.k_norm.weight": "layers.{i}.self_attn.k_norm.weight",
        "blocks.{i}.ln2.weight": "layers.{i}.post_attention_layernorm.weight",  # in this family it stands before the MLP
        "blocks.{i}.mlp.gate_proj.{leaf}": "layers.{i}.mlp.gate_proj.{leaf}",
        "blocks.{i}.mlp.up_proj.{leaf}": "layers.{i}.mlp.up_proj.{leaf}",
        "blocks.{i}.mlp.down_proj.{leaf}": "layers.{i}.mlp.down_proj.{leaf}",
        "ln_final.weight": "norm.weight",
    }
)

FAMILIES = {
    "llama": Family(llama, NAMES),
    "mistral": Family(mistral, NAMES),
    "qwen2": Family(qwen2, NAMES),
    "qwen3": Family(qwen3, NAMES),
}
