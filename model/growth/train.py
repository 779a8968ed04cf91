"""One training run: a decoder on bytes, plain PyTorch, a record of loss and attention-logit size as it goes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.growth.corpus import Corpus
from model.lm import Decoder
from model.taps import Recorder, Tile, recording, select
from model.weights import seeded


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything besides architecture and corpus that decides a run.

    The learning rate warms up linearly and falls along a cosine to 5% of its peak `lr`.
    """

    steps: int
    batch: int
    context: int
    lr: float
    warmup: int
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    clip: float = 1.0
    z_loss: float = 1e-4
    seed: int = 0
    record_every: int = 25
    validation_sequences: int = 64

    def lr_factor(self, step: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Point:
    """What is recorded at one step; `max_logit[l]` is the largest visible |logit| of layer l on the probe sequences."""

    step: int
    train_loss: float  # mean over the steps since the last point, nats per byte
    validation_loss: float
    max_logit: tuple[float, ...]


def initialised(config: Decoder.Config, seed: int) -> Decoder:
    """A decoder whose every parameter is drawn from its own name: two arms share all weights that both have."""
    model = config.build()
    residual_scale = 1 / math.sqrt(2 * config.n_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(seeded(name, tuple(parameter.shape), seed, residual_scale))
    return model


def windows(text: Tensor, starts: Tensor, length: int) -> Tensor:
    """text [pos] uint8, starts [batch] -> int64 [batch, length]."""
    return text[starts[:, None] + torch.arange(length)].long()


@torch.no_grad()
def validation_loss(model: Decoder, tokens: Tensor) -> float:
    """tokens [batch, pos + 1] -> mean cross-entropy, nats per byte."""
    losses = [F.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()) for t in tokens.split(32)]
    return float(torch.stack(losses).mean())


@torch.no_grad()
def largest_logits(model: Decoder, tokens: Tensor) -> tuple[float, ...]:
    """tokens [batch, pos] -> per layer, the largest |scale * q . k| among entries that the mask lets through."""
    largest = [0.0] * model.config.n_layers

    def watcher(layer: int) -> Callable[[Tensor, Tile], None]:
        def watch(logits: Tensor, tile: Tile) -> None:
            largest[layer] = max(largest[layer], float(logits.masked_fill(~tile.visible, 0).abs().max()))

        return watch

    taps = select(model, [f"blocks.{i}.attn.hook_logits" for i in range(len(largest))])
    with recording(Recorder({tap: [watcher(i)] for i, tap in enumerate(taps.values())})):
        model(tokens)
    return tuple(largest)


def train(model: Decoder, corpus: Corpus, recipe: Recipe) -> Iterator[Point]:
    """Train `model` in place; yields a Point before the first step and after every `record_every` steps."""
    generator = torch.Generator().manual_seed(recipe.seed)
    held_out = torch.linspace(0, len(corpus.validation) - recipe.context - 1, recipe.validation_sequences).long()
    validation = windows(corpus.validation, held_out, recipe.context + 1)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": gains, "weight_decay": 0.0}],
        lr=recipe.lr, betas=recipe.betas, eps=recipe.eps,
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, recipe.lr_factor)
    losses: list[float] = []
    for step in range(recipe.steps + 1):
        if step % recipe.record_every == 0 or step == recipe.steps:
            mean = sum(losses) / len(losses) if losses else math.nan
            yield Point(step, mean, validation_loss(model, validation), largest_logits(model, validation[:8, :-1]))
            losses.clear()
        if step == recipe.steps:
            return
        starts = torch.randint(len(corpus.train) - recipe.context - 1, (recipe.batch,), generator=generator)
        tokens = windows(corpus.train, starts, recipe.context + 1)
        logits = model(tokens[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
        total = loss + recipe.z_loss * logits.logsumexp(-1).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
