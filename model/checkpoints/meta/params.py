"""params.json in the words of a config.json, and the names that Meta's files give to the tensors.

https://github.com/meta-llama/llama-models: models/llama3/args.py, reference_impl/model.py
"""

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints.families.common import Family, size
from model.checkpoints.families.llama import llama, mistral
from model.checkpoints.fields import Fields
from model.checkpoints.recipes import table
from model.lm import Decoder

PLAIN = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "hidden_dim": "intermediate_size",  # Mistral's
    "norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
    "sliding_window": "sliding_window",
    "max_seq_len": "max_position_embeddings",
}
NO_EFFECT = {"max_batch_size", "use_biases", "causal", "model_type"}
SCALED = {"use_scaled_rope", "rope_scaling_factor", "rope_high_freq_factor"}
WIDTH = {"multiple_of", "ffn_dim_multiplier"}
# (width, layers) of Llama 3.2 1B and 3B: Meta's code says 8 for all, their published configs 32 for these two
LLAMA32 = {(2048, 16), (3072, 28)}


def values_of(params: Fields, rows: int, width: int) -> tuple[dict[str, object], dict[str, str]]:
    """(config.json's fields, where each came from). `rows`: of the embedding; `width`: of the MLP, both in the files."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}

    def put(name: str, value: object, origin: str) -> None:
        values[name], origins[name] = value, origin

    for key, name in PLAIN.items():
        if (value := params.raw(key)) is not None:
            put(name, value, key)
    put("model_type", "mistral" if "sliding_window" in params.values else "llama", "the names of its tensors")
    _width(params, put, width)
    vocabulary = params.raw("vocab_size")
    put(
        "vocab_size", rows if vocabulary in (None, -1) else vocabulary, "vocab_size" if rows == vocabulary else "tok_embeddings"
    )
    params.asked |= NO_EFFECT
    put("tie_word_embeddings", False, "Meta's files hold both matrices")
    _rope(params, put)
    params.judge_the_rest("Meta's llama")
    return values, origins


def _width(params: Fields, put, found: int) -> None:
    """SwiGLU's width: 2/3 of 4 dim, times the multiplier, rounded up to a multiple; both truncations are Meta's."""
    if params.raw("hidden_dim") is not None:
        return
    if params.raw("multiple_of") is None:
        put("intermediate_size", found, "the rows of feed_forward.w1")
        return
    dim = size(Fields({"hidden_size": params.raw("dim")}, params.where, {"hidden_size": "dim"}), "hidden_size")
    width = int(2 * (4 * dim) / 3)
    if params.raw("ffn_dim_multiplier") is not None:
        width = int(params.number("ffn_dim_multiplier") * width)
    multiple = params.whole("multiple_of", 1 << 20)
    put("intermediate_size", multiple * -(-width // multiple), "dim, multiple_of and ffn_dim_multiplier")


def _rope(params: Fields, put) -> None:
    params.asked |= SCALED
    if not params.flag("use_scaled_rope"):
        return
    shape = (params.raw("dim"), params.raw("n_layers"))
    factor = params.raw("rope_scaling_factor") or (32.0 if shape in LLAMA32 else 8.0)
    put(
        "rope_scaling",
        {
            "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
            "high_freq_factor": params.raw("rope_high_freq_factor") or 4.0, "original_max_position_embeddings": 8192,
        },
        "use_scaled_rope, and the factors of Meta's code",
    )  # fmt: skip
    if params.raw("max_seq_len") is None:
        put("max_position_embeddings", 131_072, "use_scaled_rope: 16 times the original context of 8192")


def adjacent(config: Decoder.Config) -> Decoder.Config:
    """Meta's q and k lie as they are turned, in adjacent pairs; Hugging Face's conversion reorders them, this reader not."""
    attn = {b.attn: replace(b.attn, rope=replace(b.attn.rope, pairing="interleaved")) for b in config.blocks}
    blocks = {b: replace(b, attn=attn[b.attn]) for b in config.blocks}
    return replace(config, blocks=tuple(blocks[b] for b in config.blocks))


NAMES = table(
    {
        "embed.weight": "tok_embeddings.weight",
        "blocks.{i}.ln1.weight": "layers.{i}.attention_norm.weight",
        **{f"blocks.{{i}}.attn.{p}_proj.weight": f"layers.{{i}}.attention.w{p}.weight" for p in "qkvo"},
        "blocks.{i}.ln2.weight": "layers.{i}.ffn_norm.weight",
        "blocks.{i}.mlp.gate_proj.weight": "layers.{i}.feed_forward.w1.weight",
        "blocks.{i}.mlp.down_proj.weight": "layers.{i}.feed_forward.w2.weight",
        "blocks.{i}.mlp.up_proj.weight": "layers.{i}.feed_forward.w3.weight",
        "ln_final.weight": "norm.weight",
    }
)
FAMILIES: Mapping[str, Family] = {
    kind: Family(read, NAMES, {"": ""}, (r"rope\.freqs", r"layers\.\d+\.attention\.inner_attention\.rope\.freqs"), "output")
    for kind, read in (("llama", llama), ("mistral", mistral))
}
