"""Whether the rows of W_q and W_k lie in the order that their rotation expects: two hints, both measured.

Half-split and interleaved files differ only in the order of rows, and a file read in the wrong one gives plausible numbers. But

- a rotation turns the two coordinates of a pair into one another, so training has no reason to prefer one of them: in the right
  order the two rows of a pair are about as long, in the other one rows of different frequencies stand together. This is read
  from the weights, of W_q and W_k apart;
- turned wrongly, no head reads the token before it any more. So the sharpest previous-token head of the first layers is
  measured as the file is read, and in the other order. This sees both matrices out of order together.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from model.attention import Attention
from model.checkpoints.checkpoint import Checkpoint
from model.doctor.finding import Check
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
CLEAR, SURE, RATIO = 0.2, 0.3, 1.5  # the best head of an order that is wrong or right, and how many times the other
PAIRS = 512  # fewer say nothing
FITS, TURNED, OTHER = 0.75, 1.0, 0.7  # of the difference of two rows of a pair, 1 where they have nothing in common
OTHERS = {"half": "interleaved", "interleaved": "half"}
WORDS = {"half": "half-split", "interleaved": "interleaved"}
RIGHT, WRONG, UNCLEAR = "right", "wrong", "unclear"


def judge(checkpoint: Checkpoint, source: str | Path, report: Callable[[int, int, str], None], run: bool = True) -> Check:
    turning = [(i, block.attn) for i, block in enumerate(checkpoint.config.blocks) if _turns(block.attn)]
    if not turning:
        return Check.skipped(
            "order", "no ordinary queries and keys are turned in this model, so their rows have no order to lose"
        )
    pairing = turning[0][1].rope.pairing
    report(0, 3, "the order of query and key rows")
    rows = {which: _rows(checkpoint, turning, which) for which in ("q", "k")}
    report(1, 3, "previous-token heads")
    heads, shares = _heads(source, pairing, report) if run else (UNCLEAR, "")
    wrong = [f"W_{which}" for which, verdict in rows.items() if verdict == WRONG]
    if heads == WRONG and not wrong:
        wrong = ["W_q", "W_k"]
    about = f"rows of W_q and W_k as {WORDS[pairing]}"
    if wrong:
        other = WORDS[OTHERS[pairing]]
        measured = [] if not any(verdict == WRONG for verdict in rows.values()) else [
            f"read as {WORDS[pairing]}, the two rows of a pair have unlike lengths, and read as {other} they match"
        ]  # fmt: skip
        measured += [f"read as {WORDS[pairing]} {shares}"] if heads == WRONG else []
        alone = f" and those of W_{'k' if wrong == ['W_q'] else 'q'} do not" if len(wrong) == 1 else ""
        sentence = f"the rows of {' and '.join(wrong)} look out of order{alone}: {'; '.join(measured)}"
        return Check.of("order", about, [f"{sentence}; a hint, not a proof: check how the file was converted"])
    fits = [f"the rows of W_{which}" for which, verdict in rows.items() if verdict == RIGHT]
    fits += ["previous-token heads"] if heads == RIGHT else []
    if not fits:
        return Check.skipped(
            "order", f"not enough structure to tell the order of query and key rows ({WORDS[pairing]} is taken)"
        )
    return Check.of("order", f"{about}: {', '.join(fits)} fit", notes=[f"read as {WORDS[pairing]} {shares}"] if shares else [])


def _turns(attn: object) -> bool:
    return isinstance(attn, Attention.Config) and attn.rope is not None and attn.rope.pairing in OTHERS


# ---- the lengths of rows -------------------------------------------------------------------------------------------------


def _rows(checkpoint: Checkpoint, turning: list[tuple[int, Attention.Config]], which: str) -> str:
    """The verdict on one matrix of all layers."""
    lengths = []
    for i, attn in turning:
        heads = attn.n_heads if which == "q" else attn.n_kv_heads
        energy = checkpoint.tensors.read(f"blocks.{i}.attn.{which}_proj.weight").float().square().sum(-1)
        lengths.append(energy.view(heads, -1)[:, : attn.rope.d])
    pairing = turning[0][1].rope.pairing
    same = [x for x in lengths if x.shape[-1] == lengths[0].shape[-1]]  # layers that turn as many coordinates
    here, there = unlike(torch.cat(same), pairing), unlike(torch.cat(same), OTHERS[pairing])
    if here < FITS:
        return RIGHT
    return WRONG if here > TURNED and there < OTHER else UNCLEAR


def unlike(energy: Tensor, pairing: str) -> float:
    """Mean squared difference of log energy within pairs, over what it is between any two rows of a head: 1 where the rows of a
    pair have nothing in common, 0 where they are as long. `energy` [head, d_head]. NaN where there is nothing to compare."""
    if not bool((energy > 0).all() and energy.isfinite().all()) or energy.numel() < 2 * PAIRS:
        return float("nan")
    logs = energy.log()
    spread = 2 * logs.var(-1).mean()
    a, b = logs.chunk(2, -1) if pairing == "half" else (logs[:, ::2], logs[:, 1::2])
    return float((a - b).square().mean() / spread) if spread > 0 else float("nan")


# ---- heads that read the token before ------------------------------------------------------------------------------------


def _heads(source: str | Path, pairing: str, report: Callable[[int, int, str], None]) -> tuple[str, str]:
    """The verdict, and what was measured in words."""
    lm = load(source, device="cpu")
    try:
        if read(lm.config, "pairing") != pairing:
            return UNCLEAR, ""
        turned = lm.variant(pairing=OTHERS[pairing])
    except BlockscopeError:  # no ordinary rotation here
        return UNCLEAR, ""
    tokens = lm.encode(TEXT)[:TOKENS] if lm.tokenizer else torch.arange(1, TOKENS).remainder(lm.config.d_vocab).tolist()
    tokens = [token for token in tokens if token < lm.config.d_vocab]
    if len(tokens) < 4 * SKIPPED:
        return UNCLEAR, ""
    here = previous_token(lm, tokens)
    report(2, 3, "the same in the other order")
    there = previous_token(turned, tokens)
    other = WORDS[OTHERS[pairing]]
    shares = f"the best head of the first layers reads {here:.0%} from the previous token, as {other} {there:.0%}"
    if here >= SURE and here > RATIO * there:
        return RIGHT, shares
    return (WRONG if there >= CLEAR and there > RATIO * here else UNCLEAR), shares


def previous_token(lm: LM, tokens: list[int]) -> float:
    """The share that the sharpest head of the first layers puts on the previous token."""
    layers = range(min(LAYERS, lm.config.n_layers))
    views = lm.views(tokens, [Request(f"blocks.{i}.attn.hook_pattern", budget=1 << 30) for i in layers])
    rows = torch.arange(SKIPPED, len(tokens))
    return max(float(torch.from_numpy(view.values)[:, rows, rows - 1].mean(-1).max()) for view in views)
