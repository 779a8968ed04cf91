"""A figure on its way to the browser: plain dicts as JSON, with plotly's own object behind it for whoever asks for more.

Building and checking plotly's object takes longer than many a picture's numbers, and the browser needs neither. Arrays
travel as base64, the form that plotly.js reads (https://plotly.com/python-api-reference, "typed array specification").
"""

import base64
from functools import cached_property

import numpy as np
import orjson
import plotly.graph_objects as go

SHORT = {
    "int8": "i1",
    "uint8": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "float32": "f4",
    "float64": "f8",
}


class Picture:
    """`data`: traces, `layout`: the layout, both as plotly.js has them. Everything that a go.Figure can is passed to one."""

    def __init__(self, data: list[dict], layout: dict):
        self._data, self._layout = data, layout
        self.height = int(layout["height"])

    @cached_property
    def figure(self) -> go.Figure:
        """plotly's object, checked by plotly; from now on it is the truth, so that a change made to it is drawn."""
        return go.Figure(data=self._data, layout=self._layout)

    def add_trace(self, trace: dict) -> None:
        """One more trace, drawn over the others."""
        if "figure" in self.__dict__:
            self.figure.add_trace(trace)
        else:
            self._data = [*self._data, trace]

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.figure, name)

    def to_json(self) -> str:
        if "figure" in self.__dict__:
            return self.figure.to_json()
        return orjson.dumps(
            {"data": self._data, "layout": self._layout}, default=_plain, option=orjson.OPT_NON_STR_KEYS
        ).decode()


def _plain(value: object) -> object:
    """What orjson has no word for: arrays and numpy's numbers."""
    if isinstance(value, np.ndarray) and value.ndim:
        return _packed(np.ascontiguousarray(value))
    if isinstance(value, np.ndarray | np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in a figure")


def _packed(array: np.ndarray) -> dict | list:
    wide, most = array.dtype in (np.int64, np.uint64), np.iinfo(np.int32)
    if wide and array.size and most.min <= array.min() and array.max() <= most.max:  # plotly.js has no 64-bit integers
        array = array.astype(np.int32)
    if (short := SHORT.get(array.dtype.name)) is None:
        return array.tolist()
    shape = {"shape": ", ".join(map(str, array.shape))} if array.ndim > 1 else {}
    return {"dtype": short, "bdata": base64.b64encode(array).decode("ascii")} | shape
