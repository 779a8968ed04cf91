"""Two blocks side by side: the same nodes at the same height, in their order, gaps where only one has a node."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest

from model import PRESETS
from model.surgery import CHANGES
from viz.pages.blocks import block_nodes
from viz.pairs import aligned, draw_pair, gaps

NAMES = [name for name in PRESETS if name.startswith("tiny-")]
WIDEST = (PRESETS["deepseek-v3"].blocks[-1], PRESETS["gpt2"].blocks[0])


def box(svg: str, node: str) -> tuple[float, float]:
    """Top and height of a node's box."""
    group = next(g for g in ET.fromstring(svg) if g.get("data-node") == node)
    rect = next(part for part in group if part.tag == "rect")
    return float(rect.get("y")), float(rect.get("height"))


def test_the_widest_pair():
    a, b = map(block_nodes, WIDEST)
    one, two = draw_pair(a, b)
    for node in ("resid_pre", "ln1", "q", "logits", "pattern", "z", "attn_out", "resid_mid", "ln2", "gate", "mlp_out"):
        assert box(one, node) == box(two, node), node
    missing = {node.id.removeprefix("gap ") for node in gaps(*aligned(b, a))}
    assert {"q_latent", "k_rope", "kv_latent", "rope", "keys", "values", "chosen"} <= missing and "q" not in missing
    assert 'class="gap"><title>RoPE: not in this block' in two and "RoPE: not" not in one
    tall = [float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)[1]) for svg in (one, two)]
    assert tall[0] == tall[1] < 700


@pytest.mark.parametrize(("a", "b"), list(combinations(NAMES, 2)))
def test_every_pair_keeps_order_and_meets_as_often_as_it_can(a, b):
    nodes = [block_nodes(PRESETS[name].blocks[-1]) for name in (a, b)]
    one, two = aligned(*nodes)
    for before, after in zip(nodes, (one, two), strict=True):
        pairs = sorted({(x.row, y.row) for x, y in zip(before, after, strict=True)})
        assert [row for row, _ in pairs] == list(range(len(pairs))), "every old row is one new row"
        assert all(x < y for (_, x), (_, y) in pairwise(pairs)), "rows keep their order"
    rows = {node.id: node.row for node in two}
    streams = [node for node in one if node.stream and node.id in rows]
    assert streams and all(node.row == rows[node.id] for node in streams)
    for own, other in ((one, two), (two, one)):
        taken = {(node.row, lane) for node in own for lane in range(*node.lanes)}
        assert not any((gap.row, lane) in taken for gap in gaps(own, other) for lane in range(*gap.lanes))
    for svg in draw_pair(*nodes):
        ET.fromstring(svg)


def test_a_block_against_itself_has_no_gaps():
    nodes = block_nodes(WIDEST[0])
    one, two = aligned(nodes, nodes)
    assert one == two == list(nodes) and gaps(one, two) == []


def test_norms_are_matched_by_their_place_and_not_by_their_name():
    pre = PRESETS["tiny-llama"].blocks[0]
    one, two = aligned(block_nodes(pre), block_nodes(CHANGES["wiring"].write(pre, "post")))
    rows = [{node.id: node.row for node in nodes} for nodes in (one, two)]
    assert rows[0]["ln1"] < rows[0]["q"] == rows[1]["q"] < rows[1]["attn_out"] < rows[1]["ln1"] < rows[1]["resid_mid"]
    for own, other in ((one, two), (two, one)):
        assert {"gap ln1", "gap ln2"} <= {node.id for node in gaps(own, other)}
    sandwich = block_nodes(CHANGES["wiring"].write(pre, "sandwich"))
    one, two = aligned(block_nodes(pre), sandwich)
    assert {n.id: n.row for n in one}["ln1"] == {n.id: n.row for n in two}["ln1"]
