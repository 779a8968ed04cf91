"""Every node of every design, through the page's own handler: it answers, and with a picture of its own tensor."""

import gzip
import json

import numpy as np
import plotly.graph_objects as go
import pytest

from model import PRESETS, load
from viz.pages.answers import LARGEST, block_nodes
from viz.pages.explore import Explore
from viz.shelf import Shelf
from viz.store import Store

TINY = [name for name in PRESETS if name.startswith("tiny-")]
PROMPT = "def area(w, h):\n    return w * h\n"  # longer than any window or chunk of the tiny presets


def kinds(name: str) -> list[int]:
    """One layer of each kind of block, and the last, after which comes the next token."""
    blocks = PRESETS[name].blocks
    return sorted({blocks.index(block) for block in blocks} | {len(blocks) - 1})


def figure(explore: Explore, card: dict) -> dict:
    body = gzip.decompress(explore.store.get(card["url"].removeprefix("data/")))
    assert len(body) < LARGEST
    return json.loads(body, parse_constant=lambda word: pytest.fail(f"{card['id']}: {word} in the JSON"))


SEEN = set()


def check(explore: Explore, card: dict) -> None:
    assert card["title"] and card["caption"] and "not sent" not in card["caption"]
    assert card.get("url") or card["table"] or "off" in card["title"], card["id"]
    if card.get("url"):
        drawn = figure(explore, card)
        if card["id"] not in SEEN:  # plotly knows every property; once for each kind of picture, since it takes its time
            SEEN.add(card["id"])
            go.Figure(drawn)
        bar = drawn["layout"].get("coloraxis")
        assert bar is None or (np.isfinite([bar["cmin"], bar["cmax"]]).all() and bar["cmin"] < bar["cmax"]), card["id"]
        assert drawn["data"] and drawn["layout"]["height"] > 0
        for name, axis in drawn["layout"].items():
            if "axis" in name and "range" in axis:
                assert np.isfinite(axis["range"]).all(), (card["id"], name)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_every_node_of_every_layer_answers_with_its_own_picture(name):
    explore = Explore(Shelf({name: name}, lambda source: load(source, device="cpu")), Store())
    ask = {"prompt": PROMPT, "head": 1, "token": 7}
    assert [answer for answer in explore.run({"token": 1, "state": ask}) if answer["kind"] == "error"] == []
    for layer in kinds(name):
        for node in block_nodes(PRESETS[name].blocks[layer]):
            view = explore.look({"token": 2, "state": ask | {"layer": layer, "node": node.id}})
            assert view["kind"] == "view" and view["notes"] == [] and view["state"]["node"] == node.id, (layer, node.id)
            cards = view["cards"]
            assert cards and [card["role"] for card in cards].count("main") == 1 and cards[0]["role"] == "main"
            assert len({card["id"] for card in cards}) == len(cards)
            for card in cards:
                check(explore, card)
            if not node.off:
                own = [*node.taps, *(tap.rpartition(".")[2] for tap in node.taps)]
                assert any(tap in cards[0]["caption"] for tap in own), (layer, node.id, cards[0]["caption"])
            assert (node.id in view["numbers"]) != node.off, node.id
