"""The graph of a block as inline SVG: the residual stream as a spine, boxes beside it, a plus where something is added.

Drawn once per block, lying down for narrow screens as well; the live numbers are filled in by the page (textContent),
so the same drawing serves every prompt. Colours come from the page's CSS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from viz.diagram import Node
from viz.parts import ALL, LANES
from viz.wires import Grid, Path, Place, between, from_stream, to_stream

SPINE, GUTTER, ON_SPINE, BAR, BEND = 12, 21, 3, 44, 4
LEFT, WIDE = 30, 240  # standing: where boxes begin, and how wide the widest is
TOP, TALL, LONG, HIGH = 32, 152, 106, 47  # lying: the same from the top, and the least size of a box
FITS = 625  # px: a taller block is drawn with one line a box
LETTER, WIDEST = 7.1, 7.9  # px: about the width of a letter of a label, and in a broad typeface
RMS, PEAK = 57, 76  # px of "rms 1e-10" and of "max|x| 1e-10"
NUMBERS = RMS + PEAK + 8  # px that both take beside a label


@dataclass(frozen=True)
class Sizes:
    """Heights of a row by what stands in it, and the gap below it; `one_line`: the numbers stand beside the label, in a
    column of so many px."""

    stream: float
    wide: float
    narrow: float  # the label and a line for each number
    empty: float  # a slot with nothing in it
    gap: float
    one_line: bool
    numbers: float = NUMBERS


EASY, DENSE = Sizes(22, 31, 46, 31, 7, False), Sizes(20, 24, 42, 20, 6, True)
ONE = 78  # px of one number or of "other shape"
BESIDE = Sizes(20, 24, 34, 24, 7, True, ONE)  # of two blocks side by side: one number a node


def draw(nodes: Sequence[Node], lying: bool = False) -> str:
    """The SVG of a block; `lying` runs left to right with the stream on top, else top to bottom with the stream at the left."""
    sizes = EASY if lying or _height(nodes, EASY) <= FITS else DENSE
    return _drawn(nodes, _lying(nodes) if lying else _standing(nodes, sizes), sizes, lying)


def draw_beside(nodes: Sequence[Node], gaps: Sequence[Node], heights: Sequence[float]) -> str:
    """A standing block whose rows have these heights, so that it lines up with another; `gaps`: what only the other one has."""
    places = _standing([*nodes, *gaps], BESIDE, heights)
    return _drawn(nodes, places, BESIDE, False, [_gap(node, places[node.id]) for node in gaps])


def heights_beside(*blocks: Sequence[Node]) -> list[float]:
    """Of every row, so that the nodes of all blocks fit."""
    tall = [_heights(nodes, BESIDE) for nodes in blocks]
    return [max((own[row] for own in tall if row < len(own)), default=0.0) for row in range(max(map(len, tall)))]


def _drawn(nodes: Sequence[Node], places: dict[str, Place], sizes: Sizes, lying: bool, under: Sequence[str] = ()) -> str:
    rows = {node.id: node.row for node in nodes}
    grid = Grid(places, rows, SPINE, GUTTER + lying, 7 if lying else sizes.gap / 2, anywhere=not lying)
    end = max(place.end for place in places.values()) + (6 if lying else 2)
    by_id = {node.id: node for node in nodes}
    wires, marks = [_path([(SPINE, SPINE), (end, SPINE)], "spine", lying)], []
    for node in nodes:
        at = places[node.id].centre
        if node.stream:
            marks.append(_dot(*_xy((at, SPINE), lying)))
        elif node.adds:
            wires.append(_path(to_stream(node, nodes, grid), "wire", lying))
            marks.append(_plus(*_xy((at, SPINE), lying)))
        for source in () if node.stream or node.spine else (by_id[name] for name in node.reads):
            path = from_stream(source, node, nodes, grid) if source.stream else between(source, node, grid)
            wires.append(_path(path, "wire", lying))
    boxes = [_node(node, places[node.id], lying, sizes) for node in nodes]
    kind = "lying" if lying else "standing"
    width, height = (end, TOP + TALL + 2) if lying else (LEFT + WIDE + 2, end)
    return (
        f'<svg class="block-svg {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="group" aria-label="The block, node by node">{"".join([*under, *wires, *marks, *boxes])}</svg>'
    )


def _heights(nodes: Sequence[Node], sizes: Sizes) -> list[float]:
    """Of every row."""
    heights = [0.0] * (1 + max(node.row for node in nodes))
    for node in nodes:
        heights[node.row] = max(heights[node.row], _tall(node, sizes))
    return heights


def _tall(node: Node, sizes: Sizes) -> float:
    if node.stream:
        return sizes.stream
    if node.off:
        return sizes.empty
    return sizes.narrow if _narrow(node) else sizes.wide if not sizes.one_line or _beside(node, sizes) else EASY.wide - 1


def _height(nodes: Sequence[Node], sizes: Sizes) -> float:
    heights = _heights(nodes, sizes)
    return sum(heights) + len(heights) * sizes.gap


def _standing(nodes: Sequence[Node], sizes: Sizes, heights: Sequence[float] = ()) -> dict[str, Place]:
    heights = heights or _heights(nodes, sizes)
    starts = [2 + sum(heights[:row]) + row * sizes.gap for row in range(len(heights))]
    places = {}
    for node in nodes:
        first, past = (lane * (WIDE + sizes.gap) / LANES for lane in node.lanes)
        near = ON_SPINE if node.spine else 22 if node.stream else LEFT + first
        places[node.id] = Place(starts[node.row], starts[node.row] + heights[node.row], near, LEFT + past - sizes.gap)
    return places


def _lying(nodes: Sequence[Node]) -> dict[str, Place]:
    longest = [float(LONG)] * (1 + max(node.row for node in nodes))
    for node in nodes:
        longest[node.row] = max(longest[node.row], 18 + len(node.label) * WIDEST)
    starts = [6 + sum(longest[:row]) + row * 14 for row in range(len(longest))]
    places = {}
    for node in nodes:
        first, past = (lane * (TALL + EASY.gap) / LANES for lane in node.lanes)
        middle = TOP + (first + past - EASY.gap) / 2
        near = ON_SPINE if node.spine else SPINE + 8 if node.stream else middle - HIGH / 2
        places[node.id] = Place(starts[node.row], starts[node.row] + longest[node.row], near, near + HIGH)
    return places


def _narrow(node: Node) -> bool:
    """Whether a number needs a line of its own."""
    return node.lanes[1] - node.lanes[0] <= 6


def _third(node: Node) -> bool:
    return node.lanes[1] - node.lanes[0] <= 4


def _beside(node: Node, sizes: Sizes) -> bool:
    """Whether the numbers fit beside the label."""
    wide = WIDE * (node.lanes[1] - node.lanes[0]) / LANES if sizes is BESIDE else WIDE * (node.lanes == ALL)
    return 16 + len(node.label) * LETTER + sizes.numbers < wide


def _xy(point: tuple[float, float], lying: bool) -> tuple[float, float]:
    return point if lying else point[::-1]


def _path(path: Path, kind: str, lying: bool) -> str:
    """Straight runs with rounded corners."""
    points = [_xy(point, lying) for point in path]
    steps = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, (x, y), after in zip(points, points[1:], points[2:], strict=False):
        (ax, ay), (bx, by) = (_towards((x, y), other) for other in (before, after))
        steps.append(f"L{ax:g} {ay:g}Q{x:g} {y:g} {bx:g} {by:g}")
    return f'<path class="{kind}" d="{"".join(steps)}L{points[-1][0]:g} {points[-1][1]:g}"/>'


def _towards(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """The point a little way from a to b."""
    length = abs(a[0] - b[0]) + abs(a[1] - b[1])
    share = min(BEND, length / 2) / length if length else 0
    return round(a[0] + (b[0] - a[0]) * share, 2), round(a[1] + (b[1] - a[1]) * share, 2)


def _dot(x: float, y: float) -> str:
    return f'<circle class="state" cx="{x:g}" cy="{y:g}" r="4.5"/>'


def _plus(x: float, y: float) -> str:
    return (
        f'<circle class="plus" cx="{x:g}" cy="{y:g}" r="7"/><path class="plus" d="M{x - 3.5:g} {y:g}h7M{x:g} {y - 3.5:g}v7"/>'
    )


def _node(node: Node, place: Place, lying: bool, sizes: Sizes) -> str:
    x, y = _xy((place.start, place.near), lying)
    w, h = _xy((place.end - place.start, place.far - place.near), lying)
    at = _words(node, (x, y, w, h), lying, sizes)
    under = lying or _narrow(node) or (sizes.one_line and not node.stream)  # the bar runs along the lower edge
    full = w - 16 if under else min(18 if node.stream else BAR, w * 0.23)
    bar_x, bar_y = x + w - full - (4 if node.stream else 8), y + (9 if node.stream else 7)
    if under:
        bar_y = y + h - (6 if lying else 4)
    thick = 4 if lying or not under else 2
    over = ' data-over="visible keys"' if node.masked else ""
    words = {"off": node.off, "stream": node.stream, "adds": node.adds, "through": node.spine}
    words["third"] = _third(node) and not lying
    kinds = " ".join(["node", *(word for word, true in words.items() if true)])
    texts = "".join(f'<text class="{part}" x="{tx:g}" y="{ty:g}">{escape(node.label) if part == "label" else ""}</text>'
                    for part, (tx, ty) in at.items())  # fmt: skip
    return (
        f'<g class="{kinds}" data-node="{escape(node.id)}"{over} role="button" tabindex="0" aria-pressed="false" '
        f'aria-label="{escape(node.label)}"><title>{escape(node.meaning)}</title>'
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="7"/>{texts}'
        f'<rect class="rail" x="{bar_x:g}" y="{bar_y:g}" width="{full:g}" height="{thick}" rx="2"/>'
        f'<rect class="bar" x="{bar_x:g}" y="{bar_y:g}" width="0" height="{thick}" rx="2" data-full="{full:g}"/></g>'
    )


def _gap(node: Node, place: Place) -> str:
    """Where the other block has a node and this one has none."""
    box = f'x="{place.near:g}" y="{place.start:g}" width="{place.far - place.near:g}" height="{place.end - place.start:g}"'
    return f'<g class="gap"><title>{escape(node.label)}: not in this block</title><rect {box} rx="7"/></g>'


def _words(node: Node, box: tuple[float, float, float, float], lying: bool, sizes: Sizes) -> dict[str, tuple[float, float]]:
    """Where the label and the two numbers begin."""
    x, y, w, h = box
    left = (LEFT if node.spine and not lying else x) + 8
    if lying:
        return {"label": (left, y + 13), "rms": (left, y + 25), "max": (left, y + 36)}
    if sizes is BESIDE and (node.stream or node.off or _beside(node, sizes)):
        base = y + h / 2 + 4
        return {"label": (left, base), "rms": (x + w - ONE, base), "max": (x + w, base)}
    if node.stream:  # one line: the stream is no box
        base = y + (14 if sizes.one_line else 15)
        return {"label": (left, base), "rms": (left + 78, base), "max": (left + 78 + RMS + 3, base)}
    if _narrow(node):
        line = 11 if not sizes.one_line else 10.5
        left -= 2 if _third(node) else 0
        return {"label": (left, y + 13), "rms": (left, y + 13.5 + line), "max": (left, y + 13.5 + 2 * line)}
    if node.off or (sizes.one_line and _beside(node, sizes)):
        base, right = y + h / 2 + (4 if node.off else 2.5), x + w - 8
        return {"label": (left, base), "rms": (right - PEAK - RMS, base), "max": (right - PEAK, base)}
    tall = sizes.wide if not sizes.one_line else EASY.wide - 1
    base = y + (h - tall) / 2 + (13 if not sizes.one_line else 12)
    return {"label": (left, base), "rms": (left, base + 12), "max": (left + RMS + 5, base + 12)}
