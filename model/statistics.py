"""What the attention of one layer amounts to, for a prompt of any length: from query tiles, in O(tokens x tile) memory."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.errors import BlockscopeError
from model.place import Place
from model.run import LM
from model.taps import Enough, Recorder, Tile, recording

ONE_HOT = 0.99  # a query whose largest weight is above this reads one key


@dataclass(frozen=True)
class AttentionStatistics:
    """Arrays [head]; means are over the queries that see more than one key (nan where none does), in natural units.

    `largest`: the visible logit (scaled, before soft-cap) of largest |x|, with its sign, at `query` and `key`. `entropy`: nats.
    `spread`: entropy over the log of the keys that the query sees. `one_hot`: share of queries whose largest weight is above
    ONE_HOT. `first`: weight on key 0, where many heads leave what they do not spend. `sink`: a learned sink's share, else 0.
    `top_keys`, `top_weights` [head, n]: the keys that query `of` reads most, and their weights.
    """

    layer: int
    tokens: int
    largest: np.ndarray
    query: np.ndarray
    key: np.ndarray
    entropy: np.ndarray
    spread: np.ndarray
    one_hot: np.ndarray
    first: np.ndarray
    sink: np.ndarray
    of: int
    top_keys: np.ndarray
    top_weights: np.ndarray


class _Largest:
    """Of the logits: the visible one of largest |x| per head, and where."""

    def __init__(self):
        self.value = self.query = self.key = None

    def __call__(self, logits: Tensor, tile: Tile) -> None:
        """logits [batch, head, query_pos, key_pos]; the first of the batch counts."""
        x = logits[0].float()
        peaks = x.abs().masked_fill_(~tile.visible, -1.0).amax(-1)  # [head, query_pos]
        size, row = peaks.max(-1)
        rows = x[torch.arange(len(x), device=x.device), row].masked_fill(~tile.visible[row], 0.0)  # [head, key_pos]
        key = rows.abs().argmax(-1)
        value, query = rows.gather(-1, key[:, None])[:, 0], row + tile.rows.start
        if self.value is None:
            self.value, self.query, self.key = value, query, key
            return
        larger = ~(size <= self.value.abs())  # NaN wins and stays
        larger &= ~self.value.isnan()
        self.value, self.query, self.key = (
            torch.where(larger, new, old) for new, old in ((value, self.value), (query, self.query), (key, self.key))
        )


class _Weights:
    """Of the pattern: sums over queries, and one query's row."""

    def __init__(self, of: int, top: int):
        self.of, self.top = of, top
        self.sums: dict[str, Tensor] = {}
        self.queries, self.keys, self.values = 0, None, None

    def __call__(self, pattern: Tensor, tile: Tile) -> None:
        x = pattern[0].float()  # [head, query_pos, key_pos]
        seen = tile.visible.sum(-1)
        several = seen > 1
        entropy = torch.special.entr(x).sum(-1)
        found = {
            "entropy": entropy,
            "spread": entropy / seen.clamp_min(2).log(),
            "one_hot": (x.amax(-1) > ONE_HOT).float(),
            "first": x[..., 0],
        }
        for name, rows in found.items():
            self.add(name, rows, several)
        self.queries += int(several.sum())
        if tile.rows.start <= self.of < tile.rows.stop:
            row = self.of - tile.rows.start
            best = x[:, row].masked_fill(~tile.visible[row], -1.0).topk(min(self.top, int(seen[row])))
            self.keys, self.values = best.indices, best.values

    def sink(self, share: Tensor, tile: Tile) -> None:
        self.add("sink", share[0].float(), tile.visible.sum(-1) > 1)

    def add(self, name: str, rows: Tensor, several: Tensor) -> None:
        total = rows.masked_fill(~several, 0.0).double().sum(-1)
        self.sums[name] = self.sums[name] + total if name in self.sums else total

    def mean(self, name: str) -> Tensor:
        return self.sums[name] / self.queries if self.queries else torch.full_like(self.sums[name], torch.nan)


def attention_statistics(lm: LM, tokens: Sequence[int] | Tensor, layer: int, of: int = -1, top: int = 8) -> AttentionStatistics:
    """One pass through the attention of `layer`; the layers below run where their residual is not kept. `of`: the query whose
    `top` keys are named, -1 the last. The square of logits is never whole in memory."""
    ids = lm.checked(tokens)[:1]
    n = ids.shape[1]
    if not 0 <= layer < lm.config.n_layers:
        raise BlockscopeError(f"there is no layer {layer}: this model has 0..{lm.config.n_layers - 1}")
    if not -n <= of < n or top < 1:
        raise BlockscopeError(f"`of` must be a query from {-n} to {n - 1} and `top` at least 1, got {of} and {top}")
    x = lm.residual(ids, layer)
    taps = {name: lm.tap_modules.get(f"blocks.{layer}.attn.{name}") for name in ("hook_logits", "hook_pattern", "hook_sink")}
    logits, weights = _Largest(), _Weights(of % n, top)
    watchers = {taps["hook_logits"]: [logits], taps["hook_pattern"]: [weights]}
    if taps["hook_sink"] is not None:
        watchers[taps["hook_sink"]] = [weights.sink]
    recorder = Recorder(watchers)
    recorder.awaited = frozenset(watchers)
    with recording(recorder), suppress(Enough):  # the MLP of this layer is not part of the question
        lm.step(layer, x, Place.of(x))
    sink = weights.mean("sink") if "sink" in weights.sums else torch.zeros(len(logits.value))
    numbers = {name: weights.mean(name) for name in ("entropy", "spread", "one_hot", "first")} | {"sink": sink}
    return AttentionStatistics(
        layer=layer, tokens=n, of=of % n, largest=_host(logits.value), query=_host(logits.query), key=_host(logits.key),
        top_keys=_host(weights.keys), top_weights=_host(weights.values), **{name: _host(x) for name, x in numbers.items()},
    )  # fmt: skip


def _host(x: Tensor) -> np.ndarray:
    return x.float().cpu().numpy() if x.is_floating_point() else x.cpu().numpy()
