"""The diagram follows the module tree: what a block has is drawn, in order, and what it lacks is not."""

import re
import xml.etree.ElementTree as ET
from dataclasses import fields, replace

import pytest
from torch import nn

from model.attention import Attention
from model.block import WIRINGS, PreNorm
from model.mlp import SwiGLU
from model.norms import LayerNorm, RMSNorm
from model.positions import Rope
from model.taps import Tap, taps_of
from viz.diagram import graph
from viz.drawing import draw

IDS = [
    "resid_pre", "ln1", "q", "k", "v", "qk_norm", "rope", "logits", "pattern", "z", "attn_out",
    "resid_mid", "ln2", "gate", "up", "act", "post", "mlp_out", "resid_post",
]  # fmt: skip


def block(qk_norm: bool = False, norm=RMSNorm) -> nn.Module:
    inner = RMSNorm.Config(d=8) if qk_norm else None
    attn = Attention.Config(
        d_model=24, n_heads=6, n_kv_heads=2, d_head=8, q_norm=inner, k_norm=inner, rope=Rope.Config(d=8, base=1e4, pairing="half")
    )
    return PreNorm.Config(ln1=norm.Config(d=24), attn=attn, ln2=norm.Config(d=24), mlp=SwiGLU.Config(d_model=24, d_mlp=40)).build()


def by_wiring(name: str) -> nn.Module:
    plain = block().config
    norms = {f.name: plain.ln1 for f in fields(WIRINGS[name].Config) if f.name.startswith("ln")}
    return WIRINGS[name].Config(attn=plain.attn, mlp=plain.mlp, **norms).build()


def by_id(module: nn.Module) -> dict:
    return {node.id: node for node in graph(module)}


def test_nodes_come_in_reading_order():
    assert [node.id for node in graph(block())] == IDS


@pytest.mark.parametrize("qk_norm", [False, True])
def test_every_tap_of_the_block_belongs_to_exactly_one_node(qk_norm):
    module = block(qk_norm)
    taps = [tap for node in graph(module) for tap in node.taps]
    assert sorted(taps) == sorted(taps_of(module))


def test_every_node_but_an_empty_slot_has_numbers():
    for node in graph(block()):
        assert bool(node.shown) != node.off, node.id
        assert set(node.shown) <= set(node.taps)


def test_the_qk_norm_slot():
    off, on = by_id(block())["qk_norm"], by_id(block(qk_norm=True))["qk_norm"]
    assert off.off and off.taps == [] and off.label == "QK-norm off"
    assert not on.off and on.shown == ["attn.q_norm.hook_out", "attn.k_norm.hook_out"]


def test_edges_are_the_data_flow():
    reads = {name: node.reads for name, node in by_id(block()).items()}
    assert reads["ln1"] == reads["ln2"] == []  # from the stream
    assert reads["q"] == reads["k"] == reads["v"] == ["ln1"]
    assert reads["qk_norm"] == ["q", "k"] and reads["rope"] == ["qk_norm"]
    assert reads["z"] == ["pattern", "v"]
    assert reads["post"] == ["act", "up"]
    assert [name for name, node in by_id(block()).items() if node.adds] == ["attn_out", "mlp_out"]
    assert [name for name, node in by_id(block()).items() if node.stream] == ["resid_pre", "resid_mid", "resid_post"]


def test_the_norm_is_named_by_its_class():
    assert by_id(block(norm=LayerNorm))["ln1"].label == "LayerNorm"


def test_what_is_unknown_is_drawn_under_its_own_name():
    class Strange(nn.Module):
        def __init__(self):
            super().__init__()
            self.hook_resid_pre = Tap("batch pos d_model")
            self.mixer = nn.Module()
            self.mixer.hook_conv_state = Tap("batch pos d_model")
            self.hook_resid_post = Tap("batch pos d_model")

    nodes = graph(Strange())
    assert [node.id for node in nodes] == ["resid_pre", "mixer.conv_state", "resid_post"]
    assert nodes[1].label == "mixer conv state" and nodes[1].shown == ["mixer.hook_conv_state"]
    assert "mixer conv state" in draw(nodes)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_every_wiring_is_drawn_with_all_its_taps(wiring):
    module = by_wiring(wiring)
    nodes = graph(module)
    assert sorted(tap for node in nodes for tap in node.taps) == sorted(taps_of(module))
    assert len({node.id for node in nodes}) == len(nodes)
    for lying in (False, True):
        ET.fromstring(draw(nodes, lying))


def test_a_soft_cap_is_a_node_where_there_is_one():
    module = block()
    assert "capped" not in by_id(module)
    capped = replace(module.config, attn=replace(module.config.attn, softcap=30.0, sink=True)).build()
    assert by_id(capped)["capped"].reads == ["logits"] and by_id(capped)["pattern"].reads == ["capped"]


@pytest.mark.parametrize("lying", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_the_drawing(lying, qk_norm):
    nodes = graph(block(qk_norm))
    svg = ET.fromstring(draw(nodes, lying))
    width, height = (float(svg.get(side)) for side in ("width", "height"))
    groups = svg.findall("g")
    assert [group.get("data-node") for group in groups] == [node.id for node in nodes]
    boxes = {}
    for group in groups:
        assert (group.get("role"), group.get("tabindex")) == ("button", "0") and group.get("aria-label")
        box = group.find("rect[@class='box']")
        x, y, w, h = (float(box.get(k)) for k in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        boxes[group.get("data-node")] = (x, y, w, h)
    names = list(boxes)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            (ax, ay, aw, ah), (bx, by, bw, bh) = boxes[a], boxes[b]
            assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay, f"{a} overlaps {b}"
    assert len(svg.findall("circle[@class='plus']")) == 2


def test_labels_are_escaped():
    nodes = graph(block())
    nodes[0].label, nodes[0].meaning = "<img src=x>", '"><script>'
    svg = draw(nodes)
    assert "<img" not in svg and "<script" not in svg
    assert re.search("&lt;img", svg)
