"""One tensor of several sides, all in one colour range, and the difference, which has its own, centred on 0."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.figures.labels import Axis
from viz.figures.stack import Panel, Series, stack
from viz.theme import Theme

TALL, TICKS = 330, 14
LATER = {"light": ("#23845a", "#8348ad"), "dark": ("#5cc792", "#c594ee")}  # the third and fourth side, as in compare.css


@dataclass(frozen=True)
class Leaf:
    """One picture: values [rows, columns] or [entries], what is masked, its axes (tokens down), whether it is a difference."""

    title: str
    values: np.ndarray
    masked: np.ndarray | None
    axes: tuple[Axis, ...]
    difference: bool = False


def shade(theme: Theme, side: int) -> str:
    """The colour of A, B, C, D."""
    return (theme.a, theme.b, *LATER[theme.name])[side]


def maps(leaves: list[Leaf], kind: str, theme: Theme, *, log: bool, revision: str) -> list[tuple[go.Figure, str]]:
    """A figure a leaf and what its colours say; sides share one range, differences another. `kind`: of the sides, signed,
    probability or positive."""
    sides, changes = ([leaf.values.ravel() for leaf in leaves if leaf.difference is which] for which in (False, True))
    together = np.concatenate(sides)
    shared = {
        "signed": lambda: colours.signed(together, theme, log),
        "probability": lambda: colours.probability(theme, log),
    }.get(kind, lambda: colours.sequential(together, theme, log))()
    apart = colours.signed(np.concatenate(changes), theme, log) if changes else shared
    found = []
    for leaf in leaves:
        rows, columns = leaf.axes
        colour = apart if leaf.difference else shared
        drawn = matrix(
            leaf.values, rows, columns, colour, theme, revision=f"{revision}:{leaf.title}", masked=leaf.masked,
            inset=rows.name == "query" and columns.name == "key", unit=leaf.title, height=TALL,
        )  # fmt: skip
        found.append((drawn, colour.note))
    return found


def curves(leaves: list[Leaf], theme: Theme, *, revision: str) -> list[tuple[go.Figure, str]]:
    """Vectors: the sides over each other, and each difference beside them."""
    over = [leaf for leaf in leaves if not leaf.difference]
    longest = max((leaf.axes[0] for leaf in over), key=lambda axis: axis.ends[1])
    series = [Series(leaf.title, leaf.values, shade(theme, "ABCD".index(leaf.title)), at=leaf.axes[0].centres) for leaf in over]
    found = [(stack([Panel("", series)], longest, theme, revision=revision, height=260, legend=True), "")]
    for leaf in leaves:
        if leaf.difference:
            bars = Panel("", [Series(leaf.title, leaf.values, theme.faint, "bar")])
            found.append((stack([bars], leaf.axes[0], theme, revision=f"{revision}:{leaf.title}", height=260), ""))
    return found


def losses(
    loss: np.ndarray, kl: np.ndarray | None, letters: str, pieces: list[str], theme: Theme, *, revision: str,
    places: list[np.ndarray] | None = None,
) -> go.Figure:  # fmt: skip
    """loss [side, pos - 1] and kl [side, pos] in nats, over A's tokens; `places`: where each side's tokens stand on them."""
    places = places or [np.arange(len(pieces))] * len(letters)
    sides = [
        Series(c, loss[i, : len(at) - 1], shade(theme, i), at=at[1:])
        for i, (c, at) in enumerate(zip(letters, places, strict=True))
    ]
    panels = [Panel("loss, nats", sides)]
    if kl is not None:
        after = [Series(f"KL(A‖{c})", kl[i], shade(theme, i), keyed=False) for i, c in enumerate(letters) if i]
        panels.append(Panel("KL of the prediction after it, nats", after, share=0.7))
    side = labels.token_axis("token", pieces, most=labels.TICKS_ACROSS)
    return stack(panels, side, theme, revision=revision, height=300, legend=True)
