"""Architectures that a CPU core trains in seconds to minutes, with the recipe that each is measured under."""

from dataclasses import dataclass

from model.growth.arms import Arm
from model.growth.recipe import Recipe
from model.lm import Decoder
from model.presets.llama import llama

VALIDATED = 4096  # bytes of held-out text, whatever the context: a fraction of a second a time


@dataclass(frozen=True)
class Size:
    """A Llama block on bytes without QK-norm: the arm that every fix starts from."""

    config: Decoder.Config
    batch: int
    steps: int
    title: str


def _size(layers: int, d: int, heads: int, d_mlp: int, context: int, batch: int, steps: int, title: str) -> Size:
    config = llama(layers, d, heads, heads // 2, d_mlp, 256, context, d_head=d // heads, eps=1e-6)
    return Size(config, batch, steps, title)


SIZES = {
    "M2": _size(2, 64, 4, 176, 64, 8, 300, "2 layers of 64, 0.13M parameters"),
    "S": _size(4, 64, 4, 176, 64, 16, 350, "4 layers of 64, 0.22M parameters"),
    "A": _size(4, 64, 4, 176, 128, 16, 350, "4 layers of 64, twice the context"),
    "C": _size(4, 128, 4, 344, 128, 8, 200, "4 layers of 128, 0.79M parameters"),
}


def recipe(
    *, lr: float, steps: int, batch: int, context: int, seed: int = 0, record_every: int = 10,
    validate_every: int | None = 50, **changes,
) -> Recipe:  # fmt: skip
    """The recipe of the stress runs: 10% of the steps warm up, independent weight decay of 1e-4, z-loss, clip at 1."""
    return Recipe(
        steps=steps, batch=batch, context=context, lr=lr, seed=seed, warmup=max(1, steps // 10), weight_decay=1e-4,
        decay="independent", record_every=record_every, validate_every=validate_every, **changes,
    )  # fmt: skip


def base_arm(size: str, *, lr: float, steps: int | None = None, seed: int = 0, name: str = "off", **changes) -> Arm:
    """The arm of `size` that nothing holds; `changes` are fields of its recipe."""
    found = SIZES[size]
    given = {"batch": found.batch, "context": found.config.context, **changes}
    given.setdefault("validation_sequences", max(8, VALIDATED // max(1, given["context"])))
    return Arm(name, found.config, recipe(lr=lr, steps=found.steps if steps is None else steps, seed=seed, **given))
