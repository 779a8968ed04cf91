"""The charts of the Anatomy page: caches, shares of work and work per byte, each against a length."""

from collections.abc import Callable

import numpy as np

from model.anatomy import budget
from model.anatomy.designs import designs
from model.cost import amount
from model.counting import count_config
from viz.figures.budget import Curve, curves, shares
from viz.nodes.card import Card, card
from viz.pages.anatomy_sight import Sight
from viz.theme import count

REACH = 1 << 20  # the longest text of the charts
MODEL = ("model", "config")


def charts(s: Sight) -> list[Card]:
    """Cache, shares of work and work per byte, each against a length."""
    lengths = np.array(budget.contexts(REACH))
    at, item = s.state.context, s.state.itemsize
    models = {s.told.name: s.told} | {name: told for name, told in s.beside.items() if name != s.told.name}
    cache = []
    for i, (name, told) in enumerate(models.items()):
        values = [count_config(told.config).kv_cache_bytes(int(n), item) for n in lengths]
        cache.append(Curve(name, np.array(values, float), tuple(amount(v, "B") for v in values), i, bold=i == 0))
    return [
        card(
            "cache", "KV cache against context",
            f"bytes that one text keeps in {8 * item} bits, all layers; a window stops growing; dotted: {count(at, 'token')}",
            curves(lengths, cache, s.theme, x="tokens of context", y="", bytes_=True, at=at, height=330),
        ),
        card(
            "flops", f"Where a token's FLOPs go: {s.told.name}",
            "of the last token of a text; attention is the projections and q·k and pattern·v with each visible key",
            shares(lengths, _work(s, lengths), s.theme, x="tokens of context", at=at, height=330),
        ),
        card(
            "intensity", "Work per byte when decoding",
            f"FLOPs per byte of weights read in {8 * item} bits at {count(at, 'token')}; experts are read as chance picks them",
            curves(
                *_intensity(s), s.theme, x="texts decoded together", y="FLOPs per byte", bytes_=False, at=s.state.together,
                height=330,
            ),
        ),
    ]  # fmt: skip


def _work(s: Sight, lengths: np.ndarray) -> list[Curve]:
    found = [budget.shares(s.config, int(n)) for n in lengths]
    named = {"projections": "projections", "q·k and pattern·v": "mixing", "MLP": "mlp",
             "unembedding": "unembedding", "norms": "rest"}  # fmt: skip
    lines = []
    for i, (name, part) in enumerate(named.items()):
        values = [getattr(one, part) / one.total for one in found]
        texts = tuple(f"{v:.1%}, {amount(getattr(one, part), 'FLOP')}" for v, one in zip(values, found, strict=True))
        lines.append(Curve(name, np.array(values), texts, (1, 1, 2, 3, 6)[i], bold=i == 0))
    return lines


def _intensity(s: Sight) -> tuple[np.ndarray, list[Curve]]:
    sizes = np.array([1 << k for k in range(12)])
    lines = []
    for i, (name, cached) in enumerate({"weights alone": False, "weights and caches": True}.items()):
        values = [budget.intensity(s.config, int(n), s.state.context, s.state.itemsize, cached) for n in sizes]
        lines.append(Curve(name, np.array(values), tuple(f"{v:.3g} FLOPs per byte" for v in values), (0, 1)[i], bold=i == 0))
    return sizes, lines


def design_chart(s: Sight) -> list[Card]:
    lengths = np.array(budget.contexts(REACH))
    looks = ((1, "solid"), (2, "solid"), (3, "solid"), (4, "solid"), (1, "dash"), (1, "dot"), (2, "dot"), (0, "solid"))
    lines = []
    for (colour, dash), design in zip(looks, designs(s.config, s.state.context, s.state.itemsize), strict=True):
        values = [count_config(design.config).kv_cache_bytes(int(n), s.state.itemsize) for n in lengths]
        texts = tuple(amount(v, "B") for v in values)
        lines.append(Curve(design.name, np.array(values, float), texts, colour, dash, bold=design.name == "as built"))
    figure = curves(lengths, lines, s.theme, x="tokens of context", y="", bytes_=True, at=s.state.context, height=380)
    return [card("designs", "", "", figure)]


FIGURES: dict[str, tuple[tuple[str, ...], Callable]] = {
    "charts": ((*MODEL, "compare", "context", "together", "bits"), charts),
    "design_chart": ((*MODEL, "context", "bits"), design_chart),
}
