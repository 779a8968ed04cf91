"""A square of scores made ready to draw: without its first key where that is hidden, and small enough."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from model.view import View

MOST = 128  # cells a side of the large picture

Peak = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Square:
    """values [..., query, key], what is masked, the original index at which each row and column starts, how it came about."""

    values: np.ndarray
    masked: np.ndarray | None
    rows: np.ndarray
    columns: np.ndarray
    how: str
    start: int  # first position drawn
    hidden: str = ""  # which keys are left out


def square(view: View, divide: float, hide_first: bool) -> Square:
    """The view over `divide`; `hide_first` leaves out key 0, and query 0, which sees nothing else."""
    values, masked, how, start, hidden = view.values / np.float32(divide), view.masked, view.how, 0, ""
    rows, columns = view.coords[-2:]
    if hide_first and min(values.shape[-2:]) > 1:
        values, rows, columns = values[..., 1:, 1:], rows[1:], columns[1:]
        masked = None if masked is None else masked[..., 1:, 1:]
        start = int(columns[0])
        hidden = "key 0 hidden" if start == 1 else f"keys 0–{start - 1} (one block) hidden"
        how += f" · {hidden}"
    if values.ndim == 2 and max(values.shape) > MOST:
        step = -(-max(values.shape) // MOST)
        values, masked = _pool(values, masked, step, signed_peak if view.kind == "signed" else np.fmax.reduce)
        rows, columns = rows[::step], columns[::step]
        rest = how.removeprefix("nothing pooled")
        how = f"largest |x| of each {step} × {step}{rest if rest != how else f' of these: {how}'}"
    return Square(values, masked, rows, columns, how, start, hidden)


def signed_peak(values: np.ndarray, axis: int) -> np.ndarray:
    """The entry of largest |x| along `axis`, sign kept; NaN is passed over."""
    high, low = np.fmax.reduce(values, axis), np.fmin.reduce(values, axis)
    return np.where(np.abs(high) >= np.abs(low), high, low)


def _pool(values: np.ndarray, masked: np.ndarray | None, step: int, peak: Peak) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of step x step -> their peak; NaN that is not masked wins, a block is masked when all of it is."""
    hidden = np.zeros(values.shape, bool) if masked is None else masked
    x, hidden = _blocks(values, step, np.nan), _blocks(hidden, step, True)
    out = np.where((np.isnan(x) & ~hidden).any(-1), np.nan, peak(np.where(hidden, np.nan, x), -1))
    return out.astype(np.float32), hidden.all(-1)


def _blocks(x: np.ndarray, step: int, fill: float) -> np.ndarray:
    """[rows, columns] -> [blocks down, blocks across, entries of a block], filled up at the ends."""
    rows, columns = (-(-n // step) for n in x.shape)
    pad = [(0, n * step - size) for n, size in zip((rows, columns), x.shape, strict=True)]
    x = np.pad(x, pad, constant_values=fill).reshape(rows, step, columns, step)
    return x.swapaxes(1, 2).reshape(rows, columns, -1)


def thinned(values: np.ndarray, most: int, what: str) -> tuple[np.ndarray, np.ndarray, str]:
    """values [rows, n] -> the largest of every few columns [rows, <= most], where each stretch starts, how. NaN wins."""
    step = -(-values.shape[1] // most)
    first = np.arange(0, values.shape[1], step)
    if step == 1:
        return values, first, "nothing pooled"
    return np.maximum.reduceat(values, first, axis=1), first, f"largest of every {step} {what}"
