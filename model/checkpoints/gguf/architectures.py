"""What each architecture of llama.cpp is among the model types: which keys say what, and what is known without a key."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from model.checkpoints.fields import shown
from model.checkpoints.gguf import names
from model.checkpoints.gguf.words import INSTEAD, Words

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
    _gating(words, 1)
    words.put("norm_topk_prob", True, "llama.cpp always makes the weights of the chosen experts sum to 1")
    words.take({"expert_weights_norm": "norm_topk_prob"})


def _gating(words: Words, *known: int) -> None:
    """How experts are scored (1 softmax, 2 sigmoid, 3 softmax over the chosen), where the file says: as the blocks here do."""
    if (value := words.get("expert_gating_func")) is not None and value not in known:
        raise words.fail(
            f"{words.arch}.expert_gating_func is {shown(value)}; expected {' or '.join(map(str, known))}: {INSTEAD}"
        )


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
    _gating(words, 3)
    words.take({**CHOICE, "expert_feed_forward_length": "intermediate_size"})


def _deepseek2(words: Words) -> None:
    """DeepSeek-V2 scores experts with a softmax, V3 with a sigmoid."""
    _gating(words, 1, 2)
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
