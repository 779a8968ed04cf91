"""Where a pass stands in its text: the absolute positions of its tokens, and the keys and values of what came before."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError


class KVCache:
    """Rotated keys and values of the tokens already read, per attention module; grows by each pass that uses it."""

    def __init__(self):
        self.length = 0  # tokens read by finished passes: where the next pass must start
        self._kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # by the tap of z, which every filled copy of a module shares

    def extend(self, attention: nn.Module, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """k, v of the new tokens [batch, pos, kv_head, d_head] -> of every token so far [batch, key_pos, kv_head, d_head]."""
        if attention.hook_z in self._kept:
            past_k, past_v = self._kept[attention.hook_z]
            k, v = torch.cat([past_k, k], dim=1), torch.cat([past_v, v], dim=1)
        self._kept[attention.hook_z] = k, v
        return k, v

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for pair in self._kept.values() for t in pair)


@dataclass(frozen=True)
class Place:
    """`positions` [pos] of the tokens of this pass; `cache` holds the `start` tokens before them."""

    positions: Tensor
    start: int = 0
    cache: KVCache | None = field(default=None)
    documents: Tensor | None = field(default=None)  # [key_pos] ids of packed texts: a token reads its own document only

    @classmethod
    def of(cls, x: Tensor, cache: KVCache | None = None, documents: Tensor | None = None) -> "Place":
        """The place of x [batch, pos, ...]: right after what the cache holds, or at the beginning without one."""
        start = cache.length if cache is not None else 0
        if x.ndim < 2 or x.shape[1] == 0:
            raise BlockscopeError(f"expected [batch, pos, ...] with at least one token, got shape {list(x.shape)}")
        place = cls(torch.arange(start, start + x.shape[1], device=x.device), start, cache, documents)
        if documents is not None and documents.shape != (place.length,):
            raise BlockscopeError(f"documents must hold one id for each of {place.length} tokens, got {list(documents.shape)}")
        return place

    def to(self, device: torch.device) -> "Place":
        documents = None if self.documents is None else self.documents.to(device)
        return replace(self, positions=self.positions.to(device), documents=documents)

    @property
    def length(self) -> int:
        """Tokens of the text so far, this pass included."""
        return self.start + len(self.positions)

    @property
    def key_positions(self) -> Tensor:
        return torch.arange(self.length, device=self.positions.device)

    def same_document(self, rows: slice) -> Tensor:
        """-> bool [query_pos, key_pos] of these query rows."""
        return self.documents[self.positions[rows]][:, None] == self.documents[None, :]

    def extend(self, attention: nn.Module, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values that this pass may read: the cached ones, then its own."""
        return (k, v) if self.cache is None else self.cache.extend(attention, k, v)
