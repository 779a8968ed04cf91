"""Which code made a run: one hash over the sources that decide its numbers."""

import hashlib
from functools import cache
from pathlib import Path

DECIDES = (  # the forward pass, the first values, the training, the measuring
    "attention", "block", "embedding", "lm", "masks", "mla", "mlp", "moe", "norms", "place", "pooling", "positions", "routing",
    "scores", "softmax", "temperature", "weights", "growth/bounds", "growth/corpus", "growth/initial", "growth/measure",
    "growth/probing", "growth/qkclip", "growth/quantities", "growth/recipe", "growth/train",
)  # fmt: skip


@cache
def code_version() -> str:
    """sha256 over the files named in DECIDES, in that order, comments and all."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for name in DECIDES:
        digest.update(f"{name}\0".encode() + (root / f"{name}.py").read_bytes())
    return digest.hexdigest()
