"""How much memory weights may take: what a person asked for, else half of what is free on the device."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from model.counting import count_config
from model.errors import BlockscopeError, TooLarge
from model.lm import Decoder
from model.placement import Homes, placement

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
SHARE = 0.5  # of what is free, where nobody said how much


@dataclass(frozen=True)
class Bound:
    """`kept`: bytes of weights that stay in memory between uses; `block`: bytes of the largest block, which is there while it
    runs, as is the next one, whose weights are on their way."""

    kept: int
    block: int


def parse(size: int | str) -> int:
    """4000000000, "4GB", "4 GiB", "800M" -> bytes."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", str(size).upper())
    if not found or not float(found[1]):
        raise BlockscopeError(f"memory must be a size such as 4GB or 800MB, got {str(size)[:40]!r}")
    return int(float(found[1]) * UNITS[found[2] or ""])


def bound(memory: int | str | None, config: Decoder.Config, device: torch.device, dtype: torch.dtype) -> Bound | None:
    """None where all of the model fits, so that nothing ever has to go."""
    limit = parse(memory) if memory is not None else int(free(device) * SHARE)
    found = count_config(config)
    if found.weight_bytes(dtype.itemsize) <= limit:
        return None
    return Bound(limit, dtype.itemsize * max(block.parameters for block in found.by_block))


def settle(
    memory: int | str | None, config: Decoder.Config, devices: Sequence[torch.device], dtype: torch.dtype, spread: bool
) -> tuple[Homes, Bound | None]:
    """Where each stage lives, and what bounds the weights that stay.

    `spread`: over all devices, which must hold the model; else it stays on the first where it fits or where no others help, and
    there it streams through what does not fit.
    """
    limit = bound(memory, config, devices[0], dtype)
    if len(devices) == 1 or (not spread and (limit is None or memory is not None)):
        return Homes((devices[0],)), limit
    if memory is not None:
        raise BlockscopeError("memory bounds a model that streams through one device; name one device, or leave memory out")
    rooms = [int(free(device) * SHARE) for device in devices]
    try:
        return Homes(tuple(devices), tuple(placement(stage_bytes(config, dtype), rooms)), config.tied), None
    except TooLarge as error:
        if not spread:
            return Homes((devices[0],)), limit
        raise TooLarge(f"{error}: name a single device, through which any model streams") from None


def stage_bytes(config: Decoder.Config, dtype: torch.dtype) -> list[int]:
    """Of the weights of each stage: the embedding, every block, final norm with logits."""
    found = count_config(config)
    blocks = [block.parameters for block in found.by_block]
    start = found.by_part["embedding"] + found.by_part.get("positions", 0)
    return [dtype.itemsize * n for n in (start, *blocks, found.parameters - start - sum(blocks))]


def free(device: torch.device) -> int:
    """Bytes that can be allocated there without driving anything out."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    about = Path("/proc/meminfo")
    if about.exists() and (found := re.search(r"MemAvailable:\s+(\d+) kB", about.read_text())):
        return int(found[1]) << 10
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 8 << 30
