"""Published shapes, one line a model, its source above it; `load(name)` gives them random weights.

A `tiny-` twin has the same parts in other sizes, bytes as tokens, and runs on a CPU in under a second.
"""

import difflib

from model.lm import Decoder
from model.presets.classic import CLASSIC
from model.presets.deepseek import DEEPSEEK
from model.presets.experts import EXPERTS
from model.presets.llama import LLAMA
from model.presets.output_norms import OUTPUT_NORMS

PRESETS: dict[str, Decoder.Config] = {**CLASSIC, **LLAMA, **OUTPUT_NORMS, **EXPERTS, **DEEPSEEK}


def meant(name: str) -> str:
    """How an error about an unknown name ends: the nearest presets, or all of them."""
    near = difflib.get_close_matches(name, PRESETS, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"presets are {', '.join(PRESETS)}"
