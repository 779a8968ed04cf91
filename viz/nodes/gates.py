"""Gate and up together: how they go together, how many gates are shut, and the neurons that a token drives most."""

import numpy as np

from model.view import Request, View
from viz.figures.cloud import density
from viz.figures.distribution import overlay
from viz.figures.ranking import ranking
from viz.nodes.card import WHOLE, Card, Scene, card, line
from viz.theme import number

PARTS = ("hook_pre", "hook_act", "hook_pre_linear", "hook_post")
CLOSED = 0.05  # a gate is called closed when |SiLU(gate)| stays under this
SMALLEST = 1e-4  # left end of the histogram of |SiLU(gate)|
TOP = 12
SAMPLE = 48  # tokens that are read where not all fit


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x), without overflow."""
    return x * 0.5 * (1 + np.tanh(x / 2))


def counted(scene: Scene) -> list[int]:
    """Positions whose gates are counted; [] stands for all at once."""
    n, d = len(scene.tokens), scene.block.mlp.d_mlp
    if n * d <= 2 * WHOLE:
        return []
    return sorted({int(p) for p in np.linspace(0, n - 1, max(1, min(n, SAMPLE, 2 * WHOLE // d)))})


def wanted(scene: Scene) -> dict[str, Request]:
    """The requests of `cards`: the chosen token's row of every tensor, and gate and up of the tokens counted."""
    taps = {part: scene.tap(f"mlp.{part}") for part in PARTS}
    rows = {part: Request(tap, select=(("pos", scene.pos),), budget=WHOLE) for part, tap in taps.items()}
    for part in ("hook_pre", "hook_pre_linear"):
        for p in counted(scene):
            rows[f"{part}@{p}"] = Request(taps[part], select=(("pos", p),), budget=WHOLE)
        if not counted(scene):
            rows[f"{part}@all"] = Request(taps[part], budget=2 * WHOLE)
    return rows


def cards(scene: Scene, views: dict[str, View]) -> list[Card]:
    """What every node of the MLP shows besides its own map."""
    at, n = counted(scene), len(scene.tokens)
    keys = [str(p) for p in at] or ["all"]
    gate, up = (np.concatenate([views[f"{part}@{k}"].values.ravel() for k in keys]) for part in ("hook_pre", "hook_pre_linear"))
    how = f"{len(at)} of {n} tokens, evenly spaced" if at else f"all {n} tokens" if n > 1 else "the one token"
    return [joint(scene, gate, up, how), closed(scene, gate, views["hook_pre"].values, how), top_neurons(scene, views)]


def joint(scene: Scene, gate: np.ndarray, up: np.ndarray, how: str) -> Card:
    """Gate against up, counted, and the curve that turns the gate into the factor on up."""
    finite = np.isfinite(gate) & np.isfinite(up)
    x, y = gate[finite], up[finite]
    along = np.linspace(x.min(), x.max(), 200) if x.size else np.linspace(-1, 1, 200)
    curve = ("SiLU(gate), the factor on up", along, silu(along))
    names = ("gate = W_gate x", "up = W_up x")
    figure = density(x, y, curve, scene.theme, revision=scene.key("joint"), names=names, height=360)
    varies = x.size > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    lost = int((~finite).sum())
    caption = line(
        f"mlp.hook_pre against mlp.hook_pre_linear, layer {scene.layer}",
        f"{x.size:,} pairs: every neuron of {how}",
        "log colour of the counts",
        f"correlation {number(float(np.corrcoef(x, y)[0, 1])) if varies else 'undefined'}",
        f"{lost:,} pairs that are not finite left out" if lost else "",
    )
    return card("joint", "Gate against up", caption, figure)


def closed(scene: Scene, gate: np.ndarray, token_gate: np.ndarray, how: str) -> Card:
    """The histogram of |SiLU(gate)|, with the band in which a gate counts as closed."""
    finite = gate[np.isfinite(gate)]
    act = silu(finite)
    size = np.log10(np.maximum(np.abs(act), SMALLEST))
    low, edge = float(np.log10(SMALLEST)), float(np.log10(CLOSED))
    powers = range(int(low), int(np.ceil(size.max() if size.size else 0)) + 1)
    figure = overlay(
        [("|SiLU(gate)|", size, scene.theme.b)], scene.theme, revision=scene.key("closed"), title="|SiLU(gate)|, log scale",
        band=(low, edge, f"closed: {_share(np.abs(act) < CLOSED)}"),
        ticks=([float(p) for p in powers], [f"{10.0**p:g}" for p in powers]), height=230,
    )  # fmt: skip
    token_act = silu(token_gate[np.isfinite(token_gate)])
    table = [
        ("closed gates, all counted", _share(np.abs(act) < CLOSED)),
        (f"closed gates, token {scene.pos}", _share(np.abs(token_act) < CLOSED)),
        ("gates below 0", _share(finite < 0)),
        ("largest SiLU(gate)", number(float(act.max())) if act.size else "undefined"),
    ]
    caption = line(
        f"closed means |SiLU(gate)| < {CLOSED:g}",
        "SiLU(x) = x·sigmoid(x), computed here from mlp.hook_pre",
        f"every neuron of {how}",
        f"sizes under {SMALLEST:g} counted as {SMALLEST:g}",
    )
    return card("closed", "Closed gates", caption, figure, table, "side")


def _share(true: np.ndarray) -> str:
    return f"{float(true.mean()):.1%}" if true.size else "undefined"


def top_neurons(scene: Scene, views: dict[str, View]) -> Card:
    """The neurons whose product is largest for the chosen token, with what made it."""
    gate, act, up, post = (views[part].values for part in PARTS)
    size = np.abs(np.nan_to_num(post, nan=0.0, posinf=np.inf, neginf=np.inf))
    order = np.argsort(-size, kind="stable")[:TOP]
    names = [str(i) for i in order]
    figure = ranking(names, post[order], scene.theme, revision=scene.key("top"), name="SiLU(gate) × up")
    words = lambda i: f"{number(float(gate[i]))} → {number(float(act[i]))} · {number(float(up[i]))}"  # noqa: E731
    caption = line(
        f"mlp.hook_post of {scene.token}, the {len(order)} of {len(post)} neurons with the largest |x|, nothing pooled",
        "table: gate → SiLU(gate) · up",
    )
    return card("top-neurons", "Top neurons of the token", caption, figure, [(f"neuron {i}", words(i)) for i in order], "side")
