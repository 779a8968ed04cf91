"""A model with parts changed: the same weights wherever both have them, in the same memory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from model.errors import BlockscopeError
from model.surgery import change
from model.weights import seeded

if TYPE_CHECKING:
    from model.run import LM


def variant(lm: "LM", changes: Mapping[str, str], layers: range | None) -> "LM":
    """`lm` as loaded with the parts named in model.surgery.CHANGES changed in `layers`; itself where that changes nothing."""
    config = change(lm.config, changes, layers)
    if config == lm.config:
        return lm
    net = config.build_empty()
    new = {name: tuple(p.shape) for name, p in net.named_parameters()}
    old = {name: tuple(p.shape) for name, p in lm.net.named_parameters()}
    invented = sorted(name for name, shape in new.items() if old.get(name) != shape)
    for name in () if lm.random else invented:
        if name in old and len(new[name]) > 1:
            raise BlockscopeError(
                f"{name} is {list(old[name])} in these weights and would have to be {list(new[name])}: "
                "choose a preset, whose random weights can be drawn in any shape"
            )
    return type(lm)(
        config, lm.store.derive(invented, lm.store.source if lm.random else seeded), name=lm.name, source=lm.source,
        tokenizer=lm.tokenizer, report=lm.report, invented=invented, original=lm, net=net,
        which=f"{layers}:{sorted(changes.items())}",
    )  # fmt: skip
