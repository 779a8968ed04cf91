"""A right model made wrong, run, and compared: which tap shows it first."""

from collections.abc import Callable

import torch
from reference import difference
from torch import Tensor

from model.lm import Decoder
from model.mistakes import MISTAKES, Mistake
from model.taps import Collect, Recorder, recording, taps_of


def shown_in(*families: str) -> list:
    """(mistake, family) for every pair that the list claims to be shown."""
    return [(mistake, family) for mistake in MISTAKES for family in mistake.families if family in families]


def built(config: Decoder.Config, read: Callable[[str], Tensor], mistake: Mistake | None = None) -> Decoder:
    """The model of a config with its parameters from `read`, mistaken or not."""
    if mistake is not None:
        read, config = mistake.read(read, config), mistake.config(config)
    model = config.build()
    model.load_state_dict({name: read(name) for name in model.state_dict()})
    return model.eval()


@torch.no_grad()
def in_order(model: Decoder, ids: list[int]) -> dict[str, Tensor]:
    """Every tap of the model in the order in which the computation reaches them."""
    taps = taps_of(model)
    collect, order = {name: Collect(tap) for name, tap in taps.items()}, {}
    watchers = {tap: [collect[name], lambda x, tile, name=name: order.setdefault(name)] for name, tap in taps.items()}
    with recording(Recorder(watchers)):
        model(torch.tensor([ids]))
    return {name: collect[name].value for name in order}


def differing(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> list[str]:
    """Taps of both that differ, in the order of `ours`; another shape is a difference too."""

    def apart(name: str) -> bool:
        return ours[name].shape != theirs[name].shape or not difference(name, ours[name], theirs[name]).worst <= tolerance

    return [name for name in ours if name in theirs and apart(name)]
