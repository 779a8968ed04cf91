"""What people do against growing logits, each as a change of an arm: one line a fix."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from model.attention import Attention
from model.errors import BlockscopeError
from model.growth.arms import Arm
from model.norms import UnitRMSNorm
from model.surgery import change


@dataclass(frozen=True)
class Fix:
    """Arm -> Arm. `title` says in a phrase what is done."""

    title: str
    apply: Callable[[Arm], Arm]

    def __call__(self, arm: Arm) -> Arm:
        return self.apply(arm)


def part(title: str, **changes: str) -> Fix:
    """A part of every block changed, as Compare changes it (model.surgery.CHANGES)."""
    return Fix(title, lambda arm: replace(arm, config=change(arm.config, changes)))


def training(title: str, **changes) -> Fix:
    """Fields of the recipe changed."""
    return Fix(title, lambda arm: replace(arm, recipe=replace(arm.recipe, **changes)))


def unit_gains(arm: Arm) -> Arm:
    """QK-norm per head that has no gain: |q| = |k| = sqrt(d_head), so that no logit exceeds sqrt(d_head)."""
    config = change(arm.config, {"qk_norm": "head"})

    def without(attn: Attention.Config) -> Attention.Config:
        q, k = (UnitRMSNorm.Config(d=norm.d, eps=norm.eps) for norm in (attn.q_norm, attn.k_norm))
        return replace(attn, q_norm=q, k_norm=k)

    return replace(arm, config=replace(config, blocks=tuple(replace(b, attn=without(b.attn)) for b in config.blocks)))


def longer_warmup(arm: Arm) -> Arm:
    return replace(arm, recipe=replace(arm.recipe, warmup=max(1, arm.recipe.steps // 2)))


FIXES: dict[str, Fix] = {
    "qk-norm": part("QK-norm on each head, learned gain", qk_norm="head"),
    "qk-norm-projection": part("QK-norm over the whole projection, learned gain", qk_norm="projection"),
    "qk-norm-fixed": Fix("QK-norm on each head, gain fixed at 1", unit_gains),
    "softcap-50": part("soft-cap of 50 on the logits", softcap="50"),
    "qk-clip-100": training("QK-clip at 100", qk_clip=100.0),
    "qk-clip-20": training("QK-clip at 20", qk_clip=20.0),
    "no-clip": training("no gradient clipping", clip=None),
    "no-z-loss": training("no z-loss", z_loss=0.0),
    "decay-0.1": training("weight decay of 0.1, coupled to the learning rate", weight_decay=0.1, decay="coupled"),
    "warmup-half": Fix("warm-up over half of the steps", longer_warmup),
    "init-0.02": training("every matrix and the embedding start with std 0.02", init=0.02),
}


def fixed(arm: Arm, *names: str) -> Arm:
    """The arm with fixes of the table, in this order, named after them."""
    for name in names:
        if name not in FIXES:
            raise BlockscopeError(f"there is no fix {name!r}; there are {', '.join(FIXES)}")
        arm = FIXES[name](arm)
    return replace(arm, name="+".join(names)) if names else arm
