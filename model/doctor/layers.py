"""The same parameter in the layers of a model, and one that does not fit among the others."""

import math
import re
from collections.abc import Mapping, Sequence
from statistics import median_high, median_low

from model.checkpoints.fields import listed

LAYER = re.compile(r"blocks\.(\d+)\.(.+)")
NEAR, FEWEST = 3, 3  # neighbours on each side; layers among which one can be told to be the odd one
ENDS = 2  # layers at each end that trained models often have on another scale


def layer_of(name: str) -> tuple[int, str] | None:
    """blocks.3.ln1.weight -> (3, "ln1.weight")."""
    found = LAYER.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def odd_ones(sizes: Mapping[str, float], inner: float, outer: float) -> list[tuple[str, float, float]]:
    """(name, size, that of its neighbours) of every parameter that is `inner` times as large as the same one of the layers
    around it, or as small (`outer` times for the layers at the ends). `sizes`: by name; parameters of one kind only.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in sizes:
        if (place := layer_of(name)) and sizes[name] > 0:
            groups.setdefault(place[1], []).append((place[0], name))
    found = []
    for group in groups.values():
        names = [name for _, name in sorted(group)]
        logs = [math.log(sizes[name]) for name in names]
        if len(names) < FEWEST:
            continue
        for i, name in enumerate(names):
            usual = around(logs, i)
            limit = inner if ENDS <= i < len(names) - ENDS else outer
            if abs(logs[i] - usual) > math.log(limit):
                found.append((name, sizes[name], math.exp(usual)))
    return found


def worst(odd: list[tuple[str, float, float]]) -> tuple[str, str]:
    """(name, how far it is off in words) of the one that is farthest off; the others by name."""
    name, size, usual = max(odd, key=lambda row: abs(math.log(row[1] / row[2])))
    others = [other for other, *_ in odd if other != name]
    ratio = f"{size / usual:.3g} times" if size > usual else f"1/{usual / size:.3g} of"
    also = f" (also odd: {listed(others, 4)})" if others else ""
    return name, f"root mean square {size:.3g}, {ratio} the {usual:.3g} of the layers around it{also}"


def around(logs: Sequence[float], i: int) -> float:
    """Median of the neighbours of entry i; of an even number, the middle one that is nearer to it, so that one odd layer
    does not make its neighbours odd."""
    near = [logs[j] for j in range(max(0, i - NEAR), min(len(logs), i + NEAR + 1)) if j != i]
    return min(median_low(near), median_high(near), key=lambda x: abs(x - logs[i]))
