"""What a change does to the prediction: next tokens, KL(A || B) in nats, and the loss of every token."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.run import LM
from model.stages import Progress


@dataclass(frozen=True)
class Outcome:
    """The k likeliest next tokens (id, piece, probability), entropy and KL(A || this side) in nats; None: not comparable."""

    top: tuple[tuple[int, str, float], ...]
    entropy: float
    kl: float | None


@dataclass(frozen=True)
class Losses:
    """`loss` [side, pos]: -log p of the token at pos + 1, in nats, NaN past a side's last; `kl` [side, pos]: KL(A || side) of
    the prediction after pos.

    `kl` is None where the sides do not share a vocabulary. `same`: per side, whether all its logits equal A's bit for bit.
    """

    loss: np.ndarray
    kl: np.ndarray | None
    same: tuple[bool, ...]


def outcome(a: Tensor | None, b: Tensor, lm: LM, k: int) -> Outcome | str:
    """Logits [d_vocab] of A (None: not comparable) and of one side."""
    if not bool(torch.isfinite(b).all()):
        return "these logits are not all finite, so tokens cannot be ranked"
    log_b = b.double().log_softmax(-1)
    p, ids = log_b.exp().topk(min(k, len(b)))
    top = tuple((i, lm.pieces([i])[0], q) for i, q in zip(ids.tolist(), p.tolist(), strict=True))
    return Outcome(top, float(-(log_b.exp() * log_b).sum()), None if a is None else float(divergence(a, b)))


def divergence(a: Tensor, b: Tensor) -> Tensor:
    """KL(softmax a || softmax b) in nats over the last axis; exactly 0 for equal logits."""
    log_a, log_b = a.double().log_softmax(-1), b.to(a.device).double().log_softmax(-1)
    return (log_a.exp() * (log_a - log_b)).sum(-1)


def losses(
    ids: Sequence[Tensor], entering: Sequence[Tensor], logits: Callable[[int, Tensor], Tensor], rows: int, comparable: bool
) -> Generator[Progress, None, Losses]:
    """`entering`: each side's residual [1, pos, d_model]; its logits are made for `rows` positions at a time and dropped."""
    n = max(len(own) for own in ids)
    loss = np.full((len(ids), n - 1), np.nan, np.float32)
    kl = np.zeros((len(ids), n), np.float32)
    same = [True] * len(ids)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        a = None
        for side, x in enumerate(entering):
            if start >= x.shape[1]:
                continue
            here = logits(side, x[:, start:stop])[0]
            a = here if a is None else a
            wanted = ids[side][start + 1 : stop + 1]
            nll = torch.nn.functional.cross_entropy(here[: len(wanted)].float(), wanted.to(here.device), reduction="none")
            loss[side, start : start + len(wanted)] = nll.cpu().numpy()
            if side and comparable:
                same[side] &= torch.equal(a, here.to(a.device))
                kl[side, start:stop] = divergence(a, here).cpu().numpy()
        yield Progress(stop, n, f"logits of token {stop - 1}")
    return Losses(loss, kl if comparable else None, tuple(same) if comparable else (True, *[False] * (len(ids) - 1)))
