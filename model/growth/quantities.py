"""How large attention logits are and what they do to the pattern, per head, from q and k themselves.

logits = scale * q . k in fp32, a few query rows at a time: never from probabilities, never a whole S x S square.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from model.errors import BlockscopeError

QUANTITIES = {  # name -> what it is, in display order; per head, over all texts and positions measured
    "max_logit": "largest |scale · q·k| over the visible keys, before any soft-cap",
    "max_capped": "the same after the soft-cap: what softmax reads (equal to max_logit where there is no cap)",
    "row_range": "largest minus smallest logit of a query's visible keys, mean over queries; before any soft-cap",
    "entropy": (
        "entropy of a query's weights over the log of the number of its visible keys, mean over queries with at least two: "
        "1 is even, 0 is one key; a sink's share is left out and the rest counted as the whole"
    ),
    "one_hot": "share of queries (with at least two visible keys) whose largest weight is above 0.99; a sink's share counts",
    "q_norm": "largest |q|, as it enters the product (after QK-norm, rotation and temperature)",
    "k_norm": "largest |k|, as it enters the product; of the KV head that the head reads",
    "cosine": "largest |cos(q, k)| over the visible keys",
    "overflow": "number of visible logits that are not finite in the data type of q",
}
TILE_BYTES = 1 << 20  # fp32 logits held at a time on a CPU: a handful of tensors of that size stay in its cache
DEVICE_TILE_BYTES = 64 << 20  # and on a GPU, which wants few large steps
LARGEST = ("max_logit", "cosine")  # of these the largest over the tiles counts, of all others the sum
ONE_HOT = 0.99
VANISHED = -87.0  # exp of it is the least that fp32 holds with all its digits; below, exp is thirty times slower on a CPU

Visible = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def measure(
    q: Tensor, k: Tensor, *, mask: Visible, scale: float, cap: float | None = None, sink: Tensor | None = None,
    positions: Tensor | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """q [batch, pos, head, d_head], k [batch, key_pos, kv_head, d_head], both as they are multiplied -> each quantity [head].

    `mask` maps positions of queries and keys to what is visible: bool, broadcastable to [batch, head, query_pos, key_pos].
    `positions` [pos] are those of the queries; by default they are the last of the keys, which stand at 0, 1, 2 ...
    `sink` [head]: a logit that joins the denominator only. A query that sees nothing (padding) is left out.
    """
    with torch.autocast(q.device.type, enabled=False):
        group, q_length, k_length = _group(q, k), _length(q), _length(k)
        directions = _inverse(k_length).repeat_interleave(group, 2).transpose(1, 2)  # 1 / |k| [batch, head, key_pos]
        found: dict[str, Tensor] = {}
        for rows, keys, visible in tiles(q, k, mask, positions):
            logits = product(q[:, rows], k[:, keys], scale)
            part = _tile(logits, visible, cap, sink, q.dtype, directions[:, :, None, keys])
            part["cosine"] = (part["cosine"] * _inverse(q_length[:, rows]).transpose(1, 2) / abs(scale)).amax((0, 2))
            for name, value in part.items():
                join = torch.maximum if name in LARGEST else torch.add
                found[name] = join(found[name], value) if name in found else value
    nothing = q.new_zeros(q.shape[2], dtype=torch.float32)  # where no query sees anything
    largest, several = found.get("max_logit", nothing), found.get("several", nothing)
    return {
        "max_logit": largest,
        "max_capped": largest if cap is None else cap * (largest / cap).tanh(),  # the cap keeps the order
        "row_range": found.get("row_range", nothing) / found.get("rows", nothing),
        "entropy": found.get("entropy", nothing) / several,
        "one_hot": found.get("one_hot", nothing) / several,
        "q_norm": q_length.amax((0, 1)),
        "k_norm": k_length.amax((0, 1)).repeat_interleave(group),
        "cosine": found.get("cosine", nothing),
        "overflow": found.get("overflow", nothing.long()),
    }


def product(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """scale * q . k in fp32 [batch, head, query_pos, key_pos]; query head h reads kv head h // group."""
    grouped = q.float().unflatten(2, (k.shape[2], -1)) * scale
    return torch.einsum("bqkgd,btkd->bkgqt", grouped, k.float()).flatten(1, 2)


def tiles(
    q: Tensor, k: Tensor, mask: Visible, positions: Tensor | None = None, hidden: bool = False
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Query rows, the stretch of keys that any of them sees (`hidden`: all keys), and which of those each one sees.

    The rows are so few that fp32 logits of [batch, head, rows, key_pos] fit TILE_BYTES.
    """
    (batch, total, heads, _), length = q.shape, k.shape[1]
    at = torch.arange(length, device=q.device)
    positions = at[length - total :] if positions is None else positions
    room = TILE_BYTES if q.device.type == "cpu" else DEVICE_TILE_BYTES
    step = max(1, room // (4 * batch * heads * length))
    for first in range(0, total, step):
        rows = slice(first, min(first + step, total))
        visible = mask(positions[rows], at)
        seen = torch.arange(length, device=q.device)[visible.flatten(0, -2).any(0)]
        if not len(seen):
            continue
        keys = slice(0, length) if hidden else slice(int(seen[0]), int(seen[-1]) + 1)
        yield rows, keys, visible[..., keys]


def _tile(
    logits: Tensor, visible: Tensor, cap: float | None, sink: Tensor | None, dtype: torch.dtype, directions: Tensor
) -> dict[str, Tensor]:
    """What one tile adds to each quantity [head], the cosine still [batch, head, query_pos] and to be divided by |q|.

    Rows that see nothing add nothing. Written so that a tile is gone through as few times as possible.
    """
    hidden = ~visible
    count = visible.sum(-1).expand(logits.shape[:-1])  # [batch, head, query_pos]
    some, several = count > 0, count > 1
    low = logits.masked_fill(hidden, torch.inf).amin(-1)
    shown = logits.masked_fill(hidden, -torch.inf)
    high = shown.amax(-1)
    largest = torch.maximum(high.abs(), low.abs()).masked_fill(~some, 0)
    along = logits.masked_fill(hidden, 0).mul_(directions)
    weight, entropy = _rows(shown if cap is None else (logits / cap).tanh_().mul_(cap).masked_fill_(hidden, -torch.inf), sink)
    one_hot = torch.where(weight.isnan(), weight, (weight > ONE_HOT).float())  # a row of NaN is not "no"
    return {
        "max_logit": largest.amax((0, 2)),
        "row_range": _total(high - low, some),
        "entropy": _total(entropy / count.float().log(), several),
        "one_hot": _total(one_hot, several),
        "cosine": torch.linalg.vector_norm(along, torch.inf, -1),
        "overflow": _overflow(logits, visible, largest, dtype),
        "rows": some.sum((0, 2)),
        "several": several.sum((0, 2)),
    }


def _rows(scores: Tensor, sink: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of each row [batch, head, query_pos]: its largest weight (a sink takes its share), its entropy in nats (it does not).

    `scores` is written over.
    """
    top = scores.amax(-1, keepdim=True)
    x = scores.sub_(top).clamp_min_(VANISHED)
    e = x.exp()
    total = e.sum(-1)
    entropy = total.log() - e.mul_(x).sum(-1) / total
    shared = total if sink is None else total + (sink.float()[:, None] - top[..., 0]).exp()
    return 1 / shared, entropy


def _overflow(logits: Tensor, visible: Tensor, largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Visible logits that are not finite in `dtype` [head]; counted only where the largest of a row says that there are any."""
    if bool((largest <= torch.finfo(dtype).max).all()):
        return torch.zeros(logits.shape[1], dtype=torch.long, device=logits.device)
    return (~logits.to(dtype).isfinite() & visible).sum((0, 2, 3))


def _total(x: Tensor, counted: Tensor) -> Tensor:
    return x.masked_fill(~counted, 0).sum((0, 2), dtype=torch.float64).float()


def _length(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32)


def _inverse(length: Tensor) -> Tensor:
    """1 / length; 0 for a vector of zeros, which has no direction."""
    return torch.where(length > 0, 1 / length, torch.zeros_like(length))


def _group(q: Tensor, k: Tensor) -> int:
    """Query heads that share one KV head."""
    fits = q.ndim == k.ndim == 4 and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and not q.shape[2] % k.shape[2]
    if not fits:
        raise BlockscopeError(
            "q must be [batch, pos, head, d_head] and k [batch, key_pos, kv_head, d_head] with head a multiple of kv_head, "
            f"got {list(q.shape)} and {list(k.shape)}"
        )
    return q.shape[2] // k.shape[2]
