"""The block as a graph, read off its module tree: which nodes there are, which taps each shows, and what feeds what.

Nothing is placed by hand for a model: children come in the order in which the block defines them, and PARTS only says
how a tap or a slot that exists in many architectures is called and how wide it stands. What it does not know is drawn
all the same, under its own name. Lanes are sixths of the width: q, k and v run side by side, v past the rotation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from model.norms import NORMS
from model.positions import Rope
from model.taps import Tap, taps_of

ALL = (0, 6)


@dataclass(frozen=True)
class Part:
    """A node's id, its label, its lanes (first, past last), what kind of node it is and whether its numbers count."""

    id: str
    label: str
    lanes: tuple[int, int] = ALL
    kind: str = "attention"
    shown: bool = True


QK = (0, 4)  # the lanes of q and k; v keeps the last third to itself
PARTS = {  # by the last word of a tap's or a slot's name: the same name means the same in every architecture
    "hook_resid_pre": Part("resid_pre", "resid_pre", kind="residual"),
    "hook_resid_mid": Part("resid_mid", "resid_mid", kind="residual"),
    "hook_resid_post": Part("resid_post", "resid_post", kind="residual"),
    "hook_attn_out": Part("attn_out", "W_o → add", kind="residual"),
    "hook_mlp_out": Part("mlp_out", "W_down → add", kind="residual"),
    "hook_q": Part("q", "q", (0, 2)),
    "hook_k": Part("k", "k", (2, 4)),
    "hook_v": Part("v", "v", (4, 6)),
    "q_norm": Part("qk_norm", "QK-norm", QK, "norm"),
    "k_norm": Part("qk_norm", "QK-norm", QK, "norm"),
    "rope": Part("rope", "RoPE", QK, "rope", shown=False),
    "hook_rot_q": Part("rope", "RoPE", QK, "rope"),
    "hook_rot_k": Part("rope", "RoPE", QK, "rope"),
    "hook_cache_k": Part("rope", "RoPE", QK, "rope", shown=False),
    "hook_cache_v": Part("v", "v", (4, 6), shown=False),
    "hook_logits": Part("logits", "q · k, scaled", QK),
    "hook_capped": Part("capped", "soft-cap", QK),
    "hook_attn_scores": Part("pattern", "softmax", QK, shown=False),
    "hook_pattern": Part("pattern", "softmax", QK),
    "hook_sink": Part("pattern", "softmax", QK, shown=False),
    "hook_z": Part("z", "pattern · v"),
    "hook_pre": Part("gate", "gate", (0, 3), "mlp"),
    "hook_act": Part("act", "SiLU(gate)", (0, 3), "mlp"),
    "hook_pre_linear": Part("up", "up", (3, 6), "mlp"),
    "hook_post": Part("post", "SiLU(gate) × up", kind="mlp"),
}


@dataclass
class Node:
    """One box, or with `stream` one state of the residual stream. `taps` are paths below it; `shown` give its numbers."""

    id: str
    label: str
    kind: str
    lanes: tuple[int, int]
    taps: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    meaning: str = ""
    off: bool = False  # an empty slot: drawn dashed
    stream: bool = False
    adds: bool = False  # its output is added to the stream
    row: int = 0
    reads: list[str] = field(default_factory=list)  # ids of the nodes that feed it; none: the stream does


def graph(block: nn.Module) -> list[Node]:
    """The nodes of a block in reading order, placed in rows and joined to what feeds them."""
    nodes: dict[str, Node] = {}
    for path, module in _pieces(block):
        leaf = path.rpartition(".")[2]
        part = PARTS.get(leaf) or _unknown(path, module)
        node = nodes.setdefault(part.id, Node(part.id, part.label, part.kind, part.lanes))
        found = [path] if isinstance(module, Tap) else [f"{path}.{name}" for name in taps_of(module)]
        node.taps += found
        if isinstance(module, Tap):
            node.shown += found if part.shown else []
            node.stream |= leaf.startswith("hook_resid_")
            node.adds |= leaf.endswith("_out") and path == leaf
            node.meaning = node.meaning or module.meaning
        elif isinstance(module, nn.Identity):
            node.off, node.label, node.meaning = True, f"{part.label} off", "an empty slot: q and k pass unchanged"
        elif type(module) in NORMS.values():
            node.shown.append(f"{path}.hook_out")
            node.meaning = module.hook_out.meaning
    return _placed(list(nodes.values()))


def _pieces(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """What a node can be made of, in definition order: taps, norms, rotations and empty slots; other modules are entered."""
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        slot = isinstance(child, nn.Identity) and name in PARTS  # an empty slot is drawn where its part has a place
        if slot or isinstance(child, Tap | Rope) or type(child) in NORMS.values():
            yield path, child
        elif any(True for _ in taps_of(child)):
            yield from _pieces(child, f"{path}.")


def _unknown(path: str, module: nn.Module) -> Part:
    name = path.replace("hook_", "")
    if type(module) in NORMS.values():
        return Part(name, type(module).__name__, kind="norm")
    return Part(name, name.replace("_", " ").replace(".", " "), kind="other")


def _placed(nodes: list[Node]) -> list[Node]:
    """Give each node the first row in which its lanes are free below what feeds them; what joins the stream ends all lanes."""
    last: list[Node | None] = [None] * 6  # the lowest node in each lane since the stream was last read
    floor = 0
    for node in nodes:
        lanes = range(*node.lanes)
        above = [last[i] for i in lanes if last[i] is not None]
        node.row = max([floor, *(n.row + 1 for n in above)])
        if not node.stream:
            node.reads = list(dict.fromkeys(n.id for n in above))
            for i in lanes:
                last[i] = node
        if node.stream or node.adds:
            last, floor = [None] * 6, node.row + 1
    return sorted(nodes, key=lambda node: (node.row, node.lanes))
