"""What each `model_type` of a Hugging Face config means: a model config, and the names of its tensors in the files.

The four families are one block: RMSNorm, grouped-query attention with RoPE, SwiGLU, two residual adds. They differ in
biases, QK-norm and windows, and in what a missing field means.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from model.attention import Attention
from model.block import PreNorm
from model.checkpoints.fields import Fields, shown
from model.checkpoints.rope import read_rope
from model.lm import Decoder
from model.masks import Causal, Sliding
from model.mlp import SwiGLU
from model.norms import RMSNorm

# Far above any published model; a config beyond them is refused before anything of its size is made.
MOST = MappingProxyType(
    {
        "vocab_size": 1 << 24,
        "hidden_size": 1 << 18,
        "intermediate_size": 1 << 20,
        "num_hidden_layers": 1 << 10,
        "num_attention_heads": 1 << 12,
        "head_dim": 1 << 14,
        "max_position_embeddings": 1 << 31,
        "sliding_window": 1 << 31,
        "max_window_layers": 1 << 20,
    }
)

Mask = Causal | Sliding


def llama(fields: Fields) -> Decoder.Config:
    """Llama 1 to 3, SmolLM, TinyLlama and all that share the class: one flag puts biases on all four projections."""
    if fields.raw("use_sliding_window") is False:  # left over from a converted model, and switched off
        fields.asked |= {"sliding_window", "max_window_layers"}
    else:
        fields.only("sliding_window", (), "llama blocks have no window; a model trained with one is of type mistral")
    bias = fields.flag("attention_bias")
    layers = _layers(fields)
    return _decoder(
        fields,
        masks=_full(fields, layers),
        context=_context(fields, 2048),
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=fields.flag("mlp_bias"),
    )


def mistral(fields: Fields) -> Decoder.Config:
    """Mistral: no biases, one window for every layer (4096 where the field is missing; null from v0.2 on)."""
    if "sliding_window" not in fields.values:
        fields.note("sliding_window is not given: 4096 is used (what mistral defaults to)")
        window = 4096
    else:
        window = _window(fields)
    _no_biases(fields, "mistral")
    layers = _layers(fields)
    mask = Causal() if window is None else Sliding(window=window)
    kind = "full_attention" if window is None else "sliding_attention"
    if (kinds := fields.raw("layer_types")) is not None and kinds != [kind] * layers:
        raise fields.fail(f"layer_types is {shown(kinds)}; in a mistral model every layer is {kind!r}")
    return _decoder(fields, masks=(mask,) * layers, context=_context(fields, 131_072))


def qwen2(fields: Fields) -> Decoder.Config:
    """Qwen 2 and 2.5: biases on q, k and v, never on o, whatever the config says; a window on upper layers or none."""
    if fields.raw("attention_bias") is not None:
        fields.note("attention_bias is not read: qwen2 always has biases on q, k and v and none on o")
    fields.only("mlp_bias", (False,), "qwen2 has no MLP biases")
    return _decoder(fields, masks=_upper_windows(fields), context=_context(fields, 32_768), qkv_bias=True)


def qwen3(fields: Fields) -> Decoder.Config:
    """Qwen 3: an RMSNorm on each head of q and k before the rotation; heads of 128 unless the config says otherwise."""
    fields.only("mlp_bias", (False,), "qwen3 has no MLP biases")
    bias = fields.flag("attention_bias")
    width = None if "head_dim" in fields.values else 128
    return _decoder(
        fields,
        masks=_upper_windows(fields),
        context=_context(fields, 32_768),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=True,
        head_dim=width,
    )


def _decoder(
    fields: Fields,
    *,
    masks: tuple[Mask, ...],
    context: int,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    head_dim: int | None = None,
) -> Decoder.Config:
    """The block that the families share, with what differs filled in. `head_dim`: what an absent field means."""
    d_model = fields.whole("hidden_size", MOST["hidden_size"])
    heads = fields.whole("num_attention_heads", MOST["num_attention_heads"])
    kv_heads = fields.whole("num_key_value_heads", heads, heads, "one for each query head")
    if heads % kv_heads:
        raise fields.fail(f"num_key_value_heads is {kv_heads}; expected a divisor of num_attention_heads, {heads}")
    d_head = _head_dim(fields, d_model, heads, head_dim)
    eps = fields.number("rms_norm_eps", 1e-6, "what these families default to")
    if not 0 <= eps < 1:
        raise fields.fail(f"rms_norm_eps is {eps:g}; expected a small number from 0 up to 1")
    fields.only("hidden_act", ("silu", "swish"), "the gate of this model_type is SiLU")
    norm, head_norm = RMSNorm.Config(d=d_model, eps=eps), RMSNorm.Config(d=d_head, eps=eps) if qk_norm else None
    rope = read_rope(fields, d_head, context)
    mlp = SwiGLU.Config(
        d_model=d_model, d_mlp=fields.whole("intermediate_size", MOST["intermediate_size"]), bias=mlp_bias
    )
    blocks = {  # one config per kind of mask, shared by its layers
        mask: PreNorm.Config(
            ln1=norm,
            attn=Attention.Config(
                d_model=d_model,
                n_heads=heads,
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
        d_vocab=fields.whole("vocab_size", MOST["vocab_size"]),
        d_model=d_model,
        blocks=tuple(blocks[mask] for mask in masks),
        ln_final=norm,
        tied=fields.flag("tie_word_embeddings"),
        context=context,
    )


def _layers(fields: Fields) -> int:
    return fields.whole("num_hidden_layers", MOST["num_hidden_layers"])


def _context(fields: Fields, default: int) -> int:
    name = "max_position_embeddings"
    return fields.whole(name, MOST[name], default, "what this model_type defaults to")


def _head_dim(fields: Fields, d_model: int, heads: int, absent: int | None) -> int:
    """The width of a head: its own field; else the family's default; else hidden_size / num_attention_heads."""
    if fields.raw("head_dim") is not None:
        return fields.whole("head_dim", MOST["head_dim"])
    if absent is not None:
        fields.note(f"head_dim is not given: {absent} is used (what this model_type defaults to)")
        return absent
    if d_model % heads:
        raise fields.fail(
            f"hidden_size {d_model} is not a multiple of num_attention_heads {heads} and head_dim is not given: add it"
        )
    return d_model // heads


def _window(fields: Fields) -> int | None:
    """How many keys a query sees, itself included; null means all. 0 and -1 are read as null, and noted."""
    value = fields.raw("sliding_window")
    if value in (0, -1) and type(value) is int:
        fields.note(f"sliding_window is {value}, which would hide every key: read as no window")
        return None
    return None if value is None else fields.whole("sliding_window", MOST["sliding_window"])


def _full(fields: Fields, layers: int) -> tuple[Mask, ...]:
    if (kinds := fields.raw("layer_types")) is not None and kinds != ["full_attention"] * layers:
        raise fields.fail(f"layer_types is {shown(kinds)}; in a llama model every layer is 'full_attention'")
    return (Causal(),) * layers


def _upper_windows(fields: Fields) -> tuple[Mask, ...]:
    """With use_sliding_window, layers from max_window_layers on have the window; explicit layer_types win over that."""
    layers = _layers(fields)
    window = _window(fields) if fields.flag("use_sliding_window") else None
    fields.asked.add("sliding_window")
    first = fields.values.get("max_window_layers")
    fields.asked.add("max_window_layers")
    kinds = fields.raw("layer_types")
    if kinds is None:
        if window is None:
            return (Causal(),) * layers
        if first is None:
            first = 28
            fields.note("max_window_layers is not given: 28 is used (what this model_type defaults to)")
        elif type(first) is not int or not 0 <= first <= MOST["max_window_layers"]:
            raise fields.fail(f"max_window_layers is {shown(first)}; expected a whole number of layers")
        return tuple(Sliding(window=window) if i >= first else Causal() for i in range(layers))
    if not isinstance(kinds, list) or len(kinds) != layers:
        count = f"{len(kinds)} entries" if isinstance(kinds, list) else shown(kinds)
        raise fields.fail(f"layer_types has {count}; expected a list of {layers}, one for each of num_hidden_layers")
    if window is None and "sliding_attention" in kinds:
        raise fields.fail("layer_types names sliding_attention but no window is on; set use_sliding_window")
    masks = {"full_attention": Causal(), "sliding_attention": Sliding(window=window) if window else None}
    if unknown := [kind for kind in kinds if not isinstance(kind, str) or kind not in masks]:
        raise fields.fail(f"layer_types holds {shown(unknown[0])}; the types known here are {', '.join(masks)}")
    return tuple(masks[kind] for kind in kinds)


def _no_biases(fields: Fields, family: str) -> None:
    for name in ("attention_bias", "mlp_bias"):
        fields.only(name, (False,), f"{family} has no biases")


NAMES = MappingProxyType(  # our module -> theirs, below the prefix that a file uses; {i} is the layer
    {
        "embed": "embed_tokens",
        "blocks.{i}.ln1": "layers.{i}.input_layernorm",
        "blocks.{i}.attn.q_proj": "layers.{i}.self_attn.q_proj",
        "blocks.{i}.attn.k_proj": "layers.{i}.self_attn.k_proj",
        "blocks.{i}.attn.v_proj": "layers.{i}.self_attn.v_proj",
        "blocks.{i}.attn.o_proj": "layers.{i}.self_attn.o_proj",
        "blocks.{i}.attn.q_norm": "layers.{i}.self_attn.q_norm",
        "blocks.{i}.attn.k_norm": "layers.{i}.self_attn.k_norm",
        "blocks.{i}.ln2": "layers.{i}.post_attention_layernorm",  # in this family it stands before the MLP
        "blocks.{i}.mlp.gate_proj": "layers.{i}.mlp.gate_proj",
        "blocks.{i}.mlp.up_proj": "layers.{i}.mlp.up_proj",
        "blocks.{i}.mlp.down_proj": "layers.{i}.mlp.down_proj",
        "ln_final": "norm",
    }
)


@dataclass(frozen=True)
class Family:
    """How a config of this type is read, and how its tensors are named."""

    read: Callable[[Fields], Decoder.Config]
    names: MappingProxyType


FAMILIES = {
    "llama": Family(llama, NAMES),
    "mistral": Family(mistral, NAMES),
    "qwen2": Family(qwen2, NAMES),
    "qwen3": Family(qwen3, NAMES),
}


def config_of(values: dict, where: str = "config.json") -> tuple[Decoder.Config, Family, list[str]]:
    """(model config, family, notes) of a parsed config.json; errors name the field, its value and what was expected."""
    fields = Fields(values, where)
    kind = fields.raw("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        said = "is missing" if kind is None else f"is {shown(kind)}"
        raise fields.fail(f"model_type {said}; the types that can be opened are {', '.join(FAMILIES)}")
    for name in ("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"):
        fields.only(name, (False,), "only decoder-only models can be opened")
    fields.only("quantization_config", ({},), "the weights are quantised; save the model in bfloat16 first")
    config = FAMILIES[kind].read(fields)
    fields.judge_the_rest(kind)
    return config, FAMILIES[kind], fields.notes
