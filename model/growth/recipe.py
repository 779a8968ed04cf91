"""Everything besides architecture and corpus that decides a run."""

import math
from dataclasses import asdict, dataclass

from model.errors import BlockscopeError

DECAYS = ("coupled", "independent")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """AdamW; the learning rate warms up linearly over `warmup` steps and falls along a cosine to 5% of its peak `lr`.

    weight_decay: of matrices and embeddings, never of gains and biases. "coupled": a step takes lr(step) * weight_decay of a
    weight; "independent": it takes lr(step) / lr * weight_decay (Wortsman et al. 2023, arXiv 2309.14322).
    clip: largest norm of the gradient of all parameters together. z_loss: factor on the mean squared logsumexp of the logits.
    qk_clip: W_q and W_k of a head whose largest logit in the last batch was above this are scaled back to it.
    init: None, std 1/sqrt(fan_in) (model.weights.seeded), or one std for every matrix and embedding.
    """

    steps: int
    batch: int  # sequences a step
    context: int  # tokens a sequence
    lr: float
    warmup: int
    weight_decay: float
    decay: str = "coupled"
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    clip: float | None = 1.0
    z_loss: float = 1e-4
    qk_clip: float | None = None
    init: float | None = None
    seed: int = 0
    record_every: int = 25  # steps from one probe to the next
    validate_every: int | None = None  # steps from one validation loss to the next; None: at every probe
    validation_sequences: int = 64

    def __post_init__(self):
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, least, most in WHOLE:
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise BlockscopeError(f"{name} must be a whole number from {least} to {most:,}, got {value!r}")
        if not _number(self.lr) or not 0 < self.lr < math.inf:
            raise BlockscopeError(
                f"the learning rate must be a number above 0, got {self.lr!r}: 0.1 shows growth, 0.003 learns well"
            )
        for name in ("clip", "qk_clip", "init"):
            value = getattr(self, name)
            if value is not None and not (_number(value) and 0 < value < math.inf):
                raise BlockscopeError(f"{name} must be a number above 0, or absent, got {value!r}")
        for name in ("weight_decay", "z_loss", "eps"):
            if not _number(value := getattr(self, name)) or not 0 <= value < math.inf:
                raise BlockscopeError(f"{name} must be 0 or a number above it, got {value!r}")
        if len(self.betas) != 2 or not all(_number(beta) and 0 <= beta < 1 for beta in self.betas):
            raise BlockscopeError(f"betas must be two numbers from 0 to below 1, got {self.betas!r}")
        if self.decay not in DECAYS:
            raise BlockscopeError(f"decay must be one of {', '.join(DECAYS)}, got {self.decay!r}")
        if self.validate_every is not None and (self.validate_every < 1 or self.validate_every % self.record_every):
            raise BlockscopeError(
                f"validate_every must be a multiple of record_every ({self.record_every}), got {self.validate_every!r}"
            )

    def lr_factor(self, step: int) -> float:
        """What the peak learning rate is multiplied with in the update that follows `step` updates."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))

    def probes(self, step: int) -> bool:
        return step % self.record_every == 0 or step == self.steps

    def validates(self, step: int) -> bool:
        return step % (self.validate_every or self.record_every) == 0 or step == self.steps

    def values(self) -> dict:
        """Field -> value, as JSON holds it."""
        return {**asdict(self), "betas": list(self.betas)}


WHOLE = (
    ("steps", 1, 1_000_000),
    ("batch", 1, 4096),
    ("context", 2, 8192),
    ("warmup", 0, 1_000_000),
    ("seed", 0, 2**31 - 1),
    ("record_every", 1, 1_000_000),
    ("validation_sequences", 1, 4096),
)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
