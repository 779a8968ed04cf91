"""Tiny models of transformers, the independent witness: built, filled with distinct random values, saved; and differences.

A fresh model hides faults: its norm weights are all 1 and its biases all 0. So every parameter gets values of its own.
Sizes are odd, unequal and no multiples of one another, so that no two axes can be swapped unseen; the prompt is longer
than the window, and longer than what dynamic scaling starts at.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

HEADS, KV_HEADS, D_HEAD, D_MODEL, D_MLP, VOCAB, LAYERS, LENGTH, WINDOW = 6, 3, 10, 42, 66, 131, 3, 23, 5

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": D_MODEL,
    "intermediate_size": D_MLP,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": D_HEAD,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # so that five pairs fall into all three zones
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]

# name -> (model_type, what differs from SIZES); rope settings in the old spelling, which every reader must know
CASES = {
    "llama": ("llama", {"rope_theta": 500_000.0}),
    "llama-tied": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 2}),
    "llama-one-kv-head": ("llama", {"num_key_value_heads": 1}),
    "llama-heads-by-quotient": ("llama", {"head_dim": None, "hidden_size": 48}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-6}),
    "llama-linear": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    "llama-dynamic": ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.5}, "max_position_embeddings": 13}),
    "llama-llama3": ("llama", {"rope_scaling": LLAMA3, "rope_theta": 10_000.0}),
    "llama-yarn": ("llama", {"rope_scaling": YARN, "rope_theta": 10_000.0, "max_position_embeddings": 16_384}),
    "llama-yarn-options": (
        "llama",
        {
            "rope_scaling": YARN
            | {"beta_fast": 20.0, "beta_slow": 2.0, "mscale": 0.707, "mscale_all_dim": 1.2, "truncate": False},
            "max_position_embeddings": 16_384,
        },
    ),
    "llama-yarn-factor": ("llama", {"rope_scaling": YARN | {"attention_factor": 0.8}, "max_position_embeddings": 16_384}),
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "mistral-full": ("mistral", {"sliding_window": None, "tie_word_embeddings": True, "num_key_value_heads": 2}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen2-tied": ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 2, "rope_theta": 1_000_000.0}),
    "qwen3": ("qwen3", {"rope_theta": 1_000_000.0, "rms_norm_eps": 1e-6}),
    "qwen3-mixed": (
        "qwen3",
        {
            "tie_word_embeddings": True,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": MIXED,
        },
    ),
}


def made_once(tmp_path_factory, make):
    """case -> (a folder, what `make(case, folder)` gave there), each made when first asked for."""
    made = {}

    def get(case: str):
        if case not in made:
            folder = tmp_path_factory.mktemp(case)
            made[case] = folder, make(case, folder)
        return made[case]

    return get


def config_json(case: str) -> dict:
    """The config.json of a case, as a file of that family would spell it."""
    model_type, changes = CASES[case]
    values = {"model_type": model_type, **SIZES, **changes}
    return {key: value for key, value in values.items() if not (key == "head_dim" and value is None)}


def prompt(length: int = LENGTH, seed: int = 0) -> list[int]:
    """Token numbers, all different, so that no position can stand for another."""
    return torch.randperm(VOCAB, generator=torch.Generator().manual_seed(seed))[:length].tolist()


def build(values: dict, seed: int = 0):
    """transformers' model of a config, eager attention, fp32, every parameter and saved buffer a random value of its own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    values = json.loads(json.dumps(values))  # transformers rewrites the dicts that it is given
    model_type = values.pop("model_type")
    config = AutoConfig.for_model(model_type, **values)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():  # in a fixed order
            noise = torch.randn(tensor.shape, generator=generator)
            if name == "lm_head.weight" and model.config.tie_word_embeddings:
                continue  # the embedding itself
            if name.endswith(("embed_tokens.weight", "wte.weight")):
                scaled = tensor.shape[1] ** 0.5 if model_type.startswith("gemma") else 1
                tensor.copy_(0.05 * noise / scaled)  # small, so that the eps of the first norm can be told from another
            elif tensor.ndim == 1:
                around_zero = name.endswith("bias") or model_type.startswith("gemma")  # whose gain is 1 + weight
                tensor.copy_(0.4 * noise if around_zero else 1 + 0.4 * noise)
            else:
                tensor.copy_(1.5 * noise / tensor.shape[1] ** 0.5)
    return model


def write(case: str, folder: Path, seed: int = 0):
    """Save a case as transformers does (its own spelling of the config) and return transformers' model."""
    model = build(config_json(case), seed)
    model.save_pretrained(folder)
    return model


@dataclass(frozen=True)
class Difference:
    """How far two tensors are apart: `worst` is the largest |a - b| as a share of the largest |b|."""

    tap: str
    worst: float
    largest: float
    relative_norm: float
    cosine: float

    def __str__(self) -> str:
        return (
            f"{self.tap}: max abs {self.largest:.3g} ({self.worst:.3g} of the largest value), "
            f"relative norm {self.relative_norm:.3g}, cosine {self.cosine:.9f}"
        )


def difference(tap: str, ours: Tensor, theirs: Tensor) -> Difference:
    assert ours.shape == theirs.shape, f"{tap}: shape {list(ours.shape)}, expected {list(theirs.shape)}"
    a, b = ours.double().flatten(), theirs.double().flatten()
    masked = (a == b) & b.isinf()  # hidden from both; hidden from one of them alone stays infinite, and differs
    a, b = a[~masked], b[~masked]
    gap = (a - b).abs().max().item()
    cosine = torch.dot(a, b) / (a.norm() * b.norm())
    return Difference(tap, gap / b.abs().max().item(), gap, ((a - b).norm() / b.norm()).item(), cosine.item())


def faults(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> list[Difference]:
    """The taps that differ by more than `tolerance` of their largest value (NaN differs), in the order of the model."""
    found = [difference(tap, ours[tap], theirs[tap]) for tap in theirs]
    return [d for d in found if not d.worst <= tolerance]
