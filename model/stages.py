"""A model as stages, each with its weights in place while it runs: the embedding, every block, the final norm with the logits.

Where memory is bounded, the two large tables are never whole in memory: of the embedding the rows of this text are read, and
the unembedding is multiplied a stretch of rows at a time, straight from its file.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.halting import check
from model.heap import release
from model.lm import Decoder
from model.pages import CHUNK, drop
from model.place import Place
from model.scores import STRETCH_BYTES, several_tiles
from model.taps import breathe, in_stretches, taps_of
from model.weights import WeightStore

BEGIN = -1  # the stage of the embedding
TABLE = "embed.weight"
NOTHING: Mapping[str, nn.Parameter] = MappingProxyType({})


@dataclass(frozen=True)
class Progress:
    """`done` of `total` steps of a run; `what` the step just finished, e.g. "layer 3", `now` the one that begins."""

    done: int
    total: int
    what: str
    now: str = ""


class Stages:
    """`net` on the meta device and the store of its weights. Stage -1 embeds, 0..n-1 are the blocks, n gives the logits."""

    def __init__(self, net: Decoder, store: WeightStore):
        self.net, self.store, self.config = net, store, net.config
        self.last = net.config.n_layers

    def filled(self, stage: int, have: Mapping[str, nn.Parameter] = NOTHING) -> nn.Module | None:
        """The block of a stage with its weights; None for the first and the last stage, whose tables `run` reads itself.

        `have`: parameters that were read before, by their names in the model."""
        return self.store.ready(self.net.blocks[stage], f"blocks.{stage}", have=have) if 0 <= stage < self.last else None

    def fetch(self, stage: int, have: dict[str, nn.Parameter]) -> None:
        """Get ready what `filled` will need: parameters into `have`, or the pages of their file into memory."""
        for name, parameter in self.net.blocks[stage].named_parameters(prefix=f"blocks.{stage}"):
            if parameter.is_meta:
                check()
                if (read := self.store.fetch(name, tuple(parameter.shape))) is not None:
                    have[name] = read

    def held(self, stage: int) -> bool:
        """Whether running this stage reads no file."""
        if not 0 <= stage < self.last:
            return True
        block = self.net.blocks[stage]
        return all(
            self.store.holds(f"blocks.{stage}.{name}", tuple(p.shape)) for name, p in block.named_parameters() if p.is_meta
        )

    def run(self, stage: int, x: Tensor, place: Place, block: nn.Module | None = None) -> Tensor:
        """One stage: -1 takes tokens [batch, pos], the others the residual stream entering them [batch, pos, d_model]."""
        with torch.no_grad():
            x, place = self.bring(stage, x, place)
            if stage == BEGIN:
                return self._start(x, place)
            if stage == self.last:
                return self._finish(x)
            if block is None:
                block = self.filled(stage)
                self.store.meet(block.parameters())
            try:
                return self._unhurried(block, x)(x, place)
            finally:
                if several_tiles(block.config.attn.n_heads, x.shape[0], place.length):
                    release()

    def bring(self, stage: int, x: Tensor, place: Place) -> tuple[Tensor, Place]:
        """What enters a stage, on the device of its weights."""
        device = self.store.homes.of_stage(stage)
        return x.to(device), place.to(device)

    def _unhurried(self, block: nn.Module, x: Tensor) -> nn.Module:
        """The block itself; for a long text one whose MLP, which sees each token alone, takes a stretch of them at a time."""
        widest = max(self.config.d_model, block.config.mlp.active_neurons)
        rows = max(1, STRETCH_BYTES // (4 * widest * x.shape[0]))
        if x.shape[1] <= rows:
            return block
        twin = copy.copy(block)
        twin._modules = {**block._modules, "mlp": Stretched(block.mlp, rows)}
        return twin

    def _start(self, tokens: Tensor, place: Place) -> Tensor:
        net = copy.copy(self.net)
        net._modules = dict(net._modules)
        net.positions = self.store.ready(self.net.positions, "positions")
        table = self.store.stored(TABLE, tuple(self.net.embed.weight.shape)) if self.store.bounded else None
        if table is None:
            net.embed = self.store.ready(self.net.embed, "embed")
        else:  # the few rows of this text, under new numbers
            ids, tokens = tokens.unique(return_inverse=True)
            rows = table[ids.cpu()]
            drop(table)
            net.embed = copy.copy(self.net.embed)
            net.embed._parameters = {
                "weight": nn.Parameter(self.store.lane_of(TABLE).send(rows, self.store.dtype), requires_grad=False)
            }
        self.store.meet([*net.positions.parameters(), *net.embed.parameters()])
        return net.start(tokens, place)

    def _finish(self, x: Tensor) -> Tensor:
        net = copy.copy(self.net)
        net._modules = dict(net._modules)
        net.ln_final = self.store.ready(self.net.ln_final, "ln_final")
        name = TABLE if self.config.tied else "unembed.weight"
        table = self.store.stored(name, tuple(self.net.unembed.weight.shape)) if self.store.bounded else None
        if table is None:
            net.unembed = self.store.ready(self.net.unembed, "unembed", {"unembed.weight": TABLE} if self.config.tied else {})
        else:
            shape = (self.config.d_vocab,)
            bias = self.store.get("unembed.bias", shape) if self.config.unembed_bias else None
            net.unembed = FromFile(table, bias, self.store)
        self.store.meet([*net.ln_final.parameters(), *net.unembed.parameters()])
        rows = max(1, STRETCH_BYTES // (4 * self.config.d_vocab * x.shape[0]))
        return in_stretches(net.finish, x, rows, taps_of(net).values())


class Stretched(nn.Module):
    """A part that sees each token alone, `rows` of them at a time."""

    def __init__(self, part: nn.Module, rows: int):
        super().__init__()
        self.part, self.rows, self.taps = part, rows, tuple(taps_of(part).values())

    def forward(self, x: Tensor) -> Tensor:
        return in_stretches(self.part, x, self.rows, self.taps)


class FromFile(nn.Module):
    """A linear map whose matrix [out, in] stays in its file: x [..., in] -> [..., out], a stretch of rows at a time."""

    def __init__(self, table: Tensor, bias: nn.Parameter | None, store: WeightStore):
        super().__init__()
        self.table, self.bias, self.store, self.lane = table, bias, store, store.lane_of("unembed.weight")

    def forward(self, x: Tensor) -> Tensor:
        rows = max(1, 4 * CHUNK // (self.table.shape[1] * self.table.itemsize))
        out = x.new_empty(*x.shape[:-1], len(self.table))
        for i in range(0, len(self.table), rows):
            breathe()
            weight = self.lane.send(self.table[i : i + rows], self.store.dtype)
            self.lane.meet([weight])
            out[..., i : i + rows] = F.linear(x, weight)
            drop(self.table[i : i + rows])
        return out if self.bias is None else out + self.bias
