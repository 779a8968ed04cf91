"""Pages of mapped files: asked for before they are read, and given back once they have been copied.

A page that was touched stays in this process's resident memory until the system needs it elsewhere. A checkpoint that streams
through would count whole, so what has been copied is handed back at once; reading it again costs a page fault, no disk.
Linux only: elsewhere nothing is known about pages, nothing is handed back and the numbers are the same.
"""

import ctypes
import errno
import mmap
from functools import cache
from pathlib import Path

from torch import Tensor

from model.halting import check

MAPS = Path("/proc/self/maps")
WILLNEED, DONTNEED, POPULATE_READ = 3, 4, 22  # linux/mman.h; the last since Linux 5.14
CHUNK = 8 << 20  # bytes copied at a time: small against any cache bound, large against a system call
AHEAD = 4 * CHUNK  # bytes that a disk is asked for before they are waited for


def mapped(x: Tensor) -> bool:
    """Whether the memory of x is the pages of a file. Only these can be handed back: any other memory would be lost."""
    if not MAPS.exists() or x.device.type != "cpu" or not x.numel():
        return False
    first, last = _ends(x)
    with MAPS.open() as lines:
        for line in lines:
            span, _, _, _, inode, *_ = line.split(None, 5)
            low, high = (int(end, 16) for end in span.split("-"))
            if low <= first < high:
                return inode != "0" and last <= high
    return False


def wanted(x: Tensor) -> None:
    """Have the system read the pages of x, which is `mapped`, from the disk in the background."""
    _advise(x, WILLNEED)


def fetch(x: Tensor) -> None:
    """Wait until the pages of x, which is `mapped`, are in memory and at hand: whoever uses them next meets no page fault."""
    first, last = _within(x)
    _madvise(first, min(AHEAD, last - first), WILLNEED)
    for at in range(first, last, CHUNK):
        check()
        _madvise(at + AHEAD, min(CHUNK, last - at - AHEAD), WILLNEED)
        if _madvise(at, min(CHUNK, last - at), POPULATE_READ):
            if ctypes.get_errno() == errno.EFAULT:
                raise OSError(errno.EFAULT, "the file was cut while it was open")
            return wanted(x)  # an old kernel: the pages come when they are used


def drop(x: Tensor) -> None:
    """Hand the pages of x, which is `mapped`, back; its values are read from the file when they are needed again."""
    _advise(x, DONTNEED)


def copy(value: Tensor, out: Tensor) -> Tensor:
    """out[:] = value, in another dtype where they differ, a stretch at a time so that no more of a file is ever resident."""
    if not mapped(value):
        return out.copy_(value)
    if not value.is_contiguous():
        out.copy_(value)
        drop(value)
        return out
    source, target, step = value.view(-1), out.view(-1), CHUNK // value.itemsize
    wanted(source[: AHEAD // value.itemsize])
    for i in range(0, source.numel(), step):
        check()
        wanted(source[i + AHEAD // value.itemsize : i + AHEAD // value.itemsize + step])
        piece = source[i : i + step]
        target[i : i + step].copy_(piece)
        drop(piece)
    return out


def _ends(x: Tensor) -> tuple[int, int]:
    """Addresses of the first byte of x and of the first one behind it."""
    span = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True)) + 1
    return x.data_ptr(), x.data_ptr() + span * x.itemsize


def _within(x: Tensor) -> tuple[int, int]:
    """Addresses of the whole pages of x."""
    first, last = _ends(x) if x.numel() else (0, 0)
    return -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, last // mmap.PAGESIZE * mmap.PAGESIZE


def _advise(x: Tensor, advice: int) -> None:
    first, last = _within(x)
    _madvise(first, last - first, advice)


def _madvise(first: int, size: int, advice: int) -> int:
    return _libc().madvise(first, size, advice) if size > 0 else 0


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
