"""Scalars of a monitored run for TensorBoard."""

from pathlib import Path

import numpy as np

from model.errors import BlockscopeError

WORST = {"entropy": np.min, "overflow": np.sum}  # over the heads of a layer; of everything else the largest


class Board:
    """`attention/<quantity>/<layer>`: the largest of the layer's heads, of entropy the lowest, of overflow the sum."""

    def __init__(self, folder: str | Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise BlockscopeError("TensorBoard is not installed: pip install tensorboard, or leave out tensorboard=") from None
        self.writer = SummaryWriter(str(folder))

    def write(self, step: int, measured: dict[str, dict[str, np.ndarray]]) -> None:
        for layer, values in measured.items():
            for quantity, heads in values.items():
                self.writer.add_scalar(f"attention/{quantity}/{layer}", float(WORST.get(quantity, np.max)(heads)), step)

    def close(self) -> None:
        self.writer.close()
