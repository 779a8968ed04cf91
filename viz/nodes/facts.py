"""What each head's logits amount to: their peak and what made it, their bound, how spread the attention is."""

from dataclasses import dataclass

import numpy as np

from model.view import Request, View
from viz.figures import labels
from viz.figures.stack import Panel, Series, stack
from viz.nodes import qk, requests
from viz.nodes.card import Card, Scene, card, line
from viz.theme import number


def wanted(scene: Scene) -> dict[str, Request]:
    """The requests that `Facts.of` needs: of the logits, whatever stage is drawn."""
    logits, here = scene.tap("attn.hook_logits"), (("head", scene.head),)
    ways = [(way, axis) for way in ("max", "min") for axis in ("query", "key")]
    return {
        "absmax": Request(logits, "absmax", requests.SQUARE),
        "q_length": Request(scene.tap(_first(scene, READ_Q)), "norm", ("d_head",)),
        "k_length": Request(scene.tap(_first(scene, READ_K)), "norm", ("d_head",)),
        "entropy": Request(scene.tap("attn.hook_pattern"), "entropy", ("key_pos",)),
        **{f"{way}_{axis}": Request(logits, way, (f"{axis}_pos",), here) for way, axis in ways},
    }


READ_Q = ("attn.hook_rot_q", "attn.q_norm.hook_out", "attn.hook_q")  # what is multiplied, in any attention: the first it has
READ_K = ("attn.hook_cache_k", "attn.hook_keys")


def _first(scene: Scene, paths: tuple[str, ...]) -> str:
    return next(path for path in paths if path in scene.block_taps)


@dataclass(frozen=True)
class Facts:
    """Per head: largest |logit|, longest q and k, entropy / log n, the bound that QK-norm sets. Of the chosen one: its peak."""

    absmax: np.ndarray
    q: np.ndarray
    k: np.ndarray
    entropy: np.ndarray
    bound: np.ndarray | None  # None without QK-norm
    formula: str
    query: int  # where the peak is, of the finite logits
    key: int
    finite: str  # "all", "some" or "none" of what the chosen head's queries see
    cosine: float

    @classmethod
    def of(cls, scene: Scene, views: dict[str, View]) -> "Facts":
        attn = scene.attn
        q, k = views["q_length"].values, views["k_length"].values  # [pos head], [key_pos kv_head or head]
        kv = np.arange(attn.n_heads) // (attn.n_heads // k.shape[1])
        rows, columns = (_larger(views[f"max_{over}"].values, views[f"min_{over}"].values) for over in ("key", "query"))
        query, key = (int(np.argmax(np.abs(np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)))) for x in (rows, columns))
        finite = "all" if np.isfinite(rows).all() else "some" if np.isfinite(rows).any() else "none"
        lengths = float(attn.logit_scale * q[query, scene.head] * k[key, kv[scene.head]])
        known = lengths and vars(attn).get("temperature") is None  # a temperature multiplies q once more
        cosine = float(rows[query]) / lengths if known else float("nan")
        bound, formula = qk.bounds(scene, qk.gains(scene, attn.qk_norm_over)) if qk.bounded(scene) else (None, "")
        spread = _spread(scene, views["entropy"].values)
        return cls(views["absmax"].values, q.max(0), k.max(0)[kv], spread, bound, formula, query, key, finite, cosine)


def _larger(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return np.where(np.abs(high) >= np.abs(low), high, low)


def _spread(scene: Scene, entropy: np.ndarray) -> np.ndarray:
    """entropy [head, query] over log of the keys that the query sees, mean over queries that see several -> [head]."""
    seen = qk.count_seen(scene, np.arange(len(scene.tokens)))
    several = seen > 1
    if not several.any():
        return np.full(len(entropy), np.nan, np.float32)
    return (entropy[:, several] / np.log(seen[several])).mean(1)


NO_BOUND = "QK-norm is off: nothing bounds the logits"


def head_table(scene: Scene, facts: Facts) -> Card:
    """The chosen head in numbers."""
    h, attn = scene.head, scene.attn
    alone = "one key only" if len(scene.tokens) == 1 else "not finite"
    rows = [
        ("largest |logit|", number(float(facts.absmax[h]))),
        bound_row(scene, facts),
        ("|q| max · |k| max", f"{number(float(facts.q[h]))} · {number(float(facts.k[h]))}"),
        ("cosine at the peak", number(facts.cosine) if np.isfinite(facts.cosine) else "undefined"),
        ("entropy / log n", number(float(facts.entropy[h])) if np.isfinite(facts.entropy[h]) else alone),
        ("reads KV head", f"{scene.kv_head} of {attn.n_kv_heads}"),
    ]
    caption = line(
        "of the scaled logits, over visible keys",
        peak_words(scene, facts),
        f"bound: {facts.formula}" if facts.formula else "" if qk.norm_over(scene) != "off" else NO_BOUND,
        "|q|, |k| after the rotation",
        "entropy of each query's pattern over log n of its n visible keys, mean over queries with n > 1 (query 0 left out)",
    )
    return card("head-table", f"Head {h}", caption, table=rows, role="side")


def bound_row(scene: Scene, facts: Facts) -> tuple[str, str]:
    """The bound of the chosen head: set by the QK-norm that runs, or by the one that could; gains that were learned count."""
    if facts.bound is not None:
        return "bound set by QK-norm", number(float(facts.bound[scene.head]))
    if qk.norm_over(scene) != "off" or vars(scene.attn).get("temperature") is not None:
        return f"bound {'with' if qk.norm_over(scene) == 'off' else 'set by'} QK-norm", "not known here"
    g = qk.usual(scene)
    which = "learned gains" if g.learned else "unit gain, counterfactual"
    return f"bound with QK-norm ({which})", number(float(qk.bounds(scene, g)[0][scene.head]))


def peak_words(scene: Scene, facts: Facts) -> str:
    """Where the largest logit stands, as far as there is one."""
    if facts.finite == "none":
        return "no peak: the logits of this head are not finite"
    where = f"query {facts.query} “{scene.pieces[facts.query]}” → key {facts.key} “{scene.pieces[facts.key]}”"
    return f"peak at {where}" if facts.finite == "all" else f"some logits are not finite; peak of the others at {where}"


def head_chart(scene: Scene, facts: Facts) -> Card:
    """The same numbers for every head; a click opens it."""
    theme, bound = scene.theme, facts.bound
    largest = [Series("largest |logit|", facts.absmax, theme.faint, "bar")]
    level = []
    if bound is not None and np.ptp(bound) > 0:
        largest.append(Series("bound", bound, theme.ink, "dash"))
    elif bound is not None:
        level = [(float(bound[0]), f"bound {number(float(bound[0]))}")]
    others = (("entropy / log n", facts.entropy, (0, 1.02)), ("|q| max", facts.q, None), ("|k| max", facts.k, None))
    panels = [Panel("largest |logit|", largest, lines=level, share=1.5)]
    panels += [Panel(title, [Series(title, values, theme.faint, "bar")], span=span) for title, values, span in others]
    figure = stack(
        panels, labels.index_axis("head", scene.attn.n_heads), theme,
        revision=scene.key("head-chart"), height=400, selected=scene.head, click=("head", "x"), legend=False,
    )  # fmt: skip
    caption = line(
        f"layer {scene.layer}, one bar a head, over all queries and visible keys",
        f"dashed: {facts.formula} (head {scene.head})" if facts.formula else "",
        "|k| is that of the KV head it reads",
        "a click opens a head",
    )
    return card("head-chart", "Every head", caption, figure)
