"""Where the wires of a diagram run: along free lanes and through the gaps between rows, never through a box.

Everything here is in the diagram's own two directions: `along` the flow, and `across` it, away from the stream. Standing or
lying, the drawing turns them into y and x, or x and y.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from viz.diagram import Node

Point = tuple[float, float]  # along, across
Path = list[Point]
CLEAR = 5.0  # px between a wire and a box that it passes


@dataclass(frozen=True)
class Place:
    """A box: from `start` to `end` along the flow, from `near` to `far` away from the stream."""

    start: float
    end: float
    near: float
    far: float

    @property
    def middle(self) -> float:
        """Across."""
        return (self.near + self.far) / 2

    @property
    def centre(self) -> float:
        """Along."""
        return (self.start + self.end) / 2


@dataclass(frozen=True)
class Grid:
    """Every node's place, the line of the stream and the gutter beside it (both across), half a gap, and whether a wire may
    meet a box anywhere on its edge or in the middle only."""

    places: dict[str, Place]
    rows: dict[str, int]
    stream: float
    gutter: float
    half_gap: float
    anywhere: bool

    def free(self, across: float, after: int, before: int) -> bool:
        """Whether a wire at `across` passes every row between two rows."""
        between = (self.places[name] for name, row in self.rows.items() if after < row < before)
        return not any(place.near - CLEAR < across < place.far + CLEAR for place in between)

    def meets(self, place: Place, lane: float) -> float:
        """Where a wire that comes along `lane` meets the box: there, or as near as its rounded edge allows."""
        return min(max(lane, place.near + 12), place.far - 12) if self.anywhere else place.middle


def between(source: Node, target: Node, grid: Grid) -> Path:
    """From the end of one box to the start of the other, or side by side in one row."""
    a, b = grid.places[source.id], grid.places[target.id]
    if source.row == target.row:
        first, second = (a, b) if a.near < b.near else (b, a)
        along = (max(a.start, b.start) + min(a.end, b.end)) / 2
        return [(along, first.far), (along, second.near)]
    out, into = a.end + grid.half_gap, b.start - grid.half_gap
    for lane in _lanes(a, b, grid):
        if grid.free(lane, source.row, target.row):
            leave, arrive = grid.meets(a, lane), grid.meets(b, lane)
            return _tidy([(a.end, leave), (out, leave), (out, lane), (into, lane), (into, arrive), (b.start, arrive)])
    arrive = b.middle
    edge = a.end - min(7.0, (a.end - a.start) / 4)
    return [(edge, a.near), (edge, grid.gutter), (into, grid.gutter), (into, arrive), (b.start, arrive)]


def from_stream(source: Node, target: Node, nodes: Sequence[Node], grid: Grid) -> Path:
    """From the stream to a box that reads one of its states."""
    place = grid.places[target.id]
    joined = [n.row for n in nodes if (n.adds or n.spine or n.stream) and source.row < n.row < target.row]
    if joined:  # the stream has changed on the way: leave it before that, and run beside it
        early, into = grid.places[source.id].end + grid.half_gap, place.start - grid.half_gap
        beside = [(early, grid.gutter), (into, grid.gutter)]
        return [(early, grid.stream), *beside, (into, place.middle), (place.start, place.middle)]
    peers = [n for n in nodes if n.row == target.row and n is not target]
    if not peers:
        return [(place.centre, grid.stream), (place.centre, place.near)]
    into = place.start - grid.half_gap
    return [(into, grid.stream), (into, place.middle), (place.start, place.middle)]


def to_stream(node: Node, nodes: Iterable[Node], grid: Grid) -> Path:
    """From a box whose output is added, to the plus on the stream."""
    place = grid.places[node.id]
    if all(grid.places[n.id].near >= place.near for n in nodes if n.row == node.row):
        return [(place.centre, place.near), (place.centre, grid.stream)]
    out = place.end + grid.half_gap
    return [(place.end, place.middle), (out, place.middle), (out, grid.stream)]


def _lanes(a: Place, b: Place, grid: Grid) -> list[float]:
    """Where a wire from a to b may run, best first: in the middle of what both have, else along either."""
    low, high = max(a.near, b.near), min(a.far, b.far)
    common = [low + (high - low) * share for share in (0.5, 0.25, 0.75, 1 / 6, 5 / 6)] if high - low > 24 else []
    if not grid.anywhere:
        common = [a.middle] if abs(a.middle - b.middle) < 1 else []
    parts = [p.near + (p.far - p.near) * share for p in (b, a) for share in (0.5, 1 / 6, 5 / 6)]
    return [*common, *(parts if grid.anywhere else (b.middle, a.middle))]


def _tidy(path: Path) -> Path:
    """Without repeated points and without corners that turn nowhere."""
    path = [point for i, point in enumerate(path) if not i or _differ(point, path[i - 1])]
    bends = [
        point
        for before, point, after in zip(path, path[1:], path[2:], strict=False)
        if not (_same(before[0], point[0], after[0]) or _same(before[1], point[1], after[1]))
    ]
    return [path[0], *bends, path[-1]]


def _differ(a: Point, b: Point) -> bool:
    return abs(a[0] - b[0]) > 0.01 or abs(a[1] - b[1]) > 0.01


def _same(*values: float) -> bool:
    return max(values) - min(values) < 0.01
