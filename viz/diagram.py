"""The block as a graph: which nodes there are and which taps each shows, off its module tree; what feeds what, off a run.

Nothing is placed by hand for a model: model.flow runs the block on an empty batch and says what each tap was made from, so
a norm stands where the forward has it. Nodes come in rows, each below what feeds it, in the lanes that PARTS gives them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from model.block import BlockConfig
from model.flow import flow
from model.norms import NORMS
from model.taps import Absent, Tap, taps_of
from viz.parts import ALL, FOLLOWS, LANES, PARTS, Around, Lanes, Part, part_of

LONG = 14  # letters of a class name that a node has room for


@dataclass
class Node:
    """One box, or with `stream` one state of the residual stream. `taps` are paths in the block; `shown` give its numbers."""

    id: str
    label: str
    kind: str
    lanes: Lanes
    taps: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    meaning: str = ""
    off: bool = False  # an empty slot: drawn dashed
    masked: bool = False  # its numbers leave out what the mask hides
    stream: bool = False
    spine: bool = False  # the stream passes through it: a norm after the add
    adds: bool = False  # its output is added to the stream
    beside: str = ""  # the node whose row it shares
    row: int = 0
    reads: list[str] = field(default_factory=list)  # ids of the nodes that feed it


def graph(config: BlockConfig) -> list[Node]:
    """The nodes of a block in reading order, placed in rows and joined to what feeds them."""
    with torch.device("meta"):
        block = config.build()
    pieces = dict(_pieces(block))
    reads = flow(config, {path for path, piece in pieces.items() if not isinstance(piece, Tap)})
    taps = taps_of(block)
    nodes: dict[str, Node] = {}
    owner: dict[str, str] = {}  # tap or slot -> id of its node
    for path in reads:
        if path in pieces:
            part = _part(path, pieces[path], block, taps, [owner[name] for name in reads[path]])
            _join(nodes, part, path, pieces[path])
            owner |= dict.fromkeys([path, *(f"{path}.{name}" for name in taps_of(pieces[path]))], part.id)
        elif path not in owner:  # a tap inside a slot that has not been left yet, such as a norm's
            slot = next(p for p in pieces if path.startswith(f"{p}."))
            owner[path] = _part(slot, pieces[slot], block, taps, []).id
    for path, sources in reads.items():
        node = nodes[owner[path]]
        fed = (owner[name] for name in sources if owner[name] != node.id)
        node.reads += [name for name in dict.fromkeys(fed) if name not in node.reads]
    _find_spine(nodes)
    return _placed(nodes)


def _pieces(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """What a node can be made of: taps, and slots with a name in PARTS or a norm in them; other modules are entered."""
    for name, child in module.named_children():
        path, has_taps = f"{prefix}{name}", any(True for _ in taps_of(child))
        slot = name in PARTS and (has_taps or isinstance(child, nn.Identity))  # an empty one is drawn where it has a place
        if slot or isinstance(child, Tap) or type(child) in NORMS.values():
            yield path, child
        elif has_taps:
            yield from _pieces(child, f"{path}.")


def _part(path: str, piece: nn.Module, block: nn.Module, taps: Iterable[str], fed_by: list[str]) -> Part:
    parent, _, _ = path.rpartition(".")
    at = block.get_submodule(parent)
    siblings = [name for name, child in at.named_children() if not isinstance(child, Absent)]
    part = part_of(path, Around(piece, at, siblings, taps))
    if part is FOLLOWS and fed_by:
        return Part(fed_by[0], "", shown=False)
    if part is None or part is FOLLOWS:
        name = path.replace("hook_", "")
        kind = "norm" if type(piece) in NORMS.values() else "other"
        return Part(name, "" if kind == "norm" else name.replace("_", " ").replace(".", " "), ALL, kind)
    return part


def _join(nodes: dict[str, Node], part: Part, path: str, piece: nn.Module) -> None:
    """Add a tap or slot to the node that its part names."""
    label = part.label or _short(type(piece).__name__)
    node = nodes.setdefault(part.id, Node(part.id, label, part.kind, part.lanes, beside=part.beside))
    node.taps += [path] if isinstance(piece, Tap) else [f"{path}.{name}" for name in taps_of(piece)]
    if isinstance(piece, Tap):
        node.shown += [path] if part.shown else []
        node.stream |= path.startswith("hook_resid_")
        node.masked |= part.shown and {"query_pos", "key_pos"} <= set(piece.dims)
        _mean(node, piece.meaning, part.shown)
    elif isinstance(piece, nn.Identity):
        node.off, node.label, node.meaning = True, f"{label} off", "an empty slot: q and k pass unchanged"
    elif type(piece) in NORMS.values():
        node.shown.append(f"{path}.hook_out")
        _mean(node, f"{type(piece).__name__}: {piece.hook_out.meaning}")
    else:
        found = taps_of(piece)
        node.shown += [f"{path}.{name}" for name in found] if part.shown else []
        for tap in found.values():
            _mean(node, tap.meaning, part.shown)


def _mean(node: Node, meaning: str, shown: bool = True) -> None:
    """Say what the numbers of a node are, each once; what is not shown has no word in it."""
    if shown and meaning not in node.meaning.split("; "):
        node.meaning = f"{node.meaning}; {meaning}" if node.meaning else meaning


def _short(name: str) -> str:
    """A class name; of a long one only the kind of norm that it is."""
    return name if len(name) <= LONG else next((kind for kind in ("RMSNorm", "LayerNorm") if name.endswith(kind)), name)


def _find_spine(nodes: dict[str, Node]) -> None:
    """What the stream passes through, from its states backwards; what joins it there is added."""
    ahead = [node for node in nodes.values() if node.stream]
    while ahead:
        node = ahead.pop()
        before = [nodes[name] for name in node.reads]
        bare = [n for n in before if n.stream]
        if bare:
            for source in before:
                source.adds |= not source.stream
        elif len(before) == 1 and not before[0].adds:
            before[0].spine = True
            ahead.append(before[0])


def _in_order(nodes: dict[str, Node]) -> Iterator[Node]:
    """As they fire, but none before what feeds it: a node of several taps waits for the last one's source."""
    waiting, done = list(nodes.values()), set()
    while waiting:
        ready = next((node for node in waiting if done.issuperset(node.reads)), waiting[0])
        waiting.remove(ready)
        done.add(ready.id)
        yield ready


def _placed(nodes: dict[str, Node]) -> list[Node]:
    """Give each node the first row in which its lanes are free below what feeds them; below what joins the stream, all are."""
    last: list[int] = [-1] * LANES  # the lowest row taken in each lane
    floor = 0
    for node in _in_order(nodes):
        lanes = range(*(ALL if node.stream or node.spine else node.lanes))
        above = [nodes[name].row + 1 for name in node.reads if name != node.beside]
        level = nodes[node.beside].row if node.beside in nodes else 0
        node.row = max([floor, level, *above, *(last[i] + 1 for i in lanes)])
        for i in lanes:
            last[i] = node.row
        if node.stream or node.spine or node.adds:
            floor = node.row + 1
    return sorted(nodes.values(), key=lambda node: (node.row, node.lanes))
