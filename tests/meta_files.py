"""Meta's own layout of a tiny llama: names, adjacent pairs, ranks, params.json, as the conversion script to Hugging Face has
it, backwards."""

import json
from pathlib import Path

import torch
from gguf_files import permuted
from reference import build, config_json
from safetensors.torch import save_file
from torch import Tensor

DIM, HEADS, KV, LAYERS, ROWS = 48, 6, 2, 3, 132
PARAMS = {"dim": DIM, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": KV, "vocab_size": ROWS, "multiple_of": 8}
PARAMS |= {"norm_eps": 1e-5, "rope_theta": 500_000.0}
CUT = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1}
NAMES = {
    "embed_tokens": "tok_embeddings", "norm": "norm", "lm_head": "output", "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def llama(**changes):
    """transformers' model of these sizes; the MLP is 2/3 of 4 dim, rounded up to 8."""
    sizes = {"hidden_size": DIM, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": DIM // HEADS}
    return build(config_json("llama") | sizes | {"vocab_size": ROWS, "intermediate_size": 128} | changes)


def meta_state(model) -> dict[str, Tensor]:
    out = {}
    for name, tensor in model.state_dict().items():
        path = name.removeprefix("model.").removesuffix(".weight")
        layer, _, part = path.removeprefix("layers.").partition(".") if path.startswith("layers.") else ("", "", path)
        if part in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = HEADS if "q_proj" in part else model.config.num_key_value_heads
            tensor = torch.from_numpy(permuted(tensor.numpy(), heads))
        out[f"layers.{layer}.{NAMES[part]}.weight" if layer else f"{NAMES[part]}.weight"] = tensor.clone().contiguous()
    return out | {"rope.freqs": torch.ones(4)}


def cut(state: dict[str, Tensor], ranks: int, embedding_axis: int) -> list[dict[str, Tensor]]:
    axes = {name: CUT.get(name.split(".")[-2]) for name in state} | {"tok_embeddings.weight": embedding_axis}
    return [
        {n: t if axes[n] is None else t.chunk(ranks, axes[n])[rank].clone() for n, t in state.items()} for rank in range(ranks)
    ]


def write_meta(folder: Path, model, ranks: int = 1, embedding_axis: int = 0, form: str = "pth", **changes) -> Path:
    folder.mkdir(exist_ok=True)
    params = {key: value for key, value in (PARAMS | changes).items() if value is not ...}
    (folder / "params.json").write_text(json.dumps(params))
    for rank, part in enumerate(cut(meta_state(model), ranks, embedding_axis)):
        file = folder / f"consolidated.{rank:02d}.{form}"
        torch.save(part, file) if form == "pth" else save_file(part, file)
    return folder
