"""What every attention shares: from queries, keys and values to their weighted mean, each stage a tap.

logits = scale * q . k;   capped = softcap(logits);   pattern = softmax(capped + mask);   z = pattern v
"""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.heap import release
from model.masks import Causal, Mask
from model.place import Place
from model.softmax import SinkSoftmax, SoftCap, Softmax
from model.taps import Absent, Tap, Tile, breathe, edited, enough, heard, last, rows_wanted

TILE_BYTES = 8 << 20  # fp32 logits held at a time on a CPU: from 4 to 32 MB equally fast, and larger ones tear up the heap
DEVICE_TILE_BYTES = 32 << 20  # and on a GPU, which wants few large steps
STRETCH_BYTES = 32 << 20  # of one tensor of the widest layer, where the tokens of a long text come a stretch at a time
SWEPT = 64 << 20  # bytes of tiles after which the heap gives back what they left
LONG = 4096  # keys from which on one call of the fused kernel, which nothing can stop, takes one head
SQUARE = "batch head query_pos key_pos"


def tile_bytes(device: torch.device) -> int:
    return TILE_BYTES if device.type == "cpu" else DEVICE_TILE_BYTES


def several_tiles(heads: int, batch: int, keys: int) -> bool:
    """Whether the logits of so many queries and keys are cut into tiles."""
    return 4 * batch * heads * keys**2 > TILE_BYTES


class Scores(nn.Module):
    """Base of the attentions. q [batch, query_pos, head, d_head], k and v [batch, key_pos, kv_head, d_head] -> z like q."""

    def add_scores(self, *, scale: float, mask: Mask, n_heads: int, softcap: float | None = None, sink: bool = False) -> None:
        """Called by the subclass where the stages stand in its order of parts."""
        self.scale, self.mask = scale, mask
        self.hook_logits = Tap(SQUARE, "signed", "scale * q . k, before soft-cap, mask and sink")
        self.softcap = SoftCap(softcap) if softcap is not None else nn.Identity()
        capped, no_cap = "logits after the soft-cap", "this attention has no logit soft-cap"
        self.hook_capped = Tap(SQUARE, "signed", capped) if softcap is not None else Absent(no_cap)
        self.hook_attn_scores = Tap(SQUARE, "signed", "logits with masked entries at -inf: what softmax reads")
        self.softmax = SinkSoftmax(n_heads) if sink else Softmax()
        rows = "rows sum to 1 - sink" if sink else "rows sum to 1"
        self.hook_pattern = Tap(SQUARE, "probability", f"softmax over the visible keys; {rows}")
        share, no_sink = "share of each row that the sink takes", "this attention has no sink"
        self.hook_sink = Tap("batch head query_pos", "probability", share) if sink else Absent(no_sink)
        self.hook_z = Tap("batch pos head d_head", "signed", "pattern-weighted mean of the values, per head")
        self.fusible = softcap is None and not sink  # PyTorch's fused kernel has neither

    def mix(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        """Fused where nobody looks at the weights of every query; logits, and some queries' weights, are shown beside it."""
        stages = (self.hook_logits, self.hook_attn_scores, self.hook_pattern)
        if not self.fusible or any(map(edited, stages)):
            return self.hook_z(self.explicit(q, k, v, place))
        if heard(*stages):
            rows, weights = rows_wanted(*stages), heard(*stages[1:])
            if weights and rows is None and not last(*stages):
                return self.hook_z(self.explicit(q, k, v, place))
            for tile in self.tiles(q, place, rows):
                logits = self.hook_logits(self.logits(q[:, tile.rows], k), tile)
                if weights:
                    self.weights(logits, tile, v.dtype)
            enough()
        return self.hook_z(self.fused(q, k, v, place))

    def weights(self, logits: Tensor, tile: Tile, dtype: torch.dtype) -> Tensor:
        """logits of a tile -> pattern, both [batch, head, query_pos, key_pos], every stage tapped."""
        capped = self.hook_capped(self.softcap(logits), tile)
        scores = self.hook_attn_scores(capped.masked_fill(~tile.visible, -torch.inf), tile)
        pattern, sink = self.softmax(scores)
        pattern, _ = self.hook_pattern(pattern.to(dtype), tile), self.hook_sink(sink, tile)
        return pattern

    def logits(self, q: Tensor, k: Tensor) -> Tensor:
        """scale * q . k; q [batch, query_pos, head, d_head], k [batch, key_pos, kv_head, d_head]

        -> [batch, head, query_pos, key_pos].
        """
        grouped = q.unflatten(2, (k.shape[2], -1))  # query head h reads kv head h // group
        return torch.einsum("bqkgd,btkd->bkgqt", grouped * self.scale, k).flatten(1, 2)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        """The formula, in query tiles, every stage tapped."""
        z = q.new_empty(*q.shape[:-1], v.shape[-1])
        for tile in self.tiles(q, place):
            logits = self.hook_logits(self.logits(q[:, tile.rows], k), tile)
            grouped = self.weights(logits, tile, v.dtype).unflatten(1, (v.shape[2], -1))
            z[:, tile.rows] = torch.einsum("bkgqt,btkd->bqkgd", grouped, v).flatten(2, 3)
        enough()
        return z

    def fused(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        """PyTorch's fused kernel."""
        attend = partial(F.scaled_dot_product_attention, scale=self.scale)
        group, tiles = q.shape[2] // k.shape[2], self.tiles(q, place)
        q, k, v = q.transpose(1, 2), *(t.transpose(1, 2).repeat_interleave(group, 1) for t in (k, v))
        if place.start == 0 and isinstance(self.mask, Causal) and place.documents is None:
            # is_causal assumes that queries start at key 0
            return torch.cat([attend(*part, is_causal=True) for part in self.parts(q, k, v, place)], dim=1).transpose(1, 2)
        return torch.cat([attend(q[:, :, t.rows], k, v, attn_mask=t.visible) for t in tiles], dim=2).transpose(1, 2)

    def parts(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """q, k, v [batch, head, pos, d_head] whole; of a long text on a CPU head by head, so that the run can be stopped."""
        heads = 1 if q.device.type == "cpu" and place.length > LONG else q.shape[1]
        for first in range(0, q.shape[1], heads):
            breathe()
            yield tuple(t[:, first : first + heads] for t in (q, k, v))

    def tiles(self, q: Tensor, place: Place, wanted: range | None = None) -> Iterator[Tile]:
        """Query rows, all or those wanted, so few at a time that the logits of a tile stay under TILE_BYTES."""
        batch, total, heads, _ = q.shape
        most, size = tile_bytes(q.device), 4 * max(batch, 1) * heads * place.length
        rows, passed = max(1, most // size), 0
        keys = place.key_positions
        wanted = range(total) if wanted is None else wanted
        for first in range(wanted.start, wanted.stop, rows):
            at = slice(first, min(first + rows, wanted.stop))
            visible = self.mask(place.positions[at], keys)
            yield Tile(at, total, visible if place.documents is None else visible & place.same_document(at))
            passed += rows * size
            if passed > SWEPT and q.device.type == "cpu":
                release()
                passed = 0
