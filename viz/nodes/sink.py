"""The attention sink: the share of each query's attention that goes to no key at all."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.figures.stack import Panel, Series, stack
from viz.nodes.card import WHOLE, Asking, Card, Scene, card, line, odd_values, short
from viz.nodes.square import thinned
from viz.theme import count, number


def sink(scene: Scene, name: str) -> Asking:
    """Cards of the share that the sink of every head takes, query by query."""
    view = (yield {"share": Request(scene.tap(name), budget=WHOLE)})["share"]
    return [shares(scene, view), by_head(scene, view), facts(scene, view)]


def shares(scene: Scene, view: View) -> Card:
    """Heads x queries."""
    heads, n = view.values.shape
    drawn, first, how = thinned(view.values, 256, "queries")
    rows = labels.index_axis("head", heads)
    columns = labels.token_axis("query", scene.pieces, first, labels.TICKS_ACROSS)
    colour = colours.probability(scene.theme, scene.log)
    figure = matrix(
        drawn, rows, columns, colour, scene.theme, revision=scene.key("sink"), unit="share", row=scene.head,
        click=("head", "y"), height=120 + min(max(26 * heads, 90), 420),
    )  # fmt: skip
    caption = line(
        f"{view.tap} = exp(sink) / (exp(sink) + Σ exp(score)), {short(view.dtype)}",
        f"{heads} × {n}, {how}",
        "always 0 to 1" if not scene.log else colour.note,
        "a row opens its head",
        *odd_values(view.values),
    )
    return card("sink", f"What the sink takes · layer {scene.layer}", caption, figure, role="main")


def by_head(scene: Scene, view: View) -> Card:
    """The mean share of each head, and the largest and smallest of a query."""
    theme, values = scene.theme, view.values
    series = [Series("mean over queries", values.mean(1), theme.faint, "bar")]
    series.append(Series("most of a query", values.max(1), theme.secondary, "dots"))
    series.append(Series("least", values.min(1), theme.b, "dots"))
    figure = stack(
        [Panel("share", series, span=(0, 1.02))], labels.index_axis("head", len(values)), theme,
        revision=scene.key("sink-heads"), height=240, selected=scene.head, click=("head", "x"), legend=True,
    )  # fmt: skip
    over = count(len(scene.tokens), "query", "queries")
    caption = line(f"{view.tap}, over {over}", "a click opens a head", *odd_values(values))
    return card("sink-heads", "Share by head", caption, figure)


def facts(scene: Scene, view: View) -> Card:
    """The chosen head in numbers, with its learned logit."""
    own, pos = view.values[scene.head], scene.pos
    logit = scene.lm.parameter(scene.tap("attn.softmax.weight"))[scene.head]
    rows = [
        ("learned logit of the sink", number(float(logit))),
        (f"share of {scene.token}", number(float(own[pos]))),
        ("mean over queries", number(float(np.mean(own)))),
        ("largest · smallest", f"{number(float(own.max()))} · {number(float(own.min()))}"),
        ("left for keys, this token", number(1 - float(own[pos]))),
    ]
    caption = "the sink joins the denominator only: a row of the pattern sums to 1 − its share · attn.softmax.weight"
    return card("sink-facts", f"Head {scene.head}", caption, table=rows, role="side")
