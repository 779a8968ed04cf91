"""Two blocks side by side, node by node: rows that share a node stand at one height, what only one has leaves a gap."""

from collections.abc import Sequence
from dataclasses import replace

from viz.diagram import Node
from viz.drawing import draw_beside, heights_beside

Rows = list[list[Node]]


def draw_pair(a: Sequence[Node], b: Sequence[Node]) -> tuple[str, str]:
    """The SVGs of two blocks, of one height and with the same rows."""
    one, two = aligned(a, b)
    heights = heights_beside(one, two)
    return draw_beside(one, gaps(one, two), heights), draw_beside(two, gaps(two, one), heights)


def aligned(a: Sequence[Node], b: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The same nodes with common row numbers: the pairing of rows, in their order, in which most nodes meet themselves."""
    one, two = _rows(a), _rows(b)
    numbers: list[dict[int, int]] = [{}, {}]
    for row, pair in enumerate(_steps(one, two)):
        for side, index in enumerate(pair):
            if index is not None:
                numbers[side][index] = row
    placed = [[replace(node, row=number[node.row]) for node in nodes] for nodes, number in zip((a, b), numbers, strict=True)]
    return placed[0], placed[1]


def place(node: Node) -> str:
    """What a node is matched by: a norm that the stream passes through is not the norm of its name in front of a part."""
    return f"{node.id} on the stream" if node.spine else node.id


def gaps(own: Sequence[Node], other: Sequence[Node]) -> list[Node]:
    """The other block's nodes that this one lacks at their height, where nothing else stands."""
    have = {place(node) for node in own}
    taken = {(node.row, lane) for node in own for lane in range(*node.lanes)}
    free = lambda node: not any((node.row, lane) in taken for lane in range(*node.lanes))  # noqa: E731
    return [replace(node, id=f"gap {node.id}") for node in other if place(node) not in have and free(node)]


def _rows(nodes: Sequence[Node]) -> Rows:
    rows: Rows = [[] for _ in range(1 + max(node.row for node in nodes))]
    for node in nodes:
        rows[node.row].append(node)
    return rows


def _steps(a: Rows, b: Rows) -> list[tuple[int | None, int | None]]:
    """The longest common sequence of rows, weighed by the nodes they share: (row of a, row of b), None for a gap."""
    shared = [[len({place(n) for n in one} & {place(n) for n in two}) for two in b] for one in a]
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            met = shared[i][j] + best[i + 1][j + 1] if shared[i][j] else 0
            best[i][j] = max(met, best[i + 1][j], best[i][j + 1])
    steps, i, j = [], 0, 0
    while i < len(a) or j < len(b):
        if i < len(a) and j < len(b) and shared[i][j] and best[i][j] == shared[i][j] + best[i + 1][j + 1]:
            steps.append((i, j))
            i, j = i + 1, j + 1
        elif j == len(b) or (i < len(a) and best[i][j] == best[i + 1][j]):
            steps.append((i, None))
            i += 1
        else:
            steps.append((None, j))
            j += 1
    return steps
