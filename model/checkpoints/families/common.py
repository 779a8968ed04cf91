"""What every family is, and the fields that most of them share."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from model.checkpoints.fields import Fields, shown
from model.checkpoints.recipes import Recipe
from model.lm import Decoder

# Far above any published model; a config beyond them is refused before anything of its size is made.
MOST = MappingProxyType(
    {
        "vocab_size": 1 << 24,
        "hidden_size": 1 << 18,
        "intermediate_size": 1 << 20,
        "num_hidden_layers": 1 << 10,
        "num_attention_heads": 1 << 12,
        "num_key_value_heads": 1 << 12,
        "head_dim": 1 << 14,
        "max_position_embeddings": 1 << 31,
        "sliding_window": 1 << 31,
        "max_window_layers": 1 << 20,
        "n_embd": 1 << 18,
        "n_inner": 1 << 20,
        "n_layer": 1 << 10,
        "n_head": 1 << 12,
        "n_positions": 1 << 31,
        "num_experts": 1 << 14,
        "num_local_experts": 1 << 14,
        "n_routed_experts": 1 << 14,
        "num_experts_per_tok": 1 << 14,
        "experts_per_token": 1 << 14,
        "moe_intermediate_size": 1 << 20,
        "intermediate_size_mlp": 1 << 20,
        "n_shared_experts": 1 << 10,
        "n_group": 1 << 14,
        "topk_group": 1 << 14,
        "q_lora_rank": 1 << 16,
        "kv_lora_rank": 1 << 16,
        "qk_nope_head_dim": 1 << 14,
        "qk_rope_head_dim": 1 << 14,
        "v_head_dim": 1 << 14,
        "attention_chunk_size": 1 << 31,
        "floor_scale": 1 << 31,
    }
)

ACTIVATIONS = MappingProxyType(  # names in configs -> names in model.mlp; the three in the middle are one formula
    {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "relu": "relu",
        "silu": "silu",
        "swish": "silu",
    }
)

PREFIXES = MappingProxyType(  # what stands before "layers.0..." in files of one and the same model -> before its lm_head
    {"model.": "", "": "", "language_model.model.": "language_model.", "model.language_model.": ""}
)


@dataclass(frozen=True)
class Family:
    """How a config of this type is read, and how its tensors are named in files.

    `ignored`: patterns of names below the prefix that are not part of the model: tables, mask buffers, extra layers. A
    group named `beyond` must be a layer that the model does not have. `head` is what the unembedding is called.
    """

    read: Callable[[Fields], Decoder.Config]
    names: Mapping[str, Recipe]
    prefixes: Mapping[str, str] = field(default_factory=lambda: PREFIXES)
    ignored: tuple[str, ...] = ()
    head: str = "lm_head"


def size(fields: Fields, name: str, default: int | None = None, why: str = "what this model_type defaults to") -> int:
    """A size of the model: a whole number from 1 to MOST[name]; absent or null gives `default`, noted."""
    return fields.whole(name, MOST[name], default, why)


def spelled(fields: Fields, *names: str) -> str:
    """Which of a field's names this file uses; two that disagree are refused."""
    given = [name for name in names if fields.raw(name) is not None]
    for other in given[1:]:
        if fields.values[other] != fields.values[given[0]]:
            raise fields.fail(
                f"{given[0]} is {shown(fields.values[given[0]])} but {other} is {shown(fields.values[other])}; they mean "
                "the same: keep one"
            )
    return given[0] if given else names[0]


def heads(fields: Fields, absent: tuple[int, int] | None = None) -> tuple[int, int]:
    """(query heads, KV heads). KV heads absent or null are as many as the query heads; a family may default otherwise."""
    of_heads, of_kv_heads = absent or (None, None)
    n = size(fields, "num_attention_heads", of_heads)
    if of_kv_heads is not None and "num_key_value_heads" not in fields.values:
        kv = size(fields, "num_key_value_heads", of_kv_heads)
    else:
        kv = fields.whole("num_key_value_heads", n, n, "one for each query head")
    if n % kv:
        raise fields.fail(f"num_key_value_heads is {kv}; expected a divisor of num_attention_heads, {n}")
    return n, kv


def head_dim(fields: Fields, d_model: int, n_heads: int, absent: int | None = None) -> int:
    """The width of a head: its own field; else the family's default `absent`; else hidden_size / num_attention_heads."""
    if fields.raw("head_dim") is not None:
        return size(fields, "head_dim")
    if absent is not None:
        fields.default("head_dim", absent, "what this model_type defaults to")
        return absent
    if d_model % n_heads:
        raise fields.fail(
            f"hidden_size {d_model} is not a multiple of num_attention_heads {n_heads} and head_dim is not given: add it"
        )
    fields.defaults["head_dim"] = (d_model // n_heads, "hidden_size / num_attention_heads")
    return d_model // n_heads


def norm_eps(fields: Fields, name: str = "rms_norm_eps", default: float = 1e-6) -> float:
    eps = fields.number(name, default, "what these families default to")
    if not 0 <= eps < 1:
        raise fields.fail(f"{name} is {eps:g}; expected a small number from 0 up to 1")
    return eps


def window(fields: Fields) -> int | None:
    """How many keys a query sees, itself included; null means all. 0 and -1 are read as null, and noted."""
    value = fields.raw("sliding_window")
    if value in (0, -1) and type(value) is int:
        fields.note(f"sliding_window is {value}, which would hide every key: read as no window")
        return None
    return None if value is None else size(fields, "sliding_window")


def layer_types(fields: Fields, layers: int, known: Collection[str]) -> list[str] | None:
    """The field of that name, one of the `known` words for each layer; None where it is absent or null."""
    kinds = fields.raw("layer_types")
    if kinds is None:
        return None
    if not isinstance(kinds, list) or len(kinds) != layers:
        count = f"{len(kinds)} entries" if isinstance(kinds, list) else shown(kinds)
        raise fields.fail(f"layer_types has {count}; expected a list of {layers}, one for each of num_hidden_layers")
    if unknown := [kind for kind in kinds if not isinstance(kind, str) or kind not in known]:
        raise fields.fail(f"layer_types holds {shown(unknown[0])}; the types known here are {', '.join(known)}")
    return kinds


def full_attention_only(fields: Fields, layers: int, family: str) -> None:
    """layer_types may be there, if it says what is true anyway."""
    if (kinds := fields.raw("layer_types")) is not None and kinds != ["full_attention"] * layers:
        raise fields.fail(f"layer_types is {shown(kinds)}; in a {family} model every layer is 'full_attention'")


def activation(fields: Fields, name: str, absent: str) -> str:
    """The name in model.mlp of the activation that a field names."""
    value = fields.raw(name)
    if value is None:
        fields.default(name, absent, "what this model_type defaults to")
        value = absent
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise fields.fail(f"{name} is {shown(value)}; the activations known here are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]
