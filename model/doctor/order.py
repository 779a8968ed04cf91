"""Whether the rows of W_q and W_k lie in the order that their rotation expects: a hint, measured on the first layers.

Half-split and interleaved files differ only in the order of rows, and a file read in the wrong one gives plausible numbers. But
its rotation then turns coordinates that do not belong together, and what the trained heads did with distance is lost: no head
reads the token before it any more. So the sharpest previous-token head is measured as the file is read, and in the other order.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from model.doctor.finding import NOTE, WARNING, Finding
from model.errors import BlockscopeError
from model.load import load
from model.run import LM
from model.surgery import read
from model.view import Request

TEXT = """def area(width, height):
    \"\"\"The area of a rectangle, in square units of its sides.\"\"\"
    if width < 0 or height < 0:
        raise ValueError("a side cannot be negative")
    return width * height

The rain fell on the roof all night, and in the morning the river had risen to the bridge. Nobody in the village had seen it so
high before; the old man who kept the mill said that his father had, once, and that the bridge had held.
"""
LAYERS, TOKENS, SKIPPED = 6, 96, 8
CLEAR, RATIO = 0.2, 1.5  # the other order is suspected where its best head reads this share, and so many times as much


def previous_token(lm: LM, tokens: list[int]) -> float:
    """The share that the sharpest head of the first layers puts on the previous token."""
    layers = range(min(LAYERS, lm.config.n_layers))
    views = lm.views(tokens, [Request(f"blocks.{i}.attn.hook_pattern", budget=1 << 30) for i in layers])
    rows = torch.arange(SKIPPED, len(tokens))
    return max(float(torch.from_numpy(view.values)[:, rows, rows - 1].mean(-1).max()) for view in views)


def judge(source: str | Path, report: Callable[[int, int, str], None]) -> list[Finding]:
    report(0, 2, "the order of query and key rows")
    lm = load(source, device="cpu")
    pairing = read(lm.config, "pairing")
    other = {"half": "interleaved", "interleaved": "half"}.get(pairing)
    if other is None:
        return []
    try:
        turned = lm.variant(pairing=other)
    except BlockscopeError:  # no ordinary rotation here
        return []
    tokens = lm.encode(TEXT)[:TOKENS] if lm.tokenizer else torch.arange(1, TOKENS).remainder(lm.config.d_vocab).tolist()
    tokens = [token for token in tokens if token < lm.config.d_vocab]
    if len(tokens) < 4 * SKIPPED:
        return []
    here = previous_token(lm, tokens)
    report(1, 2, "the same in the other order")
    there = previous_token(turned, tokens)
    shares = f"its best head reads {here:.0%} from the previous token, and {there:.0%} if pairs are {_words(other)}"
    if there >= CLEAR and there > RATIO * here:
        return [Finding(
            WARNING, "order",
            f"the rows of W_q and W_k look out of order: read as {_words(pairing)} in the first {LAYERS} layers {shares}; "
            "a hint, not a proof: check how the file was converted",
        )]  # fmt: skip
    return [Finding(NOTE, "order", f"rows of W_q and W_k as {_words(pairing)}: {shares}")]


def _words(pairing: str) -> str:
    return {"half": "half-split", "interleaved": "interleaved"}[pairing]
