"""From scores to attention weights: softmax over the visible keys, with or without a sink, and the soft-cap before it."""

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError


class SoftCap(nn.Module):
    """cap * tanh(x / cap): small logits pass nearly unchanged, none leaves (-cap, cap)   (Gemma 2, arXiv 2408.00118)."""

    def __init__(self, cap: float):
        super().__init__()
        if not 0 < cap < float("inf"):
            raise BlockscopeError(f"a soft-cap must be a positive finite number (or absent), got {cap}")
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        return self.cap * (x / self.cap).tanh()

    def extra_repr(self) -> str:
        return f"{self.cap:g}"


class Softmax(nn.Module):
    """scores [batch, head, query_pos, key_pos], masked at -inf -> (weights of that shape in fp32, None).

    Every row has a visible key: each mask lets a token see itself.
    """

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        return scores.softmax(-1, dtype=torch.float32), None


class SinkSoftmax(nn.Module):
    """One learned logit per head joins the denominator only: rows sum to 1 - sink   (gpt-oss; arXiv 2309.17453).

    scores [batch, head, query_pos, key_pos] -> (weights of that shape, the sink's share [batch, head, query_pos]), fp32.
    """

    def __init__(self, n_heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_heads))

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        sink = self.weight.float().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        weight = torch.cat([scores.float(), sink], dim=-1).softmax(-1)
        return weight[..., :-1], weight[..., -1]
