"""The header of a safetensors file, checked against the file before a byte of any tensor is read.

    8 bytes: length n of the header | n bytes: JSON {name: {dtype, shape, data_offsets}} | the tensors, end to end

Every fault is a sentence about the file: what it is instead, how many bytes are missing, what to do.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from model.checkpoints.fields import shown
from model.checkpoints.foreign import foreign
from model.errors import BlockscopeError
from model.files import ordinary, readable

LARGEST_HEADER = 100_000_000  # bytes; the format's own limit
BITS = {  # of one element
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One tensor as its header describes it; `begin` and `end` count bytes from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, Entry]:
    """Every tensor of the file by name, its bytes known to lie in the file; otherwise one sentence naming the file."""
    name = f"{path.parent.name}/{path.name}"
    again = "download the file again"

    def fail(sentence: str) -> BlockscopeError:
        return BlockscopeError(f"{name} {sentence}")

    size = ordinary(path, name)
    if size == 0:
        raise fail(f"is empty; {again}")
    with readable(name), path.open("rb") as file:
        start = file.read(300)
        if sentence := foreign(path, start):
            raise fail(sentence)
        if size < 10:
            raise fail(f"is {size} bytes, too short for a safetensors file; {again}")
        length = int.from_bytes(start[:8], "little")
        if length > LARGEST_HEADER:
            raise fail(f"is not a safetensors file: it claims a header of {length:,} bytes; {again}")
        if 8 + length > size:
            raise fail(f"is cut short: its header alone needs {8 + length:,} bytes and it has {size:,}; {again}")
        file.seek(8)
        text = file.read(length)
    raw = _parse(text, fail)
    raw.pop("__metadata__", None)
    if not raw:
        raise fail("holds no tensors; download the file again")
    entries = {key: _entry(key, value, fail) for key, value in raw.items()}
    _check_layout(entries, size - 8 - length, fail)
    return entries


def _parse(text: bytes, fail) -> dict:
    def pairs(items: list[tuple[str, object]]) -> dict:
        seen = {}
        for key, value in items:
            if key in seen:
                raise fail(f"names {shown(key)} twice; it is damaged: save or download it again")
            seen[key] = value
        return seen

    try:
        raw = json.loads(text.decode("utf-8"), object_pairs_hook=pairs)
    except BlockscopeError:
        raise
    except (ValueError, RecursionError):  # also undecodable text
        raise fail("is not a safetensors file: its header is not JSON; download the file again") from None
    if not isinstance(raw, dict):
        raise fail("is not a safetensors file: its header is not an object; download the file again")
    return raw


def _entry(key: str, value: object, fail) -> Entry:
    match value:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if all(
            type(n) is int and n >= 0 for n in (*shape, begin, end)
        ):
            pass
        case _:
            raise fail(
                f"describes {shown(key)} as {shown(value)}; expected dtype, shape, data_offsets: download the file again"
            )
    if dtype not in BITS:
        raise fail(
            f"stores {shown(key)} as {shown(dtype)}, a number format that is not known here; save the model in bfloat16 first"
        )
    needed = math.prod(shape) * BITS[dtype]  # Python's integers do not overflow
    if needed % 8 or needed // 8 != end - begin:
        raise fail(
            f"gives {shown(key)} {end - begin:,} bytes, but shape {shown(shape)} of {dtype} needs {-(-needed // 8):,}; "
            "it is damaged: download it again"
        )
    return Entry(dtype, tuple(shape), begin, end)


def _check_layout(entries: dict[str, Entry], room: int, fail) -> None:
    """Tensors must fill the body end to end: no gap, no overlap, nothing after the last."""
    reached, before = 0, "the header"
    for key, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != reached:
            kind = "overlaps" if entry.begin < reached else "leaves a gap after"
            raise fail(f"is damaged: {shown(key)} {kind} {before}; download the file again")
        reached, before = entry.end, shown(key)
    if reached > room:
        raise fail(f"is {reached - room:,} bytes short; download the file again")
    if reached < room:
        raise fail(f"has {room - reached:,} bytes after its last tensor; download the file again")
