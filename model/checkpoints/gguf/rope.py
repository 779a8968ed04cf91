"""The rotary settings of a GGUF file as config.json's rope_scaling.

Llama 3's scaling is not stored by its parameters but by its result, a divisor for each pair (rope_freqs.weight).
"""

import numpy as np

from model.checkpoints.gguf.words import INSTEAD, Words
from model.positions import Llama3, Rope

LOG_PER_MSCALE = 0.1  # yarn_log_multiplier is 0.1 * mscale_all_dim
LLAMA3_CONTEXT, LOW, HIGH = 8192, 1.0, 4.0  # of every published Llama 3; only the factor differs


def scaling(words: Words, freqs: np.ndarray | None) -> None:
    """Fill rope_scaling of `words` from rope.scaling.* and rope_freqs.weight."""
    kind = words.get("rope.scaling.type")
    factor = words.number("rope.scaling.factor")
    if (old := words.number("rope.scale_linear")) is not None and old != 1:
        kind, factor = "linear", old
    original = words.get("rope.scaling.original_context_length")
    yarn = {
        name: value
        for name, key in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow"))
        if (value := words.number(f"rope.scaling.{key}"))
    }
    extra = words.number("rope.scaling.yarn_attn_factor") or words.number("rope.scaling.attn_factor")
    mscale = words.number("rope.scaling.yarn_log_multiplier")
    if freqs is not None:
        words.put("rope_scaling", _llama3(words, freqs), "rope_freqs.weight")
    elif kind in (None, "none"):
        return
    elif kind == "yarn":
        block = {"rope_type": "yarn", "factor": factor, **yarn}
        block |= {} if original is None else {"original_max_position_embeddings": original}
        block |= {} if not mscale else dict.fromkeys(("mscale", "mscale_all_dim"), mscale / LOG_PER_MSCALE)
        if extra not in (None, 1.0) and factor and factor > 0:
            block["attention_factor"] = extra * (1 + 0.1 * float(np.log(factor)))
        block |= {"truncate": False} if words.arch == "gpt-oss" else {}
        words.put("rope_scaling", block, f"{words.arch}.rope.scaling.*")
    else:
        words.put("rope_scaling", {"rope_type": kind, "factor": factor}, f"{words.arch}.rope.scaling.*")


def _llama3(words: Words, freqs: np.ndarray) -> dict:
    """The parameters that give this table; another table than Llama 3's is refused."""
    values = words.values
    width = values.get("head_dim") or _quotient(values.get("hidden_size"), values.get("num_attention_heads"))
    base, factor = values.get("rope_theta", 1e4), float(freqs.max())
    if width == 2 * len(freqs) and 1 <= factor < 1e6 and isinstance(base, int | float) and base > 1:
        rope = Rope.Config(d=width, base=base, pairing="half")
        made = Llama3(factor=factor, low=LOW, high=HIGH, original=LLAMA3_CONTEXT)(rope, 1)[0]
        if np.allclose((rope.unscaled() / made).numpy(), freqs, rtol=1e-4):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": LOW,
                "high_freq_factor": HIGH,
                "original_max_position_embeddings": LLAMA3_CONTEXT,
            }
    raise words.fail(
        "rope_freqs.weight is not the table of Llama 3's scaling (low 1, high 4, original context 8192), which is the only "
        f"one known here: {INSTEAD}"
    )


def _quotient(width: object, heads: object) -> int:
    return width // heads if type(width) is type(heads) is int and heads > 0 else 0
