"""GGUF files of tiny models, made as llama.cpp's convert_hf_to_gguf.py makes them, with gguf's own writer and name tables.

An independent road: names come from gguf.get_tensor_name_map, what is done to tensors from the converter, and nothing from
the reader under test.
"""

import re
from pathlib import Path

import gguf
import numpy as np
from torch import Tensor

ARCH = {
    "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma": gguf.MODEL_ARCH.GEMMA, "gemma2": gguf.MODEL_ARCH.GEMMA2, "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "gpt2": gguf.MODEL_ARCH.GPT2, "olmo2": gguf.MODEL_ARCH.OLMO2, "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
    "deepseek_v2": gguf.MODEL_ARCH.DEEPSEEK2, "deepseek_v3": gguf.MODEL_ARCH.DEEPSEEK2,
}  # fmt: skip
LAYER = re.compile(r"model\.layers\.(\d+)\.")


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """LlamaModel.permute of the converter."""
    shape = weight.shape
    return weight.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def converted(config, state: dict[str, Tensor], split_kv_b: bool) -> dict[str, np.ndarray]:
    """transformers' tensors -> GGUF name -> array, outermost axis first."""
    kind, layers = config.model_type, config.num_hidden_layers
    names = gguf.get_tensor_name_map(ARCH[kind], layers)
    out: dict[str, np.ndarray] = {}

    def put(name: str, value: np.ndarray) -> None:
        found = names.get_name(name, (".weight", ".bias"))
        assert found, name
        out[found] = value

    for name, tensor in state.items():
        value = tensor.float().numpy()
        if kind in ("llama", "mistral", "mixtral") and re.search(r"self_attn\.[qk]_proj\.", name):
            value = permuted(value, config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads)
        if kind.startswith("gemma") and name.endswith("norm.weight"):
            value = value + np.float32(1)
        if kind == "gpt2":
            name = name.removeprefix("transformer.")
            if name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
                value = value.T
        if kind in ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3") and ".experts." in name:
            layer = LAYER.match(name).group(1)
            parts = np.split(value, 2, axis=1) if "gate_up" in name else [value]
            for part, which in zip(parts, ("gate", "up") if "gate_up" in name else ("down",), strict=True):
                out[f"blk.{layer}.ffn_{which}_exps.weight"] = part
            continue
        if kind == "gpt_oss" and ".experts." in name:
            layer, leaf = LAYER.match(name).group(1), "bias" if name.endswith("_bias") else "weight"
            if "gate_up" in name:
                turned = value if leaf == "bias" else value.swapaxes(1, 2)
                out[f"blk.{layer}.ffn_gate_exps.{leaf}"] = turned[:, ::2]
                out[f"blk.{layer}.ffn_up_exps.{leaf}"] = turned[:, 1::2]
            else:
                out[f"blk.{layer}.ffn_down_exps.{leaf}"] = value if leaf == "bias" else value.swapaxes(1, 2)
            continue
        if name.endswith(".sinks"):
            name += ".weight"
        if name.endswith("e_score_correction_bias"):
            name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        if split_kv_b and name.endswith("kv_b_proj.weight"):
            heads, nope = config.num_attention_heads, config.qk_nope_head_dim
            both = value.reshape(heads, -1, value.shape[-1])
            put(name.replace("kv_b_proj", "k_b_proj"), both[:, :nope].swapaxes(1, 2))
            put(name.replace("kv_b_proj", "v_b_proj"), both[:, nope:])
            continue
        put(name, value)
    return {name: np.ascontiguousarray(value) for name, value in out.items()}


def settings(writer: gguf.GGUFWriter, config, split_kv_b: bool) -> None:
    """set_gguf_parameters of the converter, as far as these models need it."""
    kind, heads = config.model_type, config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(heads)
    if kind == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    rope = config.rope_parameters
    if kind == "gemma3_text":
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if not kind.startswith("deepseek"):
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(config.head_dim if hasattr(config, "head_dim") else config.hidden_size // heads)
        writer.add_value_length(config.head_dim if hasattr(config, "head_dim") else config.hidden_size // heads)
    if getattr(config, "sliding_window", None) and kind in ("gemma2", "gemma3_text", "gpt_oss"):
        writer.add_sliding_window(config.sliding_window)
    if kind == "gemma3_text":
        writer.add_sliding_window_pattern([k == "sliding_attention" for k in config.layer_types])
    if kind in ("gemma2", "gemma3_text") and config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if kind in ("mixtral", "gpt_oss"):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if kind == "gpt_oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if kind == "qwen3_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if kind.startswith("deepseek"):
        latent(writer, config, split_kv_b)


def latent(writer: gguf.GGUFWriter, config, split_kv_b: bool) -> None:
    nope, rotary, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    writer.add_rope_dimension_count(rotary)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    if split_kv_b:  # as since 2025: the cache holds the latent
        writer.add_head_count_kv(1)
        writer.add_key_length(config.kv_lora_rank + rotary)
        writer.add_value_length(config.kv_lora_rank)
        writer.add_key_length_mla(nope + rotary)
        writer.add_value_length_mla(value)
    else:
        writer.add_head_count_kv(config.num_attention_heads)
        writer.add_key_length(nope + rotary)
        writer.add_value_length(value)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    sigmoid = config.model_type == "deepseek_v3"
    writer.add_expert_weights_norm(config.norm_topk_prob if sigmoid else False)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)
    if mscale := config.rope_parameters.get("mscale_all_dim"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * mscale)


def write_gguf(path: Path, model, split_kv_b: bool = False, quantise=None, more=None, extra=None) -> Path:
    """One file of transformers' `model`. `quantise`: (name, array) -> format or None; `more`: further settings, by a function
    of the writer; `extra`: further tensors."""
    config = model.config
    state = {n: t for n, t in model.state_dict().items() if not (n == "lm_head.weight" and config.tie_word_embeddings)}
    state = {n: t for n, t in state.items() if not n.endswith("masked_bias")}
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[ARCH[config.model_type]])
    settings(writer, config, split_kv_b)
    if more:
        more(writer)
    for name, value in (converted(config, state, split_kv_b) | (extra or {})).items():
        form = quantise(name, value) if quantise else None
        if form is None:
            writer.add_tensor(name, value)
        else:
            packed = gguf.quants.quantize(value, form)
            writer.add_tensor(name, packed, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
