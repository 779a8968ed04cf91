"""What leaves the model: a Request names a reduction, a View is its small, labelled, host-side answer.

Pages and figures know these two and nothing of torch. A View carries how it was made, so that a figure can print it.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Request:
    """Which tap, which axes are fixed (`select`), which are reduced away (`over`) and how, in at most `budget` elements.

    `batch` is always fixed at 0. `against` names a second tap of the same dims, for reducers of two tensors (cosine). `within`
    keeps a stretch of an axis, (("query_pos", 4096, 4224),) the entries 4096 to 4223; scores of other queries are not computed.
    """

    tap: str
    reducer: str = "values"
    over: tuple[str, ...] = ()
    select: tuple[tuple[str, int], ...] = ()
    budget: int = 16_384
    against: str | None = None
    within: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class Stats:
    """Counts and moments of the selected tensor before any pooling; moments over its finite, unmasked entries (fp32)."""

    count: int  # entries, masked ones included
    masked: int
    nan: int
    posinf: int
    neginf: int
    min: float
    max: float
    absmax: float
    mean: float
    rms: float

    @property
    def finite(self) -> int:
        return self.count - self.masked - self.nan - self.posinf - self.neginf


@dataclass(frozen=True)
class View:
    """A reduced tensor: `values` float32 with axes `dims`; `coords` says which original index each entry starts at."""

    tap: str
    values: np.ndarray
    dims: tuple[str, ...]
    coords: tuple[np.ndarray, ...]
    kind: str  # signed | positive | probability | index
    dtype: str  # of the tensor in the model, e.g. "float32"
    shape: tuple[int, ...]  # of the whole tensor in the model, batch included
    stats: Stats
    how: str  # "nothing pooled", "rms over d_model", ... printed under every figure
    masked: np.ndarray | None = field(default=None)  # same shape as values; True where a mask hides the entry

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(c.nbytes for c in self.coords) + (0 if self.masked is None else self.masked.nbytes)
