"""Tensors of a GGUF file, each expanded from its quantised blocks when it is read."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from torch import Tensor

from model.checkpoints.gguf.header import Entry, Header, read_header
from model.checkpoints.sources import Source
from model.halting import check

AT_ONCE = 1 << 20  # elements that are expanded together: what a cache holds is expanded fastest
PLAIN = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<i2"}  # stored as numbers, not in blocks


@cache
def reads(form: str) -> str:
    """The number format that reading a tensor of this format gives; "" where the gguf package cannot expand it."""
    if form in PLAIN:
        return form
    kind = GGMLQuantizationType[form]
    try:
        quants.dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return ""
    return "F32"


class Weights:
    """An open file."""

    def __init__(self, file: Path, header: Header | None = None):
        self._entries = (header or read_header(file)).tensors
        self._bytes = np.memmap(file, mode="c")  # copy on write: torch wants memory that it could write to

    def get_tensor(self, name: str) -> Tensor:
        """A plain tensor is mapped; a quantised one is fp32, its scales applied."""
        entry = self._entries[name]
        raw = self._bytes[entry.begin : entry.begin + entry.bytes]
        if entry.format in PLAIN:
            whole = torch.from_numpy(raw.view(PLAIN[entry.format]))
            return (whole.view(torch.bfloat16) if entry.format == "BF16" else whole).reshape(entry.shape)
        return expand(raw, entry)


def expand(raw: np.ndarray, entry: Entry) -> Tensor:
    """Quantised bytes -> fp32, some rows at a time."""
    kind, width = GGMLQuantizationType[entry.format], entry.shape[-1]
    rows = raw.reshape(-1, entry.bytes // (np.prod(entry.shape, dtype=np.int64) // width))
    out = torch.empty(len(rows), width)
    step = max(AT_ONCE // width, 1)
    for i in range(0, len(rows), step):
        check()
        out[i : i + step] = torch.from_numpy(quants.dequantize(rows[i : i + step], kind))
    return out.reshape(entry.shape)


def sources(file: Path, header: Header) -> dict[str, Source]:
    """Every tensor of the file by its name there."""
    return {
        name: Source(file, name, entry.format, entry.shape, reads(entry.format) or entry.format, Weights)
        for name, entry in header.tensors.items()
    }
