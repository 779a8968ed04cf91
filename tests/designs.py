"""Tiny transformers models of the designs beside Llama's, one for each way in which their configs can differ."""

import json
from pathlib import Path

from reference import D_MLP, D_MODEL, HEADS, SIZES, VOCAB, WINDOW, build

OLD = {"vocab_size": VOCAB, "n_embd": D_MODEL, "n_layer": 3, "n_head": HEADS, "n_positions": 64}
OLD |= {"bos_token_id": None, "eos_token_id": None}
TIED = {key: value for key, value in SIZES.items() if key != "tie_word_embeddings"}  # what a Gemma is, unless it says
GEMMA = TIED | {"num_hidden_layers": 4, "sliding_window": WINDOW, "query_pre_attn_scalar": 14}
MIXED = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]

DESIGNS: dict[str, tuple[str, dict]] = {  # name -> (model_type, its config.json)
    "gpt2": ("gpt2", OLD),
    "gpt2-inner": ("gpt2", OLD | {"n_inner": D_MLP, "activation_function": "gelu", "layer_norm_epsilon": 1e-6}),
    "gpt2-untied": ("gpt2", OLD | {"tie_word_embeddings": False, "activation_function": "relu"}),
    "gpt2-flatter": ("gpt2", OLD | {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2-upcast": ("gpt2", OLD | {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
    "gpt2-unscaled": ("gpt2", OLD | {"scale_attn_weights": False}),
    "gptj": ("gptj", OLD | {"n_embd": 60, "rotary_dim": 4, "n_inner": D_MLP}),
    "gptj-tied": ("gptj", OLD | {"n_embd": 60, "rotary_dim": 10, "tie_word_embeddings": True}),
    "olmo2": ("olmo2", SIZES | {"rope_theta": 500_000.0, "rms_norm_eps": 1e-6}),
    "olmo2-biases": ("olmo2", SIZES | {"attention_bias": True, "num_key_value_heads": None, "tie_word_embeddings": True}),
    "gemma": ("gemma", TIED),
    "gemma2": ("gemma2", GEMMA | {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 0.1, "rms_norm_eps": 1e-6}),
    "gemma2-plain": (
        "gemma2",
        GEMMA | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True, "layer_types": MIXED},
    ),
    "gemma3_text": (
        "gemma3_text",
        GEMMA | {"sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rms_norm_eps": 1e-6},
    ),
    "gemma3-mixed": (
        "gemma3_text",
        GEMMA
        | {"layer_types": MIXED, "final_logit_softcapping": 1.5, "attention_bias": True, "tie_word_embeddings": False}
        | {"rope_theta": 200_000.0, "rope_local_base_freq": 3000.0},
    ),
}


def design_json(case: str) -> dict:
    model_type, values = DESIGNS[case]
    return {"model_type": model_type, **values}


def write_design(case: str, folder: Path):
    """Save a case as transformers does and return transformers' model, every parameter a random value of its own."""
    model = build(design_json(case))
    model.save_pretrained(folder)
    return model


def new_spelling(case: str, folder: Path) -> dict:
    """The config.json of a case as transformers 5 writes it."""
    build(design_json(case)).config.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())
