"""Which keys a query may read, as functions of absolute positions, so that caches and tiles need no special case."""

from dataclasses import dataclass

from torch import Tensor

from model.errors import BlockscopeError


@dataclass(frozen=True)
class Causal:
    """Key j is visible to query i when j <= i."""

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """query [query_pos], key [key_pos] absolute positions -> bool [query_pos, key_pos], True where visible."""
        return key[None, :] <= query[:, None]


@dataclass(frozen=True, kw_only=True)
class Sliding:
    """Causal, and only the last `window` keys: the token itself and window - 1 before it (Mistral, arXiv 2310.06825)."""

    window: int

    def __post_init__(self):
        if self.window < 1:
            raise BlockscopeError(f"window must be at least 1 (a token sees itself), got {self.window}")

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query[:, None] - key[None, :]
        return (distance >= 0) & (distance < self.window)


MASKS = {"causal": Causal, "sliding": Sliding}
