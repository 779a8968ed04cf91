"""Which keys a query may read, as functions of absolute positions, so that caches and tiles need no special case."""

from dataclasses import dataclass

from torch import Tensor

from model.errors import BlockscopeError


@dataclass(frozen=True)
class Mask:
    """query [query_pos], key [key_pos] absolute positions -> bool [query_pos, key_pos], True where visible."""

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        raise NotImplementedError

    def reach(self, context: int) -> int:
        """How many keys a cache must keep for a text of `context` tokens."""
        return context


@dataclass(frozen=True)
class Causal(Mask):
    """Key j is visible to query i when j <= i."""

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return key[None, :] <= query[:, None]


@dataclass(frozen=True, kw_only=True)
class Sliding(Mask):
    """Causal, and only the last `window` keys: the token itself and window - 1 before it (Mistral, arXiv 2310.06825)."""

    window: int

    def __post_init__(self):
        if self.window < 1:
            raise BlockscopeError(f"window must be at least 1 (a token sees itself), got {self.window}")

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query[:, None] - key[None, :]
        return (distance >= 0) & (distance < self.window)

    def reach(self, context: int) -> int:
        return min(context, self.window)


@dataclass(frozen=True, kw_only=True)
class Chunked(Mask):
    """Causal within chunks of `chunk` positions; nothing crosses a chunk's edge (Llama 4)."""

    chunk: int

    def __post_init__(self):
        if self.chunk < 1:
            raise BlockscopeError(f"chunk must be at least 1, got {self.chunk}")

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        same = query[:, None] // self.chunk == key[None, :] // self.chunk
        return same & (key[None, :] <= query[:, None])

    def reach(self, context: int) -> int:
        return min(context, self.chunk)


MASKS = {"causal": Causal, "sliding": Sliding, "chunked": Chunked}
