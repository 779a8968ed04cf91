"""The way of a weight from its file to the device where it is used."""

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor

from model.buffers import SMALL, Buffers
from model.pages import copy, drop, mapped, wanted

STAGING = 64 << 20  # bytes of each of the two pinned buffers


class Lane:
    """To memory of this machine, or to a device without streams: what was sent has arrived."""

    def __init__(self, device: torch.device, buffers: Buffers):
        self.device, self.buffers = device, buffers

    def send(self, value: Tensor, dtype: torch.dtype) -> Tensor:
        """value on the CPU -> the same on the device in `dtype`. A value that needs no copy is handed on as it is."""
        if self.device.type != "cpu" or value.dtype == dtype or value.nbytes < SMALL or not value.is_contiguous():
            moved = value.to(self.device, dtype)
            if mapped(value) and moved.data_ptr() != value.data_ptr():
                drop(value)
            return moved
        return copy(value, self.buffers.take(tuple(value.shape), dtype))

    def meet(self, weights: Iterable[Tensor]) -> None:
        """What is computed from here on may use these weights."""


class SideLane(Lane):
    """To a CUDA device on a stream of its own, out of two pinned buffers in turn: while one travels the other is filled, and
    the device computes meanwhile. A weight travels in the dtype of its file and is converted on arrival."""

    def __init__(self, device: torch.device, buffers: Buffers):
        super().__init__(device, buffers)
        self.stream = torch.cuda.Stream(device)
        self.latest = torch.cuda.Event()
        self._staging = [torch.empty(STAGING, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._free = [torch.cuda.Event() for _ in range(2)]  # reached when the buffer's bytes have left it

    def send(self, value: Tensor, dtype: torch.dtype) -> Tensor:
        from_file, flat = mapped(value), value.contiguous().view(-1).view(torch.uint8)
        with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            there = torch.empty(flat.shape, dtype=torch.uint8, device=self.device)
            if from_file:
                wanted(value)
            for turn, start in zip(itertools.cycle((0, 1)), range(0, len(flat), STAGING)):
                piece = flat[start : start + STAGING]
                self._free[turn].synchronize()
                staged = self._staging[turn][: len(piece)]
                staged.copy_(piece)
                there[start : start + len(piece)].copy_(staged, non_blocking=True)
                self._free[turn].record(self.stream)
            arrived = there.view(value.dtype).view(value.shape).to(dtype)
            self.latest.record(self.stream)
        if from_file:
            drop(value)
        return arrived

    def meet(self, weights: Iterable[Tensor]) -> None:
        now = torch.cuda.current_stream(self.device)
        now.wait_event(self.latest)
        for weight in weights:
            weight.data.record_stream(now)  # its memory is not handed out again while this stream may read it


def lane(device: torch.device, buffers: Buffers) -> Lane:
    return (SideLane if device.type == "cuda" else Lane)(device, buffers)
