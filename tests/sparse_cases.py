"""Tiny transformers models with experts, latent attention, sinks and chunks, one for each way in which configs differ.

As in reference.py every parameter and saved buffer has random values of its own, sizes are odd and unequal, and the prompt
is longer than every window and chunk. Each model has layers of more than one kind.
"""

import json
from pathlib import Path

import torch
from reference import D_MLP, D_MODEL, HEADS, SIZES, WINDOW

EXPERTS, TOPK, D_EXPERT, CHUNK = 7, 3, 22, 5
Q_LATENT, KV_LATENT, NOPE, ROTARY, VALUE = 26, 18, 14, 6, 11  # of latent attention; 14 + 6 and 11 differ from every other width

FEW = {"num_local_experts": EXPERTS, "num_experts_per_tok": TOPK}
LATENT = {
    "num_key_value_heads": HEADS, "kv_lora_rank": KV_LATENT, "q_lora_rank": Q_LATENT, "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROTARY, "v_head_dim": VALUE, "first_k_dense_replace": 1, "moe_intermediate_size": D_EXPERT,
    "n_routed_experts": 12, "num_experts_per_tok": TOPK, "routed_scaling_factor": 2.3, "n_group": 4, "topk_group": 2,
}  # fmt: skip
YARN = {"rope_type": "yarn", "original_max_position_embeddings": 512, "beta_fast": 32.0, "beta_slow": 1.0}
YARN40, YARN32 = YARN | {"factor": 40.0}, YARN | {"factor": 32.0, "truncate": False}
LONG40, LONG32 = {"max_position_embeddings": 512 * 40}, {"max_position_embeddings": 512 * 32}

SPARSE: dict[str, tuple[str, dict]] = {  # name -> (model_type, what differs from SIZES)
    "mixtral": ("mixtral", FEW | {"rope_theta": 1e6}),
    "mixtral-window": ("mixtral", FEW | {"sliding_window": WINDOW, "tie_word_embeddings": True}),
    "qwen3_moe": (
        "qwen3_moe",
        {"num_experts": EXPERTS, "num_experts_per_tok": TOPK, "moe_intermediate_size": D_EXPERT, "norm_topk_prob": False}
        | {"mlp_only_layers": [1], "rope_theta": 1e6, "rms_norm_eps": 1e-6},
    ),
    "qwen3_moe-normed": (
        "qwen3_moe",
        {"num_experts": EXPERTS, "num_experts_per_tok": TOPK, "moe_intermediate_size": D_EXPERT, "norm_topk_prob": True}
        | {"decoder_sparse_step": 2, "attention_bias": True, "use_sliding_window": True, "sliding_window": WINDOW},
    ),
    "deepseek_v2": (
        "deepseek_v2",
        LATENT
        | {"topk_method": "group_limited_greedy", "n_shared_experts": 2, "attention_bias": True, "mlp_bias": True}
        | {"rope_scaling": YARN40 | {"mscale": 0.707, "mscale_all_dim": 0.707}} | LONG40,
    ),
    "deepseek_v2-greedy": (
        "deepseek_v2",
        LATENT | {"q_lora_rank": None, "topk_method": "greedy", "n_shared_experts": 1, "rms_norm_eps": 1e-4}
    ),
    "deepseek_v3": (
        "deepseek_v3",
        LATENT | {"rope_scaling": YARN40 | {"mscale": 1.0, "mscale_all_dim": 1.0}, "rms_norm_eps": 1e-4} | LONG40
    ),
    "deepseek_v3-half": (
        "deepseek_v3",
        LATENT
        | {"q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False, "attention_bias": True, "n_shared_experts": 2}
        | {"rope_scaling": YARN40 | {"mscale": 1.3, "mscale_all_dim": 0.8}} | LONG40,
    ),
    "llama4_text": (
        "llama4_text",
        {"num_hidden_layers": 4, "num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": D_EXPERT}
        | {"intermediate_size_mlp": D_MLP, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 3}
        | {"attention_chunk_size": CHUNK, "floor_scale": 4, "attn_scale": 0.3, "rope_theta": 500_000.0},
    ),
    "llama4_text-128": (  # as in the model with 128 experts: no QK-norm; and no chunks, temperature off
        "llama4_text",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 1, "intermediate_size": D_EXPERT, "intermediate_size_mlp": D_MLP}
        | {"moe_layers": [0, 2], "no_rope_layers": [1, 0, 1], "use_qk_norm": False, "attention_chunk_size": None}
        | {"attn_temperature_tuning": False, "attention_bias": True},
    ),
    "gpt_oss": (
        "gpt_oss",
        FEW | {"sliding_window": WINDOW, "rope_theta": 150_000.0, "rope_scaling": YARN32, "intermediate_size": D_EXPERT} | LONG32,
    ),
    "gpt_oss-plain": (
        "gpt_oss",
        FEW
        | {"sliding_window": WINDOW, "attention_bias": False, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "intermediate_size": D_EXPERT},
    ),
}  # fmt: skip


def sparse_json(case: str) -> dict:
    """The config.json of a case."""
    model_type, changes = SPARSE[case]
    values = {"model_type": model_type, **SIZES, **changes}
    if model_type.startswith("deepseek"):
        values.pop("head_dim")
    return values


def build_sparse(values: dict, seed: int = 0):
    """transformers' model, plain loops over the experts, fp32; every parameter and saved buffer a random value of its own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    values = json.loads(json.dumps(values))
    model_type = values.pop("model_type")
    config = AutoConfig.for_model(model_type, **values)
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = AutoModelForCausalLM.from_config(config, **eager, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():  # in a fixed order
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("embed_tokens.weight"):
                tensor.copy_(0.05 * noise)
            elif name.endswith(("bias", "sinks")):
                tensor.copy_(0.4 * noise)
            elif tensor.ndim == 1:
                tensor.copy_(1 + 0.4 * noise)
            else:
                fan_in = D_MODEL if name.endswith("gate_up_proj") else tensor.shape[1]
                gain = (
                    1.0 if "_a_proj" in name or "_b_proj" in name else 1.5
                )  # two in a row: else logits are so large that fp32 is lost
                tensor.copy_(gain * noise / fan_in**0.5)
            if model_type == "gpt_oss" and ".experts." in name:
                spread_gates(name.rpartition(".")[2], tensor)
    return model


def spread_gates(leaf: str, tensor: torch.Tensor) -> None:
    """Gates that pass the limit of 7 on both sides. Expert 0's lie about -9, where a clamp from below changes them most, and
    its last matrix is large, so that it can be seen."""
    if leaf == "gate_up_proj":
        tensor.mul_(3)
        tensor[0].mul_(0.1)
    elif leaf == "gate_up_proj_bias":
        tensor[0, ::2] -= 9
    elif leaf == "down_proj":
        tensor.mul_(0.1)
        tensor[0].mul_(1e5)


def write_sparse(case: str, folder: Path, seed: int = 0):
    model = build_sparse(sparse_json(case), seed)
    model.save_pretrained(folder)
    return model
