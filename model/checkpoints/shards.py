"""The weight files of a folder: one, or shards placed by an index. Which files count is settled before any tensor is read."""

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

from model.checkpoints.fields import listed, read_json, shown
from model.checkpoints.foreign import TORCH, by_name
from model.checkpoints.header import read_header
from model.checkpoints.sources import Source
from model.errors import BlockscopeError
from model.files import has

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_INDEX = 64 << 20  # bytes
PICKLES = ("*.bin", "*.pth", "*.pt", "*.ckpt", "*.pkl")


def find_weights(path: Path, name: str) -> tuple[dict[str, Source], list[str]]:
    """Every tensor of the model's files by its name there. The index, where there is one, decides which files count."""
    present = sorted(p.name for p in path.glob("*.safetensors"))
    if has(path, INDEX):
        placed = _read_index(path, name)
        shards = sorted(set(placed.values()))
        found = _read_shards(path, name, placed, shards)
    elif has(path, WEIGHTS):
        shards = [WEIGHTS]
        found = tensors_of(path / WEIGHTS)
    else:
        raise BlockscopeError(_no_weights(path, name, present))
    ignored = [file for file in present if file not in shards]
    return found, [f"weight files that are not part of the model are not read: {listed(ignored)}"] if ignored else []


def tensors_of(file: Path) -> dict[str, Source]:
    """Every tensor of one safetensors file by its name there."""
    return {key: Source(file, key, entry.dtype, entry.shape) for key, entry in read_header(file).items()}


def _no_weights(path: Path, name: str, present: list[str]) -> str:
    if present:
        if any("-of-" in file for file in present):
            return f"{name} has {listed(present)} but no {INDEX} that says what they hold; download it too"
        which = "the file itself" if len(present) == 1 else "one of them"
        return f"{name} has {listed(present)} but no {WEIGHTS}; name {which} to open it"
    if pickles := [p.name for pattern in PICKLES for p in sorted(path.glob(pattern))]:
        return f"{name} has its weights as {listed(pickles)}: pickles, each of which {TORCH}"
    if ggufs := [p.name for p in sorted(path.glob("*.gguf"))]:
        return f"{name} has {listed(ggufs)} but no {WEIGHTS}; name the GGUF file itself to open it"
    if others := [p for p in sorted(path.iterdir()) if by_name(p) and p.is_file()]:
        return f"{name} has no {WEIGHTS}: {others[0].name} {by_name(others[0])}"
    return f"{name} has no weights: expected {WEIGHTS} or {INDEX} with its shards; download them"


def _read_index(path: Path, name: str) -> dict[str, str]:
    """weight_map of the index: tensor name -> shard, each a file name inside the folder."""
    placed = read_json(path / INDEX, LARGEST_INDEX).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise BlockscopeError(
            f"{name}/{INDEX}: weight_map is {shown(placed)}; expected tensor names and their shards: download the index again"
        )
    for shard in set(placed.values()) if all(isinstance(v, str) for v in placed.values()) else [None]:
        if shard is None:
            raise BlockscopeError(f"{name}/{INDEX}: weight_map must name a file for every tensor; download it again")
        inside = not (PurePosixPath(shard).is_absolute() or PureWindowsPath(shard).anchor)
        if not inside or ".." in PureWindowsPath(shard).parts or not shard.strip() or "\0" in shard:
            raise BlockscopeError(
                f"{name}/{INDEX} names {shown(shard)}, which leaves the folder and is not opened; download the index again"
            )
        if not shard.endswith(".safetensors"):
            raise BlockscopeError(
                f"{name}/{INDEX} names {shown(shard)}; expected .safetensors files: convert the weights to those"
            )
    return placed


def _read_shards(path: Path, name: str, placed: dict[str, str], shards: list[str]) -> dict[str, Source]:
    if absent := [shard for shard in shards if not os.path.lexists(path / shard)]:
        lost = sum(shard in absent for shard in placed.values())
        raise BlockscopeError(
            f"{name} lacks {len(absent)} of its {len(shards)} shards ({listed(absent)}), which hold {lost} of "
            f"{len(placed)} tensors; download the missing files"
        )
    headers = {shard: read_header(path / shard) for shard in shards}
    holders: dict[str, list[str]] = {}
    for shard, entries in headers.items():
        for key in entries:
            holders.setdefault(key, []).append(shard)
    index = f"{name}/{INDEX}"
    for key, having in holders.items():
        if len(having) > 1:
            raise BlockscopeError(f"{name}: {key} is in two shards, {having[0]} and {having[1]}; keep one of the two")
        if key not in placed:
            raise BlockscopeError(f"{index} does not list {key}, which is in {having[0]}; correct the index")
        if placed[key] != having[0]:
            raise BlockscopeError(f"{index} says that {key} is in {placed[key]}, but {having[0]} has it; correct the index")
    if lost := [key for key in placed if key not in holders]:
        raise BlockscopeError(f"{index} says that {lost[0]} is in {placed[lost[0]]}, but no shard has it; download again")
    return {
        key: Source(path / shard, key, entry.dtype, entry.shape)
        for shard, entries in headers.items()
        for key, entry in entries.items()
    }
