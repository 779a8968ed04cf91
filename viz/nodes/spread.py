"""How attention is spread: per head entropy, one-hot queries, the weight on key 0 and on a sink; what one query reads."""

import numpy as np

from model.view import Request, View
from viz.figures import labels
from viz.figures.stack import Panel, Series, stack
from viz.nodes import qk
from viz.nodes.card import WHOLE, Card, Scene, card, line, odd_values
from viz.theme import number

ONE_HOT = 0.99  # as in model.statistics: a query whose largest weight is above this reads one key
TOP = 8  # keys of a query that are named
PATTERN, SINK = "attn.hook_pattern", "attn.hook_sink"


def wanted(scene: Scene) -> dict[str, Request]:
    """The requests that `spread` needs, each from query tiles: none holds the square."""
    pattern, row = scene.tap(PATTERN), (("head", scene.head), ("query_pos", scene.pos))
    asked = {
        "most": Request(pattern, "max", ("key_pos",)),
        "first": Request(pattern, "sum", ("query_pos",), (("key_pos", 0),)),
        "row": Request(pattern, select=row, budget=max(WHOLE, len(scene.tokens))),
    }
    return asked | ({"sinks": Request(scene.tap(SINK), "sum", ("query_pos",))} if SINK in scene.block_taps else {})


def shares(scene: Scene, views: dict[str, View]) -> dict[str, np.ndarray]:
    """name -> [head]: means over the queries that see more than one key; NaN where none does."""
    several = qk.count_seen(scene, np.arange(len(scene.tokens))) > 1
    n, most = int(several.sum()), views["most"].values  # [head, query_pos]
    if not n:
        return {name: np.full(len(most), np.nan) for name in ("entropy", "one_hot", "first")}
    return {
        "entropy": views["entropy"].values[:, several].mean(1, dtype=np.float64),
        "one_hot": (most[:, several] > ONE_HOT).mean(1),
        "first": (views["first"].values - most[:, 0]) / n,  # query 0 sees key 0 alone
    }


def spread(scene: Scene, views: dict[str, View]) -> Card:
    """The same for every head, the chosen one in words, and the keys that the chosen query reads most."""
    found, h, theme = shares(scene, views), scene.head, scene.theme
    titles = {"entropy": "entropy, nats", "one_hot": f"queries with a weight above {ONE_HOT}", "first": "weight on key 0"}
    spans = {"entropy": None, "one_hot": (0, 1.02), "first": (0, 1.02)}
    panels = [Panel(titles[n], [Series(titles[n], x, theme.faint, "bar")], span=spans[n]) for n, x in found.items()]
    figure = stack(
        panels, labels.index_axis("head", scene.attn.n_heads), theme,
        revision=scene.key("spread"), height=320, selected=h, click=("head", "x"), legend=False,
    )  # fmt: skip
    said = lambda x: number(float(x)) if np.isfinite(x) else "one key only"  # noqa: E731
    rows = [(f"{titles[name]}, head {h}", said(x[h])) for name, x in found.items()]
    if "sinks" in views:
        rows.append(("taken by the sink, mean of all queries", said(views["sinks"].values[h] / len(scene.tokens))))
    weights = np.nan_to_num(views["row"].values, nan=-1.0)
    keys = np.argsort(-weights, kind="stable")[: min(TOP, int(qk.count_seen(scene, np.array([scene.pos]))[0]))]
    rows += [(f"{scene.token} reads key {k} “{scene.pieces[k]}”", number(float(weights[k]))) for k in keys]
    caption = line(
        f"{scene.tap(PATTERN)}, means over the queries that see more than one key",
        "from query tiles, nothing pooled",
        f"the {len(keys)} keys that this query reads most",
        *odd_values(views["most"].values),
        "a click opens a head",
    )
    return card("spread", "Attention statistics", caption, figure, rows)
