"""Write a model as an ordinary Hugging Face folder, and only if reading it back gives the very same model."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from model.attention import Attention
from model.block import PreNorm
from model.checkpoints.families import FAMILIES, config_of
from model.checkpoints.fields import listed
from model.checkpoints.huggingface import CONFIG
from model.checkpoints.names import expected, recipe_of
from model.checkpoints.shards import WEIGHTS
from model.checkpoints.sources import DTYPES
from model.checkpoints.vocabulary import TOKENIZER
from model.errors import BlockscopeError
from model.lm import Decoder
from model.masks import Sliding
from model.mlp import SwiGLU
from model.norms import NormConfig
from model.positions import Dynamic, Linear, Llama3, Rope, Yarn

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "mistral": "MistralForCausalLM",
}


def save_folder(
    path: str | Path,
    config: Decoder.Config,
    state: Mapping[str, Tensor],
    tokenizer_json: str | None = None,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Write config.json, model.safetensors and (if given) tokenizer.json into `path`.

    `state`: every parameter by our names, in the dtype in which it is to be stored. `extra`: further fields for
    config.json. Raises BlockscopeError for a config that no Hugging Face model_type expresses, and for a state that
    does not fit it. Files appear under their names only when they are whole.
    """
    path = Path(path)
    values = config_values(config)
    weights = _by_file_name(config, state, values["model_type"])
    if clash := sorted(set(extra or {}) & set(values)):
        raise BlockscopeError(f"extra fields {listed(clash)} are part of the model; change its config instead")
    values |= {"dtype": str(next(iter(weights.values())).dtype).removeprefix("torch."), **(extra or {})}
    config_of(values)  # the extra fields must not keep the folder from being opened
    path.mkdir(parents=True, exist_ok=True)
    _replace(path / WEIGHTS, lambda part: save_file(weights, part, metadata={"format": "pt"}))
    if tokenizer_json is not None:
        _replace(path / TOKENIZER, lambda part: part.write_text(tokenizer_json, encoding="utf-8"))
    text = json.dumps(values, indent=2, allow_nan=False) + "\n"
    _replace(path / CONFIG, lambda part: part.write_text(text, encoding="utf-8"))


def config_values(config: Decoder.Config) -> dict:
    """The config.json of the first model_type that reads back as exactly this config."""
    for kind, architecture in ARCHITECTURES.items() if all(map(_speakable, config.blocks)) else ():
        values = {"architectures": [architecture], "model_type": kind, **_fields(config, kind)}
        with contextlib.suppress(BlockscopeError):  # this type has no words for it; the next may
            if config_of(values)[0] == config:
                return values
    raise BlockscopeError(
        f"no Hugging Face model_type of {', '.join(ARCHITECTURES)} describes this model; look at its norms, QK-norm "
        "(per head only), pairing (half only), scale, biases and windows"
    )


def _speakable(block: object) -> bool:
    """Whether the block has the parts that these four families name, before any of their fields is read."""
    return (
        isinstance(block, PreNorm.Config)
        and isinstance(block.ln1, NormConfig)
        and isinstance(block.attn, Attention.Config)
        and isinstance(block.attn.rope, Rope.Config)
        and isinstance(block.mlp, SwiGLU.Config)
    )


def _fields(config: Decoder.Config, kind: str) -> dict:
    """What block 0 says, in config.json's words; whether the other blocks agree is settled by reading it back."""
    block = config.blocks[0]
    attn: Attention.Config = block.attn
    values = {
        "vocab_size": config.d_vocab,
        "hidden_size": config.d_model,
        "intermediate_size": block.mlp.d_mlp,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": attn.n_heads,
        "num_key_value_heads": attn.n_kv_heads,
        "head_dim": attn.d_head,
        "hidden_act": "silu",
        "max_position_embeddings": config.context,
        "rms_norm_eps": block.ln1.eps,
        "tie_word_embeddings": config.tied,
        "rope_theta": attn.rope.base,
        "rope_scaling": _scaling(attn.rope),
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if kind in ("llama", "qwen3"):
        values["attention_bias"] = attn.qkv_bias
    if kind == "llama":
        values["mlp_bias"] = block.mlp.bias
    windows = [b.attn.mask.window if isinstance(b.attn.mask, Sliding) else None for b in config.blocks]
    window = next((w for w in windows if w), None)
    if kind == "mistral":
        values["sliding_window"] = window
    if kind in ("qwen2", "qwen3"):
        kinds = ["sliding_attention" if w else "full_attention" for w in windows]
        values |= {"use_sliding_window": bool(window), "sliding_window": window, "layer_types": kinds}
    return values


def _scaling(rope: Rope.Config) -> dict | None:
    match rope.scaling:
        case Linear(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case Dynamic(factor=factor):
            return {"rope_type": "dynamic", "factor": factor}
        case Llama3(factor=factor, low=low, high=high, original=original):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }
        case Yarn() as yarn:
            names = ("factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")
            given = {name: getattr(yarn, name) for name in names if getattr(yarn, name) is not None}
            return {"rope_type": "yarn", "original_max_position_embeddings": yarn.original, **given}
    return None


def _by_file_name(config: Decoder.Config, state: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """The state under the names of the files; a tied unembedding is not written twice."""
    shapes = expected(config)
    if config.tied:
        if "unembed.weight" in state and not torch.equal(state["unembed.weight"], state["embed.weight"]):
            raise BlockscopeError("unembed.weight differs from embed.weight, to which the config ties it; untie it")
        shapes.pop("unembed.weight")
        state = {name: tensor for name, tensor in state.items() if name != "unembed.weight"}
    if missing := sorted(set(shapes) - set(state)):
        raise BlockscopeError(f"the state lacks {len(missing)} parameters: {listed(missing)}")
    if surplus := sorted(set(state) - set(shapes)):
        raise BlockscopeError(f"the state has {len(surplus)} parameters that the model has not: {listed(surplus)}")
    for name, shape in shapes.items():
        if tuple(state[name].shape) != shape:
            raise BlockscopeError(f"{name} has shape {list(state[name].shape)}, but the config asks for {list(shape)}")
        if state[name].dtype not in DTYPES.values():
            raise BlockscopeError(f"{name} is {state[name].dtype}; expected a floating-point type")
    names = {name: recipe_of(name, FAMILIES[kind], "model.").of for name in shapes}  # these families store each as it is
    return {names[name]: state[name].detach().cpu().contiguous().clone() for name in shapes}


def _replace(target: Path, write) -> None:
    """Written beside the target, then renamed over it: an open, mapped file keeps its old content."""
    part = target.with_name(f".{target.name}.part")
    part.touch()
    mode = part.stat().st_mode  # safetensors would leave a file that only its owner can read
    write(part)
    part.chmod(mode)
    os.replace(part, target)
