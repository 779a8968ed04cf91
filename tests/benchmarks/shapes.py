"""Checkpoints of published shapes, written here, so that nothing has to be downloaded to measure how large ones are opened.

The 8B folder is whole: 16.06 GB of random bf16, in four shards as Meta's is. The 70B folder is sparse: its files have their full
length, and the disk holds only the parts that were written (one block and what lies outside the blocks' matrices).
"""

import json
import os
from pathlib import Path

import numpy as np

WIDTH = {"vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
ROPE = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
CONFIGS = {
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "70b": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
}
SHARDS = {"8b": 4, "70b": 30}


def config(size: str) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16",
        "num_key_value_heads": 8, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1,
        "rope_scaling": {"rope_type": "llama3", **ROPE}, **WIDTH, **CONFIGS[size],
    }  # fmt: skip


def tensors(size: str) -> dict[str, list[int]]:
    """File name of every tensor -> shape, in the order of the shards."""
    c = config(size)
    d, m, layers = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
    block = {
        "self_attn.q_proj": [d, d], "self_attn.k_proj": [kv, d], "self_attn.v_proj": [kv, d], "self_attn.o_proj": [d, d],
        "mlp.gate_proj": [m, d], "mlp.up_proj": [m, d], "mlp.down_proj": [d, m],
        "input_layernorm": [d], "post_attention_layernorm": [d],
    }  # fmt: skip
    found = {"model.embed_tokens.weight": [c["vocab_size"], d]}
    found |= {f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in block.items()}
    return found | {"model.norm.weight": [d], "lm_head.weight": [c["vocab_size"], d]}


def nbytes(shape: list[int]) -> int:
    return 2 * int(np.prod(shape, dtype=np.int64))


def write(size: str, folder: Path, filled=lambda name: True) -> Path:
    """The folder, unless it is there already. Tensors that are not `filled` are holes: zeros that take no room."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "config.json").exists():
        return folder
    every, share = tensors(size), sum(map(nbytes, tensors(size).values())) / SHARDS[size]
    shards, begun = [{}], 0
    for name, shape in every.items():
        if begun >= share * len(shards):
            shards.append({})
        shards[-1][name] = shape
        begun += nbytes(shape)
    placed, rng = {}, np.random.default_rng(0)
    noise = (rng.standard_normal(1 << 23, np.float32) * 0.02).view(np.uint32) >> 16  # the upper half of an fp32 is its bf16
    noise = noise.astype("<u2")
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        placed |= dict.fromkeys(shard, file)
        _write_shard(folder / file, shard, noise, filled)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": begun}, "weight_map": placed}))
    (folder / "config.json").write_text(json.dumps(config(size), indent=1))
    return folder


def _write_shard(path: Path, shard: dict[str, list[int]], noise: np.ndarray, filled) -> None:
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shard.items():
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + nbytes(shape)]}
        at += nbytes(shape)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        start = file.tell()
        os.truncate(path, start + at)
        for name, shape in shard.items():
            if not filled(name):
                continue
            file.seek(start + entries[name]["data_offsets"][0])
            if len(shape) == 1:  # gains
                np.full(shape, 0x3F80, "<u2").tofile(file)
                continue
            left = nbytes(shape) // 2
            while left:
                piece = noise[: min(left, len(noise))]
                piece.tofile(file)
                left -= len(piece)
