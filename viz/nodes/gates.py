"""Gate and up together: how they go together, how many gates are shut, and the neurons that a token drives most."""

import numpy as np

from model.view import Request, View
from viz.figures.cloud import density
from viz.figures.distribution import overlay
from viz.figures.ranking import ranking
from viz.nodes.card import WHOLE, Card, Scene, card, line
from viz.theme import number

PARTS = ("hook_pre", "hook_act", "hook_pre_linear", "hook_post")
COUNTED = ("hook_pre", "hook_act", "hook_pre_linear")
SYMBOLS = {"silu": "SiLU", "gelu": "GELU", "gelu_tanh": "GELU", "relu": "ReLU", "sigmoid": "σ", "identity": "identity"}
CLOSED = 0.05  # a gate is called closed when |activation(gate)| stays under this
SMALLEST = 1e-4  # left end of the histogram of |activation(gate)|
TOP = 12
CURVE = 20_000  # pairs that the activation curve is read from
SAMPLE = 48  # tokens that are read where not all fit


def width(scene: Scene) -> int:
    """Neurons of the MLP of this block (of the shared expert, where there are experts)."""
    return mlp_config(scene).d_mlp


def mlp_config(scene: Scene):
    return vars(scene.block.mlp).get("shared") or scene.block.mlp


def symbol(scene: Scene) -> str:
    """The activation by its usual name."""
    return SYMBOLS.get(mlp_config(scene).activation, "activation")


def counted(scene: Scene) -> list[int]:
    """Positions whose gates are counted; [] stands for all at once."""
    n, d = len(scene.tokens), width(scene)
    if n * d <= 2 * WHOLE:
        return []
    return sorted({int(p) for p in np.linspace(0, n - 1, max(1, min(n, SAMPLE, 2 * WHOLE // d)))})


def wanted(scene: Scene, path: str) -> dict[str, Request]:
    """The requests of `cards`: of the MLP at `path`, the chosen token's row of every tensor, and the counted tokens."""
    taps = {part: f"{path}.{part}" for part in PARTS}
    if any(tap not in scene.block_taps for tap in taps.values()):
        return {}  # no gate, or several
    found = {part: Request(scene.tap(tap), select=(("pos", scene.pos),), budget=WHOLE) for part, tap in taps.items()}
    for part in COUNTED:
        for p in counted(scene):
            found[f"{part}@{p}"] = Request(scene.tap(taps[part]), select=(("pos", p),), budget=WHOLE)
        if not counted(scene):
            found[f"{part}@all"] = Request(scene.tap(taps[part]), budget=2 * WHOLE)
    return found


def cards(scene: Scene, views: dict[str, View]) -> list[Card]:
    """What every node of a gated MLP shows besides its own map."""
    if PARTS[0] not in views:
        return []
    at, n = counted(scene), len(scene.tokens)
    keys = [str(p) for p in at] or ["all"]
    gate, act, up = (np.concatenate([views[f"{part}@{k}"].values.ravel() for k in keys]) for part in COUNTED)
    how = f"{len(at)} of {n} tokens, evenly spaced" if at else f"all {n} tokens" if n > 1 else "the one token"
    return [joint(scene, gate, act, up, how), closed(scene, act, views["hook_act"].values, how), top_neurons(scene, views)]


def joint(scene: Scene, gate: np.ndarray, act: np.ndarray, up: np.ndarray, how: str) -> Card:
    """Gate against up, counted, and the curve that turns the gate into the factor on up: the model's own activations."""
    finite = np.isfinite(gate) & np.isfinite(act) & np.isfinite(up)
    x, y = gate[finite], up[finite]
    along, factor = np.zeros(1), np.zeros(1)
    if x.size:
        ends = [np.argmin(x), np.argmax(x)]
        some = np.append(np.arange(0, x.size, -(-x.size // CURVE)), ends)  # enough points to join by lines
        order = some[np.argsort(x[some])]
        along = np.linspace(x.min(), x.max(), 200)
        factor = np.interp(along, x[order], act[finite][order])
    curve = (f"{symbol(scene)}(gate), the factor on up", along, factor)
    figure = density(
        x, y, curve, scene.theme, revision=scene.key("joint"), names=("gate = W_gate x", "up = W_up x"), height=360
    )
    varies = x.size > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    lost = int((~finite).sum())
    caption = line(
        f"hook_pre against hook_pre_linear, layer {scene.layer}, the curve from hook_act",
        f"{x.size:,} pairs: every neuron of {how}",
        "log colour of the counts",
        f"correlation {number(float(np.corrcoef(x, y)[0, 1])) if varies else 'undefined'}",
        f"{lost:,} pairs that are not finite left out" if lost else "",
    )
    return card("joint", "Gate against up", caption, figure)


def closed(scene: Scene, act: np.ndarray, token_act: np.ndarray, how: str) -> Card:
    """The histogram of |activation(gate)|, with the band in which a gate counts as closed."""
    name = f"{symbol(scene)}(gate)"
    finite, own = act[np.isfinite(act)], token_act[np.isfinite(token_act)]
    size = np.log10(np.maximum(np.abs(finite), SMALLEST))
    low, edge = float(np.log10(SMALLEST)), float(np.log10(CLOSED))
    powers = range(int(low), int(np.ceil(size.max() if size.size else 0)) + 1)
    figure = overlay(
        [(f"|{name}|", size, scene.theme.b)], scene.theme, revision=scene.key("closed"), title=f"|{name}|, log scale",
        band=(low, edge, f"closed: {_share(np.abs(finite) < CLOSED)}"),
        ticks=([float(p) for p in powers], [f"{10.0**p:g}" for p in powers]), height=230,
    )  # fmt: skip
    table = [
        ("closed gates, all counted", _share(np.abs(finite) < CLOSED)),
        (f"closed gates, token {scene.pos}", _share(np.abs(own) < CLOSED)),
        (f"{name} below 0", _share(finite < 0)),
        (f"largest {name}", number(float(finite.max())) if finite.size else "undefined"),
    ]
    caption = line(
        f"closed means |{name}| < {CLOSED:g}",
        f"hook_act of every neuron of {how}",
        f"sizes under {SMALLEST:g} counted as {SMALLEST:g}",
        f"{act.size - finite.size:,} that are not finite left out" if act.size > finite.size else "",
    )
    return card("closed", "Closed gates", caption, figure, table, "side")


def _share(true: np.ndarray) -> str:
    return f"{float(true.mean()):.1%}" if true.size else "undefined"


def top_neurons(scene: Scene, views: dict[str, View]) -> Card:
    """The neurons whose product is largest for the chosen token, with what made it."""
    gate, act, up, post = (views[part].values for part in PARTS)
    size = np.abs(np.nan_to_num(post, nan=0.0, posinf=np.inf, neginf=np.inf))
    order = np.argsort(-size, kind="stable")[:TOP]
    name = f"{symbol(scene)}(gate)"
    figure = ranking([str(i) for i in order], post[order], scene.theme, revision=scene.key("top"), name=f"{name} × up")
    words = lambda i: f"{number(float(gate[i]))} → {number(float(act[i]))} · {number(float(up[i]))}"  # noqa: E731
    caption = line(
        f"{views['hook_post'].tap} of {scene.token}",
        f"the {len(order)} of {len(post)} neurons with the largest |x|, nothing pooled",
        f"table: gate → {name} · up",
    )
    return card("top-neurons", "Top neurons of the token", caption, figure, [(f"neuron {i}", words(i)) for i in order], "side")
