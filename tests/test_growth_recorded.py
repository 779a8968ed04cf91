"""The Growth page's recorded runs without a browser: choices, curves, maps, captions, figures."""

import base64
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from browser import HOSTILE
from growth_page import figure, look, stored
from growth_records import LAYERS, SNAPSHOTS, STEPS, made_up

from model import load
from viz.figures.growth import AROUND, WORD, Level, Line, Panel, apart, decades, panel, power, shade
from viz.figures.growth_heads import heads, short
from viz.growth_state import GrowthState
from viz.pages import growth_frames
from viz.pages.growth import Growth
from viz.pages.growth_records import Records, over_heads, worst_head
from viz.pages.growth_sections import SECTIONS
from viz.shelf import Shelf
from viz.store import Store
from viz.theme import DARK, LIGHT


def test_only_what_changed_travels(growth):
    first = look(growth)
    assert first["sections"].keys() == SECTIONS.keys() and first["token"] == 5
    assert len(json.dumps(first)) < 40_000
    have = {name: section["key"] for name, section in first["sections"].items()}
    assert look(growth, have)["sections"] == {}
    assert look(growth, have, quantity="entropy")["sections"].keys() == {"heads", "result", "opened"}
    assert look(growth, have, live_lr="0.01")["sections"].keys() == {"form"}
    assert look(growth, have, group="stress", lr="0.1", run_seed="0")["sections"] == {}  # what is shown anyway


def test_a_learning_rate_is_that_of_a_run_and_never_between(growth):
    choice = look(growth, group="sweep", lr="0.02")["sections"]["choice"]
    assert choice["lrs"] == ["0.001", "0.01", "0.1", "0.3"] and choice["lr"] == "0.01"
    answer = look(growth, group="sweep", lr="0.02")
    assert "no run has the learning rate '0.02': showing 0.01, the nearest that was run" in answer["notes"]
    assert answer["state"]["lr"] == "0.01" and "lr=0.01" in answer["query"]
    for lr in ("0", "-3", "1e9", "nan", HOSTILE):
        answer = look(growth, group="sweep", lr=lr)
        assert answer["sections"]["choice"]["lr"] in choice["lrs"] and answer["notes"], lr


def test_both_arms_and_the_fixes_against_the_run_without(growth):
    choice = look(growth, group="fixes", fix="soft-cap 50")["sections"]["choice"]
    assert choice["names"] == ["QK-norm off", "made up: soft-cap 50"]
    assert choice["table"]["arms"] == ["off", "on", "QK-clip 20", "soft-cap 50"]
    assert all(len(row) == len(choice["table"]["columns"]) for row in choice["table"]["rows"])
    seeds = look(growth, run_seed="all")["sections"]["choice"]
    assert seeds["seeds"] == ["0", "1", "2", "all"] and seeds["several"]


def test_curves_are_the_numbers_of_the_record(growth, folder):
    records = Records(folder)
    left = records.read(records.choose(GrowthState()).pairs[0][0])
    card = next(c for c in look(growth)["sections"]["panels"]["cards"] if c["id"] == "growth-max_logit")
    drawn = figure(growth, card)
    assert len(drawn["data"]) == 2 * LAYERS + 1  # every layer of both arms, and the bound of the one that has it
    last = drawn["data"][LAYERS - 1]
    values = np.frombuffer(base64.b64decode(last["y"]["bdata"]), "f4")
    np.testing.assert_array_equal(values, left.values["max_logit"][:, LAYERS - 1].max(-1))
    assert drawn["layout"]["yaxis"]["type"] == "log" and "dashed: what QK-norm allows" in card["caption"]
    one = figure(
        growth, next(c for c in look(growth, at_layer=1, at_head=2)["sections"]["panels"]["cards"] if "max_logit" in c["id"])
    )
    picked = next(t for t in one["data"] if t["name"] == "QK-norm off, layer 1, head 2")
    np.testing.assert_array_equal(
        np.frombuffer(base64.b64decode(picked["y"]["bdata"]), "f4"), left.values["max_logit"][:, 1, 2]
    )


def test_every_step_of_the_maps_and_patterns_is_the_record(growth, folder):
    answer = look(growth, at_layer=2, at_head=1)["sections"]
    told, drawn = stored(growth, answer["heads"]["frames"]), stored(growth, answer["patterns"]["frames"])
    records = Records(folder)
    left = records.read(records.choose(GrowthState()).pairs[0][0])
    assert told["steps"] == drawn["steps"] == SNAPSHOTS.tolist()
    bytes_ = np.frombuffer(base64.b64decode(drawn["patterns"][0]["data"]), np.uint8).reshape(len(SNAPSHOTS), 12, 12)
    np.testing.assert_array_equal(bytes_, left.patterns[:, 2, 1])
    assert told["heads"][0]["text"][-1][3][3] == short(float(left.values["max_logit"][-1, 3, 3]))
    layer, head = worst_head(left)
    assert told["heads"][0]["most"][-1].endswith(f"in layer {layer} head {head}")


def test_captions_are_read_from_the_records(growth, folder):
    story = " ".join(look(growth)["sections"]["choice"]["story"])
    records = Records(folder)
    off = [records.read(e) for e in records.own("stress") if e.arm == "off"]
    low = min(float(r.values["max_logit"].max()) for r in off)
    assert f"{low:,.0f} to" in story and "did not diverge" in story and "learning rate 0.1" in story
    fixes = look(growth, group="fixes")["sections"]["choice"]["story"][0]
    assert "made up: QK-clip 20" in fixes and "one seed each" in fixes
    assert "nothing interpolated" in look(growth, group="sweep")["sections"]["choice"]["story"][0]


def test_no_records_is_a_sentence(tmp_path):
    empty = Growth(Shelf({"tiny": "tiny-llama"}, load), Store(), tmp_path)
    assert "train one below" in look(empty)["sections"]["choice"]["empty"]


def test_shipped_records_open_small():
    shipped = Growth(Shelf({"tiny": "tiny-llama"}, load), Store())
    assert len(shipped.records.entries) == 26
    answer = look(shipped)
    assert answer["sections"]["choice"]["groups"][0][0] == "stress" and len(answer["sections"]["choice"]["story"]) == 2
    cards = [card for section in answer["sections"].values() for card in section.get("cards", [])]
    urls = [card["url"] for card in cards if "url" in card] + [answer["sections"][n]["frames"] for n in ("heads", "patterns")]
    sent = sum(len(shipped.store.get(url.rpartition("/")[2])) for url in urls)
    assert len(json.dumps(answer)) + sent < 300_000, "the page's own bytes"


def test_panels_hold_what_cannot_be_drawn_out_and_mark_levels():
    lines = [Line("off", STEPS, np.array([1, np.inf, 0, -1, np.nan, 10, 1e5]), 0, label="off")]
    drawn = panel(Panel(lines, log=True, levels=[Level(50, "bigram")]), LIGHT, revision="x")
    data, layout = drawn.figure.data, drawn.figure.layout
    assert list(data[0].y) == [1, 10, 100_000] and layout.shapes[1].y0 == 50
    assert {a.text for a in layout.annotations} == {"off", "bigram"} and layout.yaxis.range[0] < 0 < 5 < layout.yaxis.range[1]
    assert len(panel(Panel([]), DARK, revision="x").figure.data) == 0  # plotly accepts a picture without lines
    assert power(3) == "1,000" and power(6) == "10⁶" and shade(0, 4) < shade(3, 4) == 1.0
    assert len(decades(0, 40)["tickvals"]) < 9


def test_a_map_names_its_cells_and_frames_the_chosen():
    values = np.array([[1.0, 13_855.0], [np.nan, np.inf]], np.float32)
    drawn = heads(
        [values, values[:1]], ["off", HOSTILE], values, LIGHT, revision="x", unit="|logit|", chosen=[(0, 1), None]
    ).figure
    assert (
        drawn.data[0].text[0][1] == "13.9k"
        and list(drawn.data[0].text[1]) == ["", "inf"]
        and drawn.data[0].customdata[1][1] == 1025
    )
    assert len(drawn.layout.shapes) == 1 and "<img" not in drawn.data[1].hovertemplate
    assert [short(x) for x in (4.3e37, 3.27e12, 2.5e9, 0.0)] == ["4.3e37", "3.3e12", "2.5G", "0"], "a cell is about 50 px wide"
    assert (
        over_heads(values[None], "max_logit").tolist() == [[13_855.0, np.inf]]
        and over_heads(values[None], "entropy")[0, 0] == 1
    )


def test_an_arm_that_ended_earlier_stays_at_its_last_step_while_the_other_goes_on():
    whole = made_up()
    short = replace(
        whole, step=whole.step[:2], train_loss=whole.train_loss[:2], validation_loss=whole.validation_loss[:2],
        values={name: value[:2] for name, value in whole.values.items()}, bound=whole.bound[:2],
        snapshot_step=whole.snapshot_step[:1], patterns=whole.patterns[:1],
    )  # fmt: skip
    both = SimpleNamespace(shown=lambda: [SimpleNamespace(record=record) for record in (short, whole)])
    assert growth_frames.steps_of(both) == whole.snapshot_step.tolist()
    assert [growth_frames._last_at(short.snapshot_step, step) for step in whole.snapshot_step] == [0] * len(whole.snapshot_step)
    assert [growth_frames._last_at(np.array([4, 8]), step) for step in (0, 4, 7, 8, 90)] == [0, 0, 0, 1, 1]


def test_labels_keep_their_order_and_a_words_height_from_each_other():
    assert apart([0.5, 0.1], 0.1) == [0.5, 0.1], "what does not collide stays"
    np.testing.assert_allclose(apart([0.5, 0.5, 0.52], 0.1), [0.4067, 0.5067, 0.6067], atol=1e-4)
    np.testing.assert_allclose(apart([0.30, 0.33, 0.41], 0.1), [0.2467, 0.3467, 0.4467], atol=1e-4)


@pytest.mark.parametrize("height", [250, 280, 300])
def test_arms_that_end_close_together_both_keep_their_names(height):
    ends = {"off": 2.04, "on": 2.02}
    lines = [
        Line(name, STEPS, np.linspace(3, end, len(STEPS)), i, label=name, width=2.25)
        for i, (name, end) in enumerate(ends.items())
    ]
    drawn = panel(
        Panel(lines, levels=[Level(2.03, "bigram"), Level(1.88, "trigram")]), LIGHT, revision="x", height=height
    ).figure
    low, high = drawn.layout.yaxis.range
    px = {a.text: (a.y - low) / (high - low) * (height - AROUND) + a.yshift for a in drawn.layout.annotations}
    assert set(px) == {"off", "on", "bigram", "trigram"} and px["off"] > px["bigram"] > px["on"] > px["trigram"]
    assert min(np.diff(sorted(px.values()))) >= WORD - 0.2, "11 px letters"
    many = [Line(f"layer {i}", STEPS, np.full(len(STEPS), 2 + i / 1e3), 0, label=f"layer {i}") for i in range(40)]
    assert 2 <= len(panel(Panel([*many, *lines]), LIGHT, revision="x").figure.layout.annotations) < 10, (
        "far from their ends they say nothing"
    )
