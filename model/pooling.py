"""Peak-keeping pooling: a large tensor becomes a small one in which no peak is lost."""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

TILED = ("query_pos", "pos")  # what comes in tiles: a tensor has one of them at most
POOLED = ("pos", "query_pos", "key_pos", "d_model", "d_head", "d_mlp", "d_vocab", "pair", "expert")  # never heads or layers


class Pool:
    """Blocks of a tensor with axes `dims` and `sizes`, each reduced to its largest entry (signed: the one of largest |x|).

    Fed in tiles along the axis of queries or tokens. Masked entries are left out; a block with nothing visible is masked. NaN
    wins a block.
    """

    def __init__(self, dims: tuple[str, ...], sizes: list[int], signed: bool, budget: int, device: torch.device):
        self.dims, self.sizes, self.signed = dims, sizes, signed
        self.tiled = next((axis for axis in TILED if axis in dims), None)
        self.factors = self._factors(budget)
        shape = [math.ceil(n / f) for n, f in zip(sizes, self.factors, strict=True)]
        self.high = torch.full(shape, -torch.inf, device=device)
        self.low = torch.full(shape, torch.inf, device=device)
        self.shown = torch.zeros(shape, dtype=torch.bool, device=device)

    def _factors(self, budget: int) -> list[int]:
        """Block lengths: the axis that is longest after pooling is pooled one step further until the whole fits."""
        factors = [1] * len(self.sizes)
        able = [i for i, axis in enumerate(self.dims) if axis in POOLED]
        length = lambda i: math.ceil(self.sizes[i] / factors[i])  # noqa: E731
        while able and math.prod(map(length, range(len(factors)))) > budget and max(map(length, able)) > 1:
            longest = max(able, key=length)
            factors[longest] = math.ceil(self.sizes[longest] / (length(longest) - max(1, length(longest) // 16)))
        return factors

    def update(self, x: Tensor, visible: Tensor | None, start: int) -> None:
        """x: all of every axis, or the query rows from `start` on."""
        if visible is not None:  # a masked entry counts as 0, which is a peak only where no visible entry is another number
            x = x.masked_fill(~visible, 0)
            shown = self._blocks(visible.float(), torch.amax, start) > 0
        high = self._blocks(x, torch.amax, start)
        into = [slice(None)] * x.ndim
        if self.tiled is not None:
            axis = self.dims.index(self.tiled)
            first = start // self.factors[axis]
            into[axis] = slice(first, first + high.shape[axis])
        into = tuple(into)
        self.high[into] = torch.maximum(self.high[into], high)
        if self.signed:
            self.low[into] = torch.minimum(self.low[into], self._blocks(x, torch.amin, start))
        self.shown[into] |= True if visible is None else shown

    def _blocks(self, x: Tensor, reduce: Callable[..., Tensor], start: int) -> Tensor:
        """x, or what broadcasts to it, reduced block by block; a last block that is not full is filled with zeros."""
        for axis, factor in enumerate(self.factors):
            if factor > 1 and x.shape[axis] > 1:
                before = start % factor if self.dims[axis] == self.tiled else 0
                after = -(before + x.shape[axis]) % factor
                if before or after:
                    x = F.pad(x, [0, 0] * (x.ndim - 1 - axis) + [before, after])
                x = reduce(x.unflatten(axis, (-1, factor)), axis + 1)
        return x

    def finish(self) -> tuple[np.ndarray, np.ndarray | None, tuple[np.ndarray, ...], str]:
        """-> values fp32 (masked NaN), masked or None, the first original index of each block per axis, how."""
        peak = torch.where(self.high.abs() >= self.low.abs(), self.high, self.low) if self.signed else self.high
        peak = torch.where(self.high.isnan(), self.high, peak).masked_fill(~self.shown, torch.nan)
        masked = None if bool(self.shown.all()) else (~self.shown).cpu().numpy()
        coords = tuple(np.arange(0, n, f) for n, f in zip(self.sizes, self.factors, strict=True))
        pooled = [(f, axis) for f, axis in zip(self.factors, self.dims, strict=True) if f > 1]
        if not pooled:
            return peak.cpu().numpy(), masked, coords, "nothing pooled"
        block, axes = " x ".join(str(f) for f, _ in pooled), " x ".join(axis for _, axis in pooled)
        what = "largest |x|, sign kept," if self.signed else "largest value"
        return peak.cpu().numpy(), masked, coords, f"{what} of each block of {block} ({axes})"
