"""Attention scores: one head large at the chosen stage, all heads beside it, and what lets the logits grow."""

from dataclasses import dataclass

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels, marks
from viz.figures.cloud import density
from viz.figures.colours import Colour
from viz.figures.heat import matrix
from viz.figures.mosaic import mosaic
from viz.nodes import facts, qk, spread, window
from viz.nodes.card import WHOLE, Asking, Card, Scene, card, line, odd, short
from viz.nodes.qk_norm import with_and_without
from viz.nodes.requests import SQUARE
from viz.nodes.square import MOST, Square, square
from viz.theme import count, number

SMALL = 18_000  # cells of all heads together
SINK, CAPPED = "attn.hook_sink", "attn.hook_capped"


@dataclass(frozen=True)
class Stage:
    """A stage of the scores: its tap, its title, and whether it is divided back by the scale."""

    tap: str
    title: str
    raw: bool = False


STAGES = {
    "raw": Stage("attn.hook_logits", "Raw q·k", raw=True),
    "scaled": Stage("attn.hook_logits", "Attention logits"),
    "capped": Stage("attn.hook_capped", "Soft-capped logits"),
    "masked": Stage("attn.hook_attn_scores", "Masked scores"),
    "pattern": Stage("attn.hook_pattern", "Attention pattern"),
}


def stages(scene: Scene) -> list[str]:
    """The stages that this block has: soft-capped ones only where there is a cap."""
    return [name for name, stage in STAGES.items() if scene.tap(stage.tap) in scene.taps]


def scores(scene: Scene, _: str) -> Asking:
    """Cards of the logits and of the pattern: the stage switch says which is drawn; the softmax node is the pattern."""
    name = scene.state.node if scene.state.node in ("pattern", "capped") else scene.state.stage
    name = name if name in stages(scene) else "scaled"
    hide, n, here = bool(scene.state.hide_first), len(scene.tokens), (("head", scene.head),)
    area = n * n if scene.window is None else int(np.prod([high - low for low, high in scene.window]))
    within = () if scene.window is None else tuple((axis, *ends) for axis, ends in zip(SQUARE, scene.window, strict=True))
    tap = scene.tap(STAGES[name].tap)
    beside = {"sink": SINK} if name == "pattern" else {}
    also = {view: path for view, path in (beside | {"capped": CAPPED}).items() if path in scene.block_taps}
    views = yield {
        **{view: Request(scene.tap(path), select=here, budget=WHOLE) for view, path in also.items()},
        "chosen": Request(tap, select=here, budget=WHOLE if (hide or within) and area <= WHOLE else MOST * MOST, within=within),
        "every": Request(tap, budget=SMALL),
        "logits": Request(scene.tap("attn.hook_logits"), select=here, budget=WHOLE),
        **facts.wanted(scene),
        **spread.wanted(scene),
        **(qk.projected(scene) if qk.plain(scene) else {}),
    }
    divide = scene.attn.logit_scale if STAGES[name].raw else 1.0
    large, small = square(views["chosen"], divide, hide and not within), square(views["every"], divide, hide)
    if name == "pattern":
        colour = colours.probability(scene.theme, scene.log)
    else:  # one range for the large and the small pictures
        everything = [] if hide else [views["absmax"].values / divide]
        limit = colours.peak(small.values, large.values, *everything)
        colour = colours.diverging(limit, scene.theme, scene.log, colours.typical(small.values))
    found = facts.Facts.of(scene, views)
    return [
        one_head(scene, name, views, large, colour),
        all_heads(scene, views["every"], small, colour),
        facts.head_table(scene, found),
        facts.head_chart(scene, found),
        spread.spread(scene, views),
        *([with_and_without(scene, views)] if qk.plain(scene) else []),
        *([cap(scene, views)] if "capped" in views else []),
    ]


def formula(scene: Scene, name: str) -> str:
    """How the stage comes from q and k, with this block's own scale."""
    scaled = f"q·k/√{scene.attn.d_head}" if scene.attn.scale is None else f"q·k·{number(scene.attn.logit_scale)}"
    return {
        "raw": f"{scaled}, shown before that scale: divided by {number(scene.attn.logit_scale)}",
        "scaled": scaled,
        "capped": f"cap·tanh({scaled}/cap)",
        "masked": f"{scaled} with the masked keys at −inf",
        "pattern": f"softmax({scaled}) over the visible keys",
    }[name]


def one_head(scene: Scene, name: str, views: dict[str, View], part: Square, colour: Colour) -> Card:
    """The chosen head, queries down, keys across; what a query cannot see is empty, what a sink takes a column beside it."""
    n, view = len(scene.tokens), views["chosen"]
    (top, bottom), (left, right) = scene.window or ((part.start, n), (part.start, n))
    cut = {} if scene.window is None else {"start": top, "stop": bottom}
    rows = labels.token_axis("query", scene.pieces, part.rows, **(cut or {"start": part.start}))
    figure = matrix(
        part.values,
        rows,
        labels.token_axis("key", scene.pieces, part.columns, labels.TICKS_ACROSS, left, right if cut else None),
        colour,
        scene.theme,
        revision=scene.key(f"scores:{scene.state.zoom}"),
        unit="weight" if name == "pattern" else "logit",
        masked=part.masked,
        inset=True,
        row=scene.pos if scene.state.token >= 0 and top <= scene.pos < bottom else None,
        click=("token", "y"),
        height=90 + min(max(26 * n, 190), 480),
    )
    if cut or not part.how.startswith("nothing pooled"):  # the page may ask for a window of it
        figure.layout.meta = {**figure.layout.meta, "window": scene.state.zoom or "all"}
    x, y = window.edge(scene)
    if len(x):
        figure = marks.along(figure, x, y, scene.theme)
    if "sink" in views and not cut:
        share = np.maximum.reduceat(views["sink"].values, part.rows)
        figure = marks.beside(figure, share, rows, "sink", colour, scene.theme)
    caption = line(
        f"{view.tap} = {formula(scene, name)}, {short(view.dtype)}",
        f"{bottom - top} × {right - left}{f' of {n} × {n}' if cut else ''}, {part.how}",
        "key 0 is the only key and is not hidden" if scene.state.hide_first and not part.start and not cut else "",
        "key 0 hidden" if cut and left != scene.state.window[1][0] else "",
        *odd(view.stats, scene.theme),
        f"{qk.unseen(scene)} are not attended and left empty",
        window.words(scene),
        "at the left what the sink takes: a row and it sum to 1" if "sink" in views and not cut else "",
        "a double click shows the whole square" if cut else "",
        "zoom in for a window at full resolution" if not cut and not part.how.startswith("nothing pooled") else "",
        colour.note,
        "always 0 to 1" if name == "pattern" and not scene.log else "",
    )
    title = f"{STAGES[name].title} · layer {scene.layer} · head {scene.head}"
    return card("scores", title, caption, figure, role="main")


def all_heads(scene: Scene, view: View, part: Square, colour: Colour) -> Card:
    """Every head small, in the colours of the large picture."""
    heads = scene.attn.n_heads
    word = "head " if heads <= 9 else ""
    titles = [f"{word}{h} · kv {h // scene.group}" for h in range(heads)]
    figure = mosaic(
        part.values, titles, colour, scene.theme, revision=scene.key("heads"), selected=scene.head, masked=part.masked
    )
    rows, columns = part.values.shape[-2:]
    caption = line(
        f"{view.tap}, one colour range for {count(heads, 'head')}",
        "nothing pooled" if part.how.startswith("nothing") else f"each {rows} × {columns}, peaks kept",
        part.hidden,
        "kv: the key/value head that it reads",
        "a click opens a head",
    )
    return card("heads", "Heads" if heads > 1 else "The one head", caption, figure, role="side")


def cap(scene: Scene, views: dict[str, View]) -> Card:
    """Every visible logit of the head before the soft-cap against after it, on the curve that the cap is."""
    cap, before, after = scene.attn.softcap, views["logits"], views["capped"]
    seen = np.isfinite(before.values) & np.isfinite(after.values)
    x, y = before.values[seen], after.values[seen]
    reach = max(float(np.abs(x).max(initial=0.0)), 1e-6)
    along = np.linspace(-1.05 * reach, 1.05 * reach, 200)
    curve = (f"{cap:g}·tanh(x / {cap:g})", along, cap * np.tanh(along / cap))
    names = ("before: scaled logit", "after the soft-cap")
    figure = density(x, y, curve, scene.theme, revision=scene.key("cap"), names=names, height=340)
    lost = np.abs(x - y)
    table = [
        ("cap", f"{cap:g}"),
        ("largest |logit| before → after", f"{number(reach)} → {number(float(np.abs(y).max(initial=0.0)))}"),
        ("largest loss", number(float(lost.max(initial=0.0)))),
        ("moved by more than 1 %", f"{float((lost > 0.01 * np.abs(x)).mean()) if x.size else 0.0:.1%}"),
    ]
    caption = line(
        f"{before.tap} against hook_capped, {short(before.dtype)}",
        f"{count(int(x.size), 'visible logit')} of head {scene.head}",
        "log colour of the counts",
        "" if before.how == "nothing pooled" else before.how,
    )
    return card("cap", "Soft-cap: before against after", caption, figure, table)
