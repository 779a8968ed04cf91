"""Peak-keeping pooling: a large tensor becomes a small one in which no peak is lost."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

POOLED = ("pos", "query_pos", "key_pos", "d_model", "d_head", "d_mlp", "d_vocab", "pair", "expert")  # never heads or layers


class Pool:
    """Blocks of a tensor with axes `dims` and `sizes`, each reduced to its largest entry (signed: the one of largest |x|).

    Fed in tiles along query_pos. Masked entries are left out; a block with nothing visible is masked. NaN wins a block.
    """

    def __init__(self, dims: tuple[str, ...], sizes: list[int], signed: bool, budget: int, device: torch.device):
        self.dims, self.sizes, self.signed = dims, sizes, signed
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
        shown = torch.ones_like(x, dtype=torch.bool) if visible is None else visible.expand(x.shape)
        high = self._blocks(x.masked_fill(~shown, -torch.inf), -torch.inf, start)
        low = self._blocks(x.masked_fill(~shown, torch.inf), torch.inf, start) if self.signed else None
        shown = self._blocks(shown.float(), 0.0, start) > 0
        into = [slice(None)] * x.ndim
        if "query_pos" in self.dims:
            axis = self.dims.index("query_pos")
            first = start // self.factors[axis]
            into[axis] = slice(first, first + high.shape[axis])
        into = tuple(into)
        self.high[into] = torch.maximum(self.high[into], high)
        if low is not None:
            self.low[into] = torch.minimum(self.low[into], low)
        self.shown[into] |= shown

    def _blocks(self, x: Tensor, fill: float, start: int) -> Tensor:
        reduce = torch.amin if fill == torch.inf else torch.amax
        for axis, factor in enumerate(self.factors):
            if factor > 1:
                before = start % factor if self.dims[axis] == "query_pos" else 0
                after = -(before + x.shape[axis]) % factor
                x = F.pad(x, [0, 0] * (x.ndim - 1 - axis) + [before, after], value=fill)
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
