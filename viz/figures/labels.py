"""Text that goes into a picture. Plotly reads its labels as a tiny HTML, so every token and name passes through here."""

from dataclasses import dataclass

import numpy as np

TICKS = 40  # labels that an axis can carry without becoming a smear
TICKS_ACROSS = 16  # along the bottom, where each one stands askew and needs some 24 px of a narrow page
NUMBERED = 12  # entries up to which a plain index names every one


def escape(text: str) -> str:
    """Shown literally: `<s>` stays `<s>` and never becomes a strike-through or a forged hover."""
    printable = "".join(c if c.isprintable() else "�" for c in text)
    return printable.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def shorten(text: str, most: int = 14) -> str:
    """At most `most` characters, the cut marked."""
    return text if len(text) <= most else text[: most - 1] + "…"


def label(piece: str, position: int, most: int = 14) -> str:
    """One token as a tick label; a piece without any text is named by its position."""
    return escape(shorten(piece, most)) if piece else f"#{position}"


@dataclass(frozen=True)
class Axis:
    """One side of a heat map: the centre of every cell in original indices, the side's ends, and what its ticks say.

    `name` is what a hover calls an entry ("key", "neuron"); axes are numeric, so equal tokens stay different cells.
    """

    name: str
    centres: np.ndarray  # float32 [cells]
    ends: tuple[float, float]
    tickvals: np.ndarray | None = None  # None: plotly's own numeric ticks
    ticktext: list[str] | None = None
    title: str = ""

    @property
    def cells(self) -> int:
        return len(self.centres)


def centres(first: np.ndarray, total: int) -> np.ndarray:
    """Centres of blocks that start at the original indices `first` on an axis of `total` entries -> float32."""
    ends = np.append(first[1:], total)
    return ((first + ends - 1) / 2).astype(np.float32)


def ticks(pieces: list[str], most: int = TICKS) -> tuple[np.ndarray, list[str]]:
    """Positions and labels, thinned to at most `most`, always with the first."""
    step = max(1, -(-len(pieces) // most))
    at = np.arange(0, len(pieces), step, dtype=np.int32)
    return at, [label(pieces[i], int(i)) for i in at]


def token_axis(
    name: str, pieces: list[str], first: np.ndarray | None = None, most: int = TICKS, start: int = 0, stop: int | None = None
) -> Axis:  # fmt: skip
    """Tokens from `start` on, to before `stop`; `first` are the original positions at which the (pooled) cells start, default
    every token."""
    total = len(pieces) if stop is None else stop
    first = np.arange(start, total) if first is None else first
    at, text = ticks(pieces, most)
    if stop is not None:
        at = np.arange(start, stop, max(1, -(-(stop - start) // most)), dtype=np.int32)
        text = [label(pieces[i], int(i)) for i in at]
    keep = at >= start
    return Axis(
        name,
        centres(first, total),
        (start - 0.5, total - 0.5),
        at[keep],
        [t for t, k in zip(text, keep, strict=True) if k],
        name,
    )


def index_axis(name: str, total: int, first: np.ndarray | None = None) -> Axis:
    """A plain numbered axis (dims, neurons, pairs, layers), pooled where `first` says so."""
    first = np.arange(total) if first is None else first
    few = np.arange(total, dtype=np.int32) if total <= NUMBERED else None
    return Axis(name, centres(first, total), (-0.5, total - 0.5), few, None if few is None else [str(i) for i in few], name)
