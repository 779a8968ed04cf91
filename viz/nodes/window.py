"""The edge of a mask on an attention picture: where a window ends, where a chunk begins."""

import numpy as np

from viz.nodes.card import Scene
from viz.theme import count

STEPS = 400  # queries up to which the edge is drawn as the staircase that it is


def edge(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """x (key) and y (query) of the line between what a query could see under a causal mask and what it sees here."""
    limits, n = vars(scene.attn.mask), len(scene.tokens)
    if "window" in limits:
        first = np.arange(limits["window"], n)
        if len(first) > STEPS:
            first = first[[0, -1]]
        steps = np.stack([first - 0.5, first + 0.5], axis=1).ravel()
        return np.repeat(first - limits["window"] + 0.5, 2), steps
    if "chunk" in limits:
        starts = np.arange(limits["chunk"], n, limits["chunk"])
        corners = [(s - limits["chunk"] - 0.5, s - 0.5) for s in starts], [(s - 0.5, s - 0.5) for s in starts]
        ends = [(s - 0.5, min(s + limits["chunk"], n) - 0.5) for s in starts]
        points = np.array([p for group in zip(*corners, ends, strict=True) for p in group], np.float32).reshape(-1, 2)
        return points[:, 0], points[:, 1]
    return np.zeros(0), np.zeros(0)


def words(scene: Scene) -> str:
    """What the dotted line is, or why there is none; "" for a mask that is only causal."""
    limits, n = vars(scene.attn.mask), len(scene.tokens)
    for name, unit in (("window", "window"), ("chunk", "chunk")):
        if name in limits:
            size = count(limits[name], "key")
            drawn = f"dotted: the edge of the {unit} of {size}"
            return drawn if n > limits[name] else f"the {unit} of {size} reaches over all of this prompt"
    return ""
