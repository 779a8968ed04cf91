"""The diagram follows the module tree: what a block has is drawn, in order, and what it lacks is not."""

import itertools
import re
import resource
import xml.etree.ElementTree as ET
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from model import PRESETS
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


def block(qk_norm: bool = False, norm=RMSNorm, **attention) -> PreNorm.Config:
    inner = RMSNorm.Config(d=8) if qk_norm else None
    attn = Attention.Config(
        d_model=24, n_heads=6, n_kv_heads=2, d_head=8, q_norm=inner, k_norm=inner, rope=Rope.Config(d=8, base=1e4, pairing="half"),
        **attention,
    )  # fmt: skip
    return PreNorm.Config(ln1=norm.Config(d=24), attn=attn, ln2=norm.Config(d=24), mlp=SwiGLU.Config(d_model=24, d_mlp=40))


def by_wiring(name: str):
    norms = {f.name: block().ln1 for f in fields(WIRINGS[name].Config) if f.name.startswith("ln")}
    return WIRINGS[name].Config(attn=block().attn, mlp=block().mlp, **norms)


def by_id(config) -> dict:
    return {node.id: node for node in graph(config)}


def reads(config) -> dict[str, set[str]]:
    return {node.id: set(node.reads) for node in graph(config)}


def tiny(name: str, layer: int = 0):
    return PRESETS[f"tiny-{name}"].blocks[layer]


def test_nodes_come_in_reading_order():
    assert [node.id for node in graph(block())] == IDS


@pytest.mark.parametrize("qk_norm", [False, True])
def test_every_tap_of_the_block_belongs_to_exactly_one_node(qk_norm):
    config = block(qk_norm)
    taps = [tap for node in graph(config) for tap in node.taps]
    assert sorted(taps) == sorted(taps_of(config.build()))


def test_every_node_but_an_empty_slot_has_numbers():
    for node in graph(block()):
        assert bool(node.shown) != node.off, node.id
        assert set(node.shown) <= set(node.taps)


def test_the_qk_norm_slot():
    off, on = by_id(block())["qk_norm"], by_id(block(qk_norm=True))["qk_norm"]
    assert off.off and off.taps == [] and off.label == "QK-norm off"
    assert not on.off and on.shown == ["attn.q_norm.hook_out", "attn.k_norm.hook_out"]


def test_edges_are_the_data_flow():
    feeds = reads(block())
    assert feeds["ln1"] == {"resid_pre"} and feeds["ln2"] == {"resid_mid"}
    assert feeds["q"] == feeds["k"] == feeds["v"] == {"ln1"}
    assert feeds["qk_norm"] == {"q", "k"} and feeds["rope"] == {"qk_norm"}
    assert feeds["z"] == {"pattern", "v"}
    assert feeds["post"] == {"act", "up"}
    assert [name for name, node in by_id(block()).items() if node.adds] == ["attn_out", "mlp_out"]
    assert [name for name, node in by_id(block()).items() if node.stream] == ["resid_pre", "resid_mid", "resid_post"]


def test_a_post_norm_stands_on_the_stream_after_the_add():
    nodes = by_id(by_wiring("post"))
    assert [name for name, node in nodes.items() if node.spine] == ["ln1", "ln2"]
    assert nodes["q"].reads == ["resid_pre"] and set(nodes["ln1"].reads) == {"resid_pre", "attn_out"}
    assert nodes["attn_out"].row < nodes["ln1"].row < nodes["resid_mid"].row < nodes["gate"].row


def test_a_parallel_mlp_reads_the_norm_of_attention():
    feeds = reads(by_wiring("parallel"))
    assert feeds["gate"] == feeds["up"] == feeds["q"] == {"ln1"}
    assert feeds["resid_post"] == {"resid_pre", "attn_out", "mlp_out"} and "resid_mid" not in feeds


@pytest.mark.parametrize("wiring", ["output", "sandwich"])
def test_a_norm_on_an_output_stands_between_sublayer_and_add(wiring):
    nodes = by_id(by_wiring(wiring))
    assert nodes["attn_module_out"].reads == ["z"] and nodes["ln1_post"].reads == ["attn_module_out"]
    assert nodes["attn_out"].reads == ["ln1_post"] and nodes["attn_out"].adds and not nodes["ln1_post"].spine
    assert nodes["ln2_post"].reads == ["mlp_module_out"] and nodes["mlp_out"].reads == ["ln2_post"]


def test_latent_attention_has_its_branches():
    feeds = reads(tiny("deepseek-v3"))
    assert feeds["q_latent"] == feeds["kv_latent"] == feeds["k_rope"] == {"ln1"}
    assert feeds["attn.q_norm"] == {"q_latent"} and feeds["q"] == {"attn.q_norm"} and feeds["attn.kv_norm"] == {"kv_latent"}
    assert (
        feeds["rope"] == {"q", "k_rope"} and feeds["keys"] == {"attn.kv_norm", "rope"} and feeds["values"] == {"attn.kv_norm"}
    )
    assert feeds["logits"] == {"rope", "keys"} and feeds["z"] == {"pattern", "values"}
    assert "qk_norm" not in feeds and "k" not in feeds


def test_experts_read_the_norm_and_the_choice_and_are_summed_with_the_shared_one():
    feeds = reads(tiny("deepseek-v3", 3))
    assert feeds["router"] == feeds["gate"] == feeds["up"] == {"ln2"} and feeds["chosen"] == {"router"}
    assert feeds["experts"] == {"ln2", "chosen"} and feeds["mlp_out"] == {"experts", "post"}
    assert reads(tiny("mixtral"))["mlp_out"] == {"experts"} and by_id(tiny("mixtral"))["mlp_out"].label == "Σ experts → add"


def test_the_order_of_norm_and_rotation_is_the_models():
    near, far = reads(tiny("llama4")), reads(tiny("llama4", 3))
    assert near["rope"] == {"q", "k"} and near["qk_norm"] == {"rope"} and near["logits"] == {"qk_norm"}
    assert "rope" not in far and far["temperature"] == {"qk_norm"} and far["logits"] == {"temperature", "qk_norm"}


def test_a_sink_stands_beside_the_softmax():
    nodes = by_id(tiny("gpt-oss"))
    assert nodes["sink"].row == nodes["pattern"].row and "sink" not in reads(block())


def test_a_plain_mlp_is_called_what_it_is():
    labels = {name: node.label for name, node in by_id(tiny("gpt2")).items()}
    assert (labels["gate"], labels["post"]) == ("W_up x", "GELU") and not {"act", "up", "rope", "capped"} & set(labels)
    assert by_id(tiny("gemma2"))["post"].label == "GELU(gate) × up"
    assert by_id(tiny("olmo2"))["ln1_post"].label == "RMSNorm" and by_id(tiny("palm"))["ln1"].label == "LayerNorm"


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

        def forward(self, x):
            x = self.hook_resid_pre(x)
            return self.hook_resid_post(x + self.mixer.hook_conv_state(x.cumsum(1)))

    nodes = graph(SimpleNamespace(build=Strange, d_model=8))
    assert [node.id for node in nodes] == ["resid_pre", "mixer.conv_state", "resid_post"]
    assert nodes[1].label == "mixer conv state" and nodes[1].shown == ["mixer.hook_conv_state"] and nodes[1].adds
    assert "mixer conv state" in draw(nodes)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_every_wiring_is_drawn_with_all_its_taps(wiring):
    config = by_wiring(wiring)
    nodes = graph(config)
    assert sorted(tap for node in nodes for tap in node.taps) == sorted(taps_of(config.build()))
    assert len({node.id for node in nodes}) == len(nodes)


def test_a_soft_cap_is_a_node_where_there_is_one():
    assert "capped" not in by_id(block())
    capped = block(softcap=30.0, sink=True)
    assert by_id(capped)["capped"].reads == ["logits"] and by_id(capped)["pattern"].reads == ["capped"]


BLOCKS = [(name, layer) for name, c in PRESETS.items() for layer in sorted({c.blocks.index(b) for b in c.blocks})]


@pytest.mark.parametrize(("name", "layer"), BLOCKS)
def test_every_published_block_is_drawn_from_its_config(name, layer):
    """Each in a few hundredths of a second and no memory, whatever its size."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nodes = graph(PRESETS[name].blocks[layer])
    with torch.device("meta"):
        taps = taps_of(PRESETS[name].blocks[layer].build())
    assert sorted(tap for node in nodes for tap in node.taps) == sorted(taps)
    places = [(node.row, lane) for node in nodes for lane in range(*node.lanes)]
    assert len(places) == len(set(places))
    rows = {node.id: node.row for node in nodes}
    for node in nodes:
        assert node.reads or node.id == "resid_pre", node.id
        assert all(rows[source] < node.row or source == node.beside for source in node.reads), node.id
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB; one block of the largest has 12 GB


@pytest.mark.parametrize("lying", [False, True])
@pytest.mark.parametrize(("name", "layer"), [pair for pair in BLOCKS if pair[0].startswith("tiny-")])
def test_no_wire_runs_through_a_box(name, layer, lying):
    nodes = graph(PRESETS[name].blocks[layer])
    svg = ET.fromstring(draw(nodes, lying))
    boxes = {
        g.get("data-node"): [float(g.find("rect").get(k)) for k in ("x", "y", "width", "height")] for g in svg.findall("g")
    }
    solid = [box for node in nodes for name, box in boxes.items() if name == node.id and not node.stream]
    for wire in svg.findall("path[@class='wire']"):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", wire.get("d"))]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            for x, y, w, h in solid:
                across = max(min(x0, x1), x + 1) < min(max(x0, x1), x + w - 1) or x + 1 < x0 == x1 < x + w - 1
                along = max(min(y0, y1), y + 1) < min(max(y0, y1), y + h - 1) or y + 1 < y0 == y1 < y + h - 1
                assert not (across and along), (wire.get("d"), (x, y, w, h))


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


def test_a_hover_says_what_the_numbers_are_of():
    nodes = by_id(block())
    assert nodes["pattern"].shown == ["attn.hook_pattern"] and "rows sum to 1" in nodes["pattern"].meaning
    assert {name for name, node in nodes.items() if node.masked} == {"logits", "pattern"}
