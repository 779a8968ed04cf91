"""What is measured while a run goes on, on held-out text that never changes: logits of every layer and head, loss, patterns."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from model.growth.corpus import Corpus
from model.growth.measure import bound, probe
from model.growth.recipe import Recipe
from model.lm import Decoder
from model.taps import capture

PROBED = 8  # sequences on which logits are measured
SHOWN = 64  # tokens of the text whose patterns are kept
BATCH = 32  # sequences at a time, for the loss


@dataclass(frozen=True, eq=False)
class Probe:
    """One step, before its update. Losses in nats per byte: `train_loss` the mean since the last probe, NaN at the first;
    `validation_loss` NaN where the recipe does not ask for it."""

    step: int
    train_loss: float
    validation_loss: float
    values: dict[str, np.ndarray]  # quantity -> float32 [layer, head]
    bound: np.ndarray  # float32 [layer]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """`patterns` uint8 [layer, head, query_pos, key_pos]: 255 * weight, rounded, of the first text that is probed."""

    step: int
    patterns: np.ndarray


@dataclass(frozen=True)
class HeldOut:
    """The validation sequences of a run, spread evenly over the held-out text."""

    corpus: Corpus
    recipe: Recipe

    @cached_property
    def sequences(self) -> Tensor:
        """int64 [sequence, pos + 1]."""
        context, text = self.recipe.context, self.corpus.validation
        return windows(text, torch.linspace(0, len(text) - context - 1, self.recipe.validation_sequences).long(), context + 1)

    @property
    def probed(self) -> Tensor:
        """int64 [sequence, pos]: the first of them."""
        return self.sequences[:PROBED, :-1]

    @property
    def shown(self) -> Tensor:
        """int64 [pos]: the text whose patterns are kept."""
        return self.probed[0, :SHOWN]

    def probe(self, model: Decoder, step: int, train_loss: float) -> Probe:
        loss = validation_loss(model, self.sequences) if self.recipe.validates(step) else float("nan")
        return Probe(step, train_loss, loss, probe(model, self.probed), bound(model, self.recipe.context))

    def snapshot(self, model: Decoder, step: int) -> Snapshot:
        """Heads that a layer does not have stay empty."""
        names = [f"blocks.{i}.attn.hook_pattern" for i in range(model.config.n_layers)]
        found = capture(model, self.shown[None], taps=names)[1]
        heads, pos = max(found[name].shape[1] for name in names), len(self.shown)
        patterns = np.zeros((len(names), heads, pos, pos), np.uint8)
        for i, name in enumerate(names):
            weight = found[name][0].nan_to_num(0.0).mul(255).round().byte()
            patterns[i, : len(weight)] = weight.numpy()
        return Snapshot(step, patterns)


def windows(text: Tensor, starts: Tensor, length: int) -> Tensor:
    """text [pos] uint8, starts [batch] -> int64 [batch, length]."""
    return text[starts[:, None] + torch.arange(length)].long()


@torch.no_grad()
def validation_loss(model: Decoder, tokens: Tensor) -> float:
    """tokens [batch, pos + 1] -> mean cross-entropy, nats per byte."""
    sums = [F.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten(), reduction="sum") for t in tokens.split(BATCH)]
    return float(torch.stack(sums).sum()) / tokens[:, 1:].numel()
