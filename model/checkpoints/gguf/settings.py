"""The settings of a GGUF file in the words of a config.json, so that one reader understands both.

Each architecture of llama.cpp becomes the model_type whose block it is. What a file has no field for, because llama.cpp
knows it from the architecture, is stated with where it comes from.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from model.checkpoints.fields import listed, shown
from model.checkpoints.gguf import names
from model.checkpoints.gguf.header import Entry
from model.checkpoints.gguf.rope import scaling
from model.errors import BlockscopeError

SIZES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
WINDOW = {"attention.sliding_window": "sliding_window"}
CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
CHOICE = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
D_EXPERT = {"expert_feed_forward_length": "moe_intermediate_size"}
NO_EFFECT = {  # read elsewhere, or about llama.cpp's own memory layout
    "attention.value_length", "attention.causal", "pooling_type", "rope.dimension_count", "rope.dimension_count_swa",
    "rope.scaling.finetuned", "tensor_data_layout", "vocab_size", "attention.key_length_swa",
    "attention.value_length_swa", "expert_shared_feed_forward_length", "rope.scaling.yarn_ext_factor",
}  # fmt: skip
OTHER_TOWERS = ("vision.", "mm.", "mm_", "audio.")  # Ollama keeps them in the language model's file
UNDEFINED = 4294967295  # what a converter writes for "none"


class Words:
    """config.json's fields, filled one by one from a file; `origins` remembers from which key."""

    def __init__(self, settings: Mapping[str, object], tensors: Mapping[str, Entry], arch: str, where: str):
        self.settings, self.tensors, self.arch, self.where = settings, tensors, arch, where
        self.values: dict[str, object] = {}
        self.origins: dict[str, str] = {}
        self.taken: set[str] = set()

    def fail(self, sentence: str) -> BlockscopeError:
        return BlockscopeError(f"{self.where}: {sentence}")

    def get(self, key: str) -> object:
        """A setting of the architecture; None where the file does not have it. Equal values per layer are one value."""
        full = f"{self.arch}.{key}"
        self.taken.add(full)
        value = self.settings.get(full)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            return value[0]
        return value

    def whole(self, key: str, default: int) -> int:
        value = self.get(key)
        if value is None:
            return default
        if type(value) is not int or not 0 <= value < 1 << 32:
            raise self.fail(f"{self.arch}.{key} is {shown(value)}; expected a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float | None:
        value = self.get(key)
        if value is None:
            return default
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.fail(f"{self.arch}.{key} is {shown(value)}; expected a number")
        return float(value)

    def put(self, name: str, value: object, origin: str) -> None:
        """Field `name` of config.json is `value`, because of `origin`."""
        self.values[name], self.origins[name] = value, origin

    def take(self, keys: Mapping[str, str]) -> None:
        for key, name in keys.items():
            if (value := self.get(key)) is not None:
                self.put(name, value, f"{self.arch}.{key}")


@dataclass(frozen=True)
class Architecture:
    """`keys` are taken over beside SIZES; `more` adds what no key says; `names` is the table of its tensors."""

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[Words], None] = lambda words: None
    names: Callable = names.plain


def _llama(words: Words) -> None:
    """Llama, Mistral and, where there are experts, Mixtral: one architecture."""
    if words.whole("expert_count", 0):
        words.put("model_type", "mixtral", "llama.expert_count")
        words.take(CHOICE)
    else:
        words.taken |= {"llama.expert_count", "llama.expert_used_count"}
        for name, tensor in (("attention_bias", "attn_q"), ("mlp_bias", "ffn_gate")):
            there = f"blk.0.{tensor}.bias" in words.tensors
            words.put(name, there, f"blk.0.{tensor}.bias is {'there' if there else 'not there'}")


def _qwen3moe(words: Words) -> None:
    words.put("norm_topk_prob", True, "llama.cpp always makes the weights of the chosen experts sum to 1")
    words.take({"expert_weights_norm": "norm_topk_prob"})


def _gemma(words: Words) -> None:
    words.put("hidden_activation", "gelu_pytorch_tanh", "the architecture")


def _gemma2(words: Words) -> None:
    """The divisor of the logits has no key: the 27B model divides by the root of width / heads, the others of head_dim."""
    _gemma(words)
    if (scale := words.number("attention.scale")) is not None and scale > 0:
        words.put("query_pre_attn_scalar", scale**-2, f"{words.arch}.attention.scale")
        return
    layers, width, heads = (words.get(key) for key in ("block_count", "embedding_length", "attention.head_count"))
    whole = all(type(n) is int and n > 0 for n in (width, heads))
    if whole and layers == {"gemma2": 46, "gemma3": 62}.get(words.arch):
        words.put("query_pre_attn_scalar", width / heads, "the 27B model of this architecture, known by its layers")
    else:
        words.put("query_pre_attn_scalar", words.get("attention.key_length") or 256, "head_dim, as in all but the 27B model")
    if words.arch == "gemma2" and words.get("attn_logit_softcapping") is None:
        words.put("attn_logit_softcapping", 50.0, "the architecture")
    if words.arch == "gemma2" and words.get("final_logit_softcapping") is None:
        words.put("final_logit_softcapping", 30.0, "the architecture")


def _gemma3(words: Words) -> None:
    """Five local layers to one global one; the local ones turn by their own base."""
    _gemma2(words)
    local = {"rope.freq_base_swa": "rope_local_base_freq", "rope.local.freq_base": "rope_local_base_freq"}  # the latter: Ollama
    words.take({"rope.global.freq_base": "rope_theta", **local, "final_logit_softcapping": "final_logit_softcapping"})
    pattern = words.get("attention.sliding_window_pattern")
    layers = words.get("block_count")
    if isinstance(pattern, list) and len(pattern) == layers:  # true for a local layer
        kinds = ["sliding_attention" if local else "full_attention" for local in pattern]
        words.put("layer_types", kinds, "gemma3.attention.sliding_window_pattern")
    elif type(pattern) is int and pattern:
        words.put("sliding_window_pattern", pattern, "gemma3.attention.sliding_window_pattern")


def _gpt2(words: Words) -> None:
    words.values.pop("intermediate_size", None)
    words.values.pop("num_key_value_heads", None)
    words.take({"feed_forward_length": "n_inner", "attention.layer_norm_epsilon": "layer_norm_epsilon"})


def _gpt_oss(words: Words) -> None:
    words.take({**CHOICE, "expert_feed_forward_length": "intermediate_size"})


def _deepseek2(words: Words) -> None:
    """DeepSeek-V2 scores experts with a softmax, V3 with a sigmoid."""
    sigmoid = words.whole("expert_gating_func", 1) == 2
    words.put("model_type", "deepseek_v3" if sigmoid else "deepseek_v2", "deepseek2.expert_gating_func")
    rotary = words.whole("rope.dimension_count", 64)
    for ours, new, old in (("key", "key_length_mla", "key_length"), ("value", "value_length_mla", "value_length")):
        width = words.whole(f"attention.{new}", 0) or words.whole(f"attention.{old}", 0)
        origin = f"deepseek2.attention.{new} or .{old}"
        if ours == "key":
            words.put("qk_rope_head_dim", rotary, "deepseek2.rope.dimension_count")
            words.put("qk_nope_head_dim", width - rotary, f"{origin}, less the rotary width")
        else:
            words.put("v_head_dim", width, origin)
    words.values.pop("head_dim", None)
    words.values.pop("num_key_value_heads", None)  # 1 in newer files: how llama.cpp keeps its cache
    words.put("q_lora_rank", words.get("attention.q_lora_rank"), "deepseek2.attention.q_lora_rank")
    if words.whole("expert_group_count", 0) > 1 and not sigmoid:
        words.put("topk_method", "group_limited_greedy", "deepseek2.expert_group_count")
    if not sigmoid:
        words.taken.add("deepseek2.expert_weights_norm")
        if words.get("expert_weights_norm"):
            words.put("norm_topk_prob", True, "deepseek2.expert_weights_norm")
    else:
        words.take({"expert_weights_norm": "norm_topk_prob"})


DEEPSEEK = {
    "attention.kv_lora_rank": "kv_lora_rank",
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_count": "n_routed_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_shared_count": "n_shared_experts",
    "expert_weights_scale": "routed_scaling_factor",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "nextn_predict_layers": "num_nextn_predict_layers",
    **D_EXPERT,
}
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": Architecture("llama", {}, _llama, names.halved),
        "qwen2": Architecture("qwen2"),
        "qwen3": Architecture("qwen3"),
        "qwen3moe": Architecture("qwen3_moe", CHOICE | D_EXPERT, _qwen3moe),
        "gemma": Architecture("gemma", {}, _gemma, names.gemma),
        "gemma2": Architecture("gemma2", CAPS | WINDOW, _gemma2, names.gemma),
        "gemma3": Architecture("gemma3_text", WINDOW, _gemma3, names.gemma),
        "gpt2": Architecture("gpt2", {}, _gpt2, names.gpt2),
        "olmo2": Architecture("olmo2", {}, names=names.olmo2),
        "deepseek2": Architecture("deepseek2", DEEPSEEK, _deepseek2, names.deepseek2),
        "gpt-oss": Architecture("gpt_oss", WINDOW, _gpt_oss, names.gpt_oss),
    }
)


def architecture(settings: Mapping[str, object], where: str) -> str:
    arch = settings.get("general.architecture")
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        said = "is missing" if arch is None else f"is {shown(arch)}"
        raise BlockscopeError(f"{where}: general.architecture {said}; those that can be opened are {listed(ARCHITECTURES, 99)}")
    return arch


def words_of(settings: Mapping[str, object], tensors: Mapping[str, Entry], freqs: np.ndarray | None, where: str) -> Words:
    """The file's settings as config.json's. `freqs`: the table rope_freqs.weight, where the file has one."""
    arch = architecture(settings, where)
    words, kind = Words(settings, tensors, arch, where), ARCHITECTURES[arch]
    words.put("model_type", kind.model_type, "general.architecture")
    words.take(SIZES | kind.keys)
    for name in [name for name, value in words.values.items() if value == UNDEFINED]:
        del words.values[name]
    kind.more(words)
    _vocabulary(words)
    _heads(words)
    scaling(words, freqs)
    for key, value in settings.items():  # what is left is judged like an unknown field of a config.json
        rest = key.removeprefix(f"{arch}.")
        other = key in words.taken or rest in NO_EFFECT or rest.startswith(OTHER_TOWERS)
        if key.startswith(f"{arch}.") and not other:
            words.put(key, value.tolist() if isinstance(value, np.ndarray) else value, key)
    return words


def _vocabulary(words: Words) -> None:
    entry = words.tensors.get("token_embd.weight")
    if entry is None or len(entry.shape) != 2:
        raise words.fail("token_embd.weight is missing or not a matrix; download the file again")
    words.put("vocab_size", entry.shape[0], "the rows of token_embd.weight")
    tied = f"{names.HEAD}.weight" not in words.tensors
    words.put("tie_word_embeddings", tied, f"{names.HEAD}.weight is {'not there' if tied else 'there'}")


def _heads(words: Words) -> None:
    """Keys and values of one width, all of it rotated, as the blocks here have them; attention is causal."""
    if words.get("attention.causal") is False:
        raise words.fail(f"{words.arch}.attention.causal is false; only causal attention is known here")
    if words.arch in ("deepseek2", "gpt2"):
        return
    width = words.values.get("head_dim")
    for key in ("attention.value_length", "rope.dimension_count"):
        other = words.whole(key, 0)
        if width is None and key == "rope.dimension_count":
            d_model, heads = words.get("embedding_length"), words.get("attention.head_count")
            width = d_model // heads if type(d_model) is type(heads) is int and heads > 0 else None
        if other and width and other != width:
            raise words.fail(
                f"{words.arch}.{key} is {other} but a head is {width} wide; blocks of this architecture rotate whole heads, "
                "and their keys and values are equally wide"
            )
