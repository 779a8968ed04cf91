"""The graph of a block as inline SVG: the residual stream as a spine, boxes beside it, a plus where something is added.

Drawn once per block, lying down for narrow screens as well; the live numbers are filled in by the page (textContent),
so the same drawing serves every prompt. Colours come from the page's CSS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from viz.diagram import Node

SPINE, GAP, BAR = 12, 7, 44


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    w: float
    h: float

    @property
    def cx(self) -> float:
        return self.x + self.w / 2

    @property
    def cy(self) -> float:
        return self.y + self.h / 2


def draw(nodes: Sequence[Node], lying: bool = False) -> str:
    """The SVG of a block; `lying` runs left to right with the stream on top, else top to bottom with the stream at the left."""
    boxes, width, height = _lying(nodes) if lying else _standing(nodes)
    by_id = {node.id: node for node in nodes}
    lines = [_line(SPINE, SPINE, width if lying else SPINE, SPINE if lying else height, "spine")]
    marks = []
    for node in nodes:
        box = boxes[node.id]
        at = (box.cx, SPINE) if lying else (SPINE, box.cy)  # where this node meets the stream
        edge = (box.cx, box.y) if lying else (box.x, box.cy)
        if node.stream:
            marks.append(f'<circle class="state" cx="{at[0]:g}" cy="{at[1]:g}" r="4.5"/>')
        elif node.adds or not node.reads:
            lines.append(_line(*at, *edge, "wire"))
        if node.adds:
            marks.append(_plus(*at))
        for source in node.reads:
            lines.append(_wire(by_id[source], node, boxes, lying))
    drawn = [_node(node, boxes[node.id], lying) for node in nodes]
    kind = "lying" if lying else "standing"
    return (
        f'<svg class="block-svg {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="group" aria-label="The block, node by node">{"".join(lines + marks + drawn)}</svg>'
    )


def _standing(nodes: Sequence[Node]) -> tuple[dict[str, Box], float, float]:
    left, wide = 30, 240
    sizes = [22.0] * (1 + max(node.row for node in nodes))
    for node in nodes:
        if not node.stream:
            sizes[node.row] = max(sizes[node.row], 46 if _narrow(node) else 31)
    tops, y = [], 2.0
    for size in sizes:
        tops.append(y)
        y += size + GAP
    boxes = {}
    for node in nodes:
        first, past = (lane * (wide + GAP) / 6 for lane in node.lanes)
        x = 22 if node.stream else left + first
        boxes[node.id] = Box(x, tops[node.row], left + past - GAP - x, sizes[node.row])
    return boxes, left + wide + 2, y - GAP + 2


def _lying(nodes: Sequence[Node]) -> tuple[dict[str, Box], float, float]:
    top, tall, long, high = 32, 152, 106, 47
    boxes = {}
    for node in nodes:
        first, past = (lane * (tall + GAP) / 6 for lane in node.lanes)
        middle = top + (first + past - GAP) / 2
        boxes[node.id] = Box(6 + node.row * (long + 14), middle - high / 2, long, high)
    return boxes, 6 + (1 + max(node.row for node in nodes)) * (long + 14), top + tall + 2


def _narrow(node: Node) -> bool:
    return node.lanes[1] - node.lanes[0] <= 2


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _plus(x: float, y: float) -> str:
    return (
        f'<circle class="plus" cx="{x:g}" cy="{y:g}" r="7"/><path class="plus" d="M{x - 3.5:g} {y:g}h7M{x:g} {y - 3.5:g}v7"/>'
    )


def _wire(source: Node, target: Node, boxes: dict[str, Box], lying: bool) -> str:
    """From the end of one box to the start of the other, in the middle of the lanes that both have."""
    a, b = boxes[source.id], boxes[target.id]
    if lying:  # straight on, then a bend in the gap before the target
        bend = f"C{b.x - 6:g} {a.cy:g} {b.x - 8:g} {b.cy:g} {b.x:g} {b.cy:g}"
        return f'<path class="wire" d="M{a.x + a.w:g} {a.cy:g}H{b.x - 14:g}{bend}"/>'
    x = (max(a.x, b.x) + min(a.x + a.w, b.x + b.w)) / 2
    return _line(x, a.y + a.h, x, b.y, "wire")


def _node(node: Node, box: Box, lying: bool) -> str:
    x = box.x + 8
    if node.stream and not lying:  # one line: the stream is no box
        at = {"label": (x, 15), "rms": (x + 81, 15), "max": (x + 138, 15)}
    elif _narrow(node) or lying:
        at = {"label": (x, 13), "rms": (x, 25), "max": (x, 36)}
    else:
        at = {"label": (x, 13), "rms": (x, 25), "max": (x + 57, 25)}
    bar = box.w - 16 if lying or _narrow(node) else min(32 if node.stream else BAR, box.w * 0.23)
    bar_x, bar_y = box.x + box.w - bar - 8, box.y + (9 if node.stream and not lying else 7)
    if lying or _narrow(node):
        bar_y = box.y + box.h - 6
    kinds = " ".join(["node", *(name for name in ("off", "stream", "adds") if getattr(node, name))])
    texts = "".join(f'<text class="{part}" x="{tx:g}" y="{box.y + ty:g}">{escape(node.label) if part == "label" else ""}</text>'
                    for part, (tx, ty) in at.items())  # fmt: skip
    return (
        f'<g class="{kinds}" data-node="{escape(node.id)}" role="button" tabindex="0" aria-pressed="false" '
        f'aria-label="{escape(node.label)}"><title>{escape(node.meaning)}</title>'
        f'<rect class="box" x="{box.x:g}" y="{box.y:g}" width="{box.w:g}" height="{box.h:g}" rx="7"/>{texts}'
        f'<rect class="rail" x="{bar_x:g}" y="{bar_y:g}" width="{bar:g}" height="4" rx="2"/>'
        f'<rect class="bar" x="{bar_x:g}" y="{bar_y:g}" width="0" height="4" rx="2" data-full="{bar:g}"/></g>'
    )
