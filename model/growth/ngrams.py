"""How well counting predicts a text: the lines that a loss curve is read against."""

import numpy as np


def ngram_losses(train: np.ndarray, held_out: np.ndarray, most: int = 3) -> dict[str, float]:
    """Mean -log P of held-out bytes, nats per byte, for n-grams of 1 to `most` bytes counted on the training bytes.

    train, held_out: uint8 [pos].

    Interpolated after Witten and Bell (1991): with N(h) occurrences of a context h and T(h) different bytes after it,
    P(c | h) = (N(hc) + T(h) P(c | h without its first byte)) / (N(h) + T(h)), down to an even 1/256.
    """
    train, held_out = train.astype(np.int64), held_out.astype(np.int64)
    probability, losses = np.full(len(held_out), 1 / 256), {}
    for n in range(1, most + 1):
        counts = np.bincount(_codes(train, n), minlength=256**n).reshape(-1, 256)
        total, kinds = counts.sum(1), (counts > 0).sum(1)
        at = _codes(held_out, n)  # of the held-out bytes from n - 1 on; those before keep the shorter context's estimate
        context = at // 256
        backed_off = probability[n - 1 :]
        weight = (total + kinds)[context]
        better = (counts.reshape(-1)[at] + kinds[context] * backed_off) / np.maximum(weight, 1)
        probability[n - 1 :] = np.where(weight > 0, better, backed_off)  # a context never seen says nothing
        losses[str(n)] = round(float(-np.log(probability).mean()), 4)
    return losses


def _codes(text: np.ndarray, n: int) -> np.ndarray:
    """Each run of n bytes as one number, the last byte in the lowest place."""
    length = max(len(text) - n + 1, 0)
    return sum((text[i : i + length] * 256 ** (n - 1 - i) for i in range(n)), np.zeros(length, np.int64))
