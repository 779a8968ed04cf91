"""The header of a GGUF file, checked against the file before a byte of any tensor is read.

    "GGUF" | version | number of tensors | number of settings
    settings: key, kind, value       kinds: numbers, booleans, strings, and arrays of these
    tensors:  name, dimensions (innermost first), format, offset
    padding to the alignment | the tensors, each padded to it

gguf.GGUFReader reads the same bytes one numpy view per string, which takes 13 s for a vocabulary of 262,144, and does not
end on an array that claims 2^60 entries; so the bytes are walked here, and formats and block sizes are taken from gguf.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from model.checkpoints.fields import shown
from model.errors import BlockscopeError
from model.files import ordinary, readable

MAGIC, VERSIONS, MOST_ENTRIES, MOST_AXES = b"GGUF", (2, 3), 1 << 24, 4
NUMBERS = {
    GGUFValueType.UINT8: "<u1", GGUFValueType.INT8: "<i1", GGUFValueType.UINT16: "<u2", GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4", GGUFValueType.INT32: "<i4", GGUFValueType.FLOAT32: "<f4", GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8", GGUFValueType.FLOAT64: "<f8", GGUFValueType.BOOL: "?",
}  # fmt: skip
AGAIN = "download the file again"
_CURE = {
    False: "convert the model anew with llama.cpp's convert_hf_to_gguf.py",
    True: "this is newer than Blockscope, which wants a file of version 3",
}


@dataclass(frozen=True)
class Entry:
    """One tensor: `begin` counts bytes from the start of the file; `shape` outermost axis first."""

    format: str
    shape: tuple[int, ...]
    begin: int
    bytes: int


@dataclass(frozen=True)
class Header:
    """Numeric arrays of settings are numpy arrays, arrays of strings are lists."""

    settings: Mapping[str, object]
    tensors: Mapping[str, Entry]


def read_header(path: Path) -> Header:
    """Everything but the tensors' own bytes, which are known to lie in the file; otherwise one sentence naming the file."""
    name = f"{path.parent.name}/{path.name}"
    if (size := ordinary(path, name)) < 24:
        raise BlockscopeError(f"{name} is {size} bytes, too short for a GGUF file; {AGAIN}")
    with readable(name), path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Walk(data, name).header()


class _Walk:
    """A position in the bytes; every step is checked against their end."""

    def __init__(self, data: mmap.mmap, name: str):
        self.data, self.name, self.at = data, name, 0

    def fail(self, sentence: str) -> BlockscopeError:
        return BlockscopeError(f"{self.name} {sentence}")

    def header(self) -> Header:
        if self.take(4) != MAGIC:
            raise self.fail(f"is not a GGUF file: it does not begin with GGUF; {AGAIN}")
        version = self.number("<I")
        if version not in VERSIONS:
            if version & 0xFFFF == 0:
                raise self.fail("is a GGUF file for big-endian machines; download the little-endian one")
            raise self.fail(
                f"is GGUF version {version}; those known here are {VERSIONS[0]} and {VERSIONS[1]}: {_CURE[version > 3]}"
            )
        tensors = self.number("<Q")
        settings = self._settings(self.count(self.number("<Q"), 8 + 1 + 4 + 1, "settings"))
        raw = [self._tensor() for _ in range(self.count(tensors, 8 + 1 + 4 + 8 + 4 + 8, "tensors"))]
        if not raw:
            raise self.fail(f"holds no tensors; {AGAIN}")
        return Header(settings, self._placed(raw, settings))

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise self.fail(f"is cut short: its header goes on past the {len(self.data):,} bytes that it has; {AGAIN}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, claimed: int, each: int, what: str) -> int:
        """A count that the file claims, if that many of `each` bytes fit into what is left of it."""
        if claimed > MOST_ENTRIES or claimed * each > len(self.data) - self.at:
            raise self.fail(f"is damaged: it claims {claimed:,} {what}, which do not fit into the file; {AGAIN}")
        return claimed

    def text(self, strict: bool = True) -> str:
        if (size := self.number("<Q")) > len(self.data) - self.at:
            raise self.beyond(size)
        raw = self.take(size)
        try:
            return raw.decode("utf-8", "strict" if strict else "replace")
        except UnicodeDecodeError:
            raise self.fail(f"is damaged: a name in it is not text; {AGAIN}") from None

    def _texts(self, count: int) -> list[str]:
        """A vocabulary: `text`, many times over, without a call for each."""
        data, at, end, found = self.data, self.at, len(self.data), []
        for _ in range(count):
            size = int.from_bytes(data[at : at + 8], "little")
            if size > end - at - 8:
                raise self.beyond(size)
            found.append(data[at + 8 : at + 8 + size].decode("utf-8", "replace"))
            at += 8 + size
        self.at = at
        return found

    def beyond(self, claimed: int) -> BlockscopeError:
        return self.fail(f"is damaged: it claims a text of {claimed:,} bytes, more than the file has left; {AGAIN}")

    def _settings(self, count: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for _ in range(count):
            key = self.text()
            if key in found:
                raise self.fail(f"gives {shown(key)} twice; it is damaged: {AGAIN}")
            found[key] = self._value(key)
        return found

    def _value(self, key: str) -> object:
        kind = self._kind(key)
        if kind == GGUFValueType.STRING:
            return self.text(strict=False)
        if kind != GGUFValueType.ARRAY:
            return self._scalar(NUMBERS[kind])
        inner, length = self._kind(key), self.number("<Q")
        if inner == GGUFValueType.ARRAY:
            raise self.fail(f"gives {shown(key)} as an array of arrays, which no model's settings are; {AGAIN}")
        if inner == GGUFValueType.STRING:
            return self._texts(self.count(length, 8, f"entries in {shown(key)}"))
        form = np.dtype(NUMBERS[inner])
        length = self.count(length, form.itemsize, f"entries in {shown(key)}")
        return np.frombuffer(self.take(length * form.itemsize), form)

    def _kind(self, key: str) -> GGUFValueType:
        number = self.number("<I")
        if number not in GGUFValueType._value2member_map_:
            raise self.fail(f"gives {shown(key)} in the unknown kind {number}; it is damaged: {AGAIN}")
        return GGUFValueType(number)

    def _scalar(self, form: str) -> int | float | bool:
        """A float32 becomes the shortest decimal that names it: 1e-05, not 9.999999747378752e-06."""
        value = np.frombuffer(self.take(np.dtype(form).itemsize), form)[0]
        return float(str(value)) if form == "<f4" else value.item()

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """(name, shape outermost first, format, offset)."""
        name, axes = self.text(), self.number("<I")
        if not 1 <= axes <= MOST_AXES:
            raise self.fail(f"gives {shown(name)} {axes:,} axes; expected 1 to {MOST_AXES}: it is damaged: {AGAIN}")
        shape = struct.unpack(f"<{axes}Q", self.take(8 * axes))[::-1]
        return name, shape, self.number("<I"), self.number("<Q")

    def _placed(self, raw: list[tuple], settings: Mapping[str, object]) -> dict[str, Entry]:
        """Tensors by name. They must lie end to end but for padding: no gap, no overlap, all inside the file."""
        alignment = settings.get("general.alignment", 32)
        if type(alignment) is not int or alignment not in [1 << i for i in range(17)]:
            raise self.fail(f"has general.alignment {shown(alignment)}; expected a power of two up to 65,536: {AGAIN}")
        start = -(-self.at // alignment) * alignment
        entries: dict[str, Entry] = {}
        for name, shape, number, offset in raw:
            if name in entries:
                raise self.fail(f"names {shown(name)} twice; it is damaged: {AGAIN}")
            form, size = self._sized(name, shape, number)
            entries[name] = Entry(form, shape, start + offset, size)
        self._check_layout(entries, start, alignment)
        return entries

    def _check_layout(self, entries: Mapping[str, Entry], start: int, alignment: int) -> None:
        reached, before = start, "the header"
        for name, entry in sorted(entries.items(), key=lambda item: item[1].begin):
            if entry.begin != reached:
                kind = "overlaps" if entry.begin < reached else "leaves a gap after"
                raise self.fail(f"is damaged: {shown(name)} {kind} {before}; {AGAIN}")
            end, before = entry.begin + entry.bytes, shown(name)
            if end > len(self.data):
                raise self.fail(f"is cut short: {before} needs {end:,} bytes and the file has {len(self.data):,}; {AGAIN}")
            reached = -(-end // alignment) * alignment

    def _sized(self, name: str, shape: tuple[int, ...], number: int) -> tuple[str, int]:
        if number not in GGMLQuantizationType._value2member_map_:
            raise self.fail(
                f"stores {shown(name)} in format {number}, which is not known here; "
                "convert the file with llama.cpp's llama-quantize to Q8_0 or BF16"
            )
        kind = GGMLQuantizationType(number)
        block, size = GGML_QUANT_SIZES[kind]
        if not all(shape) or shape[-1] % block:
            raise self.fail(f"gives {shown(name)} shape {shown(list(shape))}, which {kind.name} cannot store; {AGAIN}")
        return kind.name, math.prod(shape) // block * size
