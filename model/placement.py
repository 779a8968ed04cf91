"""Which device holds which block, where there are several: in order, so that the stream crosses from one to the next once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from model.errors import TooLarge


@dataclass(frozen=True)
class Homes:
    """The devices of a model, and for every stage (the embedding, each block, final norm with logits) which of them it is on.

    Without `stages` there is one device, and everything on it.
    """

    devices: tuple[torch.device, ...]
    stages: tuple[int, ...] = ()
    tied: bool = False  # the logits come from the embedding's matrix, and so are made where that is

    def of_stage(self, stage: int) -> torch.device:
        """-1 embeds, 0..n-1 are the blocks, n gives the logits."""
        if not self.stages:
            return self.devices[0]
        last = len(self.stages) - 2
        return self.devices[self.stages[0 if stage == last and self.tied else stage + 1]]

    def of_parameter(self, name: str) -> torch.device:
        """By its path in the model."""
        part, _, rest = name.partition(".")
        if part == "blocks":
            return self.of_stage(int(rest.partition(".")[0]))
        return self.of_stage(-1 if part in ("embed", "positions") else len(self.stages) - 2)

    def __str__(self) -> str:
        return " + ".join(map(str, self.devices))


def placement(sizes: Sequence[int], capacities: Sequence[int]) -> list[int]:
    """Bytes of each block in order, bytes free on each device -> the device of each block, never a lower one than before.

    The fullest device is as empty as it can be, as a share of its capacity. Raises TooLarge where they do not fit in order.
    """
    if not sizes:
        return []
    low, high = 0.0, 1.0
    if (best := _within(sizes, capacities, high)) is None:
        room = ", ".join(f"{capacity:,}" for capacity in capacities)
        raise TooLarge(f"blocks of {sum(sizes):,} bytes do not fit in order on devices with {room} bytes")
    for _ in range(40):  # the share is found by halving: 40 steps are finer than a byte
        share = (low + high) / 2
        found = _within(sizes, capacities, share)
        low, high, best = (share, high, best) if found is None else (low, share, found)
    return best


def _within(sizes: Sequence[int], capacities: Sequence[int], share: float) -> list[int] | None:
    """Each device filled in turn up to this share of its capacity; None where some block is left over."""
    homes, device, used = [], 0, 0
    for size in sizes:
        while device < len(capacities) and used + size > share * capacities[device]:
            device, used = device + 1, 0
        if device == len(capacities):
            return None
        homes.append(device)
        used += size
    return homes
