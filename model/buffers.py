"""Host memory for weights that is used again: the kernel zeroes every fresh page, which costs more than reading the weights.

A buffer comes back when the last tensor that looks into it is gone, whoever holds one; it is then handed out for the next
tensor of that size. So blocks that stream through a bounded memory are written into the pages of those that left.
"""

import ctypes
import mmap
import weakref
from collections import defaultdict, deque

import torch
from torch import Tensor

PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # Windows has no flags
SMALL = 1 << 20  # bytes; smaller tensors come from the ordinary allocator


class Buffers:
    """`take` gives uninitialised tensors; at most `spare` bytes lie ready to be used again."""

    def __init__(self, spare: int):
        self.spare = spare
        self._free: dict[int, deque[mmap.mmap]] = defaultdict(deque)

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        size = dtype.itemsize * torch.Size(shape).numel()
        if size < SMALL:
            return torch.empty(shape, dtype=dtype)
        free = self._free[size]
        try:
            memory = free.pop()
        except IndexError:
            memory = mmap.mmap(-1, size, **PRIVATE)
            if hasattr(mmap, "MADV_HUGEPAGE"):  # zeroed 512 times faster than page by page
                memory.madvise(mmap.MADV_HUGEPAGE)
        # torch holds on to this object for as long as any tensor has the storage
        lent = (ctypes.c_char * size).from_buffer(memory)
        weakref.finalize(lent, self._back, memory, size).atexit = False
        return torch.frombuffer(lent, dtype=dtype).view(shape)

    @property
    def nbytes(self) -> int:
        """What lies ready."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def _back(self, memory: mmap.mmap, size: int) -> None:
        """May run in any thread, inside any other call: only operations that are whole in themselves."""
        if self.nbytes + size <= self.spare:
            self._free[size].append(memory)
