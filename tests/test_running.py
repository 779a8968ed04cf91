"""A slow first run: its view comes with the layer that it shows, the others follow, and what has run stays where it is stopped."""

import time

import browser as b
import pytest
from conftest import make_lm, tiny_config
from playwright.sync_api import expect

import app
from model.run import LM
from viz.pages import running
from viz.pages.explore import Explore
from viz.shelf import Shelf
from viz.store import Store

LAYERS = 8
TEXT = "a slow model"


@pytest.fixture
def ran(monkeypatch) -> list[int]:
    """The stages that run, in order; a view waits for no layer that it does not show."""
    stages, step = [], LM.step
    monkeypatch.setattr(LM, "step", lambda self, stage, *rest: stages.append(stage) or step(self, stage, *rest))
    monkeypatch.setattr(running, "SOON", -1.0)
    return stages


@pytest.fixture
def explore() -> Explore:
    return Explore(Shelf({"tiny": "tiny"}, lambda source: make_lm(tiny_config(layers=LAYERS))), Store())


def ask(token=1, **state) -> dict:
    return {"token": token, "state": {"prompt": TEXT, **state}}


def first(answers) -> dict:
    """The first that is no progress."""
    return next(answer for answer in answers if answer["kind"] != "progress")


def test_the_view_comes_with_its_layer_and_the_others_follow_once(explore, ran):
    page = explore.run(ask(layer=2))
    view = first(page)
    assert view["kind"] == "view" and ran == [-1, 0, 1, 2]
    assert view["strip"]["layers"] == LAYERS and len(view["strip"]["peaks"]) == 3
    assert "3 of 8 layers so far" in view["strip"]["label"]
    *_, last = page
    assert last["kind"] == "strip" and ran[4:9] == [3, 4, 5, 6, 7]  # then the counterfactual
    assert len(last["strip"]["peaks"]) == LAYERS and "so far" not in last["strip"]["label"]
    whole = list(Explore(Shelf({"tiny": "t"}, lambda s: make_lm(tiny_config(layers=LAYERS))), Store()).run(ask(layer=2)))[-1]
    assert whole["strip"]["peaks"] == last["strip"]["peaks"]


def test_a_run_that_was_stopped_goes_on_from_there(explore, ran):
    page = explore.run(ask(layer=1))
    first(page)
    page.close()
    assert ran == [-1, 0, 1]
    assert explore.look(ask(2, layer=1, head=2))["kind"] == "view"
    assert explore.look(ask(3, layer=4))["kind"] == "run"  # a layer that has not run is not run outside the queue
    view = first(explore.run(ask(4, layer=4)))
    assert ran[-3:] == [2, 3, 4] and len(view["strip"]["peaks"]) == 5
    assert len(explore.api(prompt=TEXT)["strip"]["peaks"]) == LAYERS


@pytest.mark.parametrize("node", ["ln1", "resid_pre", "resid_post"])
def test_what_is_drawn_from_every_layer_waits_for_every_layer(node, explore, ran):
    view = first(explore.run(ask(layer=2, node=node)))
    if view["state"]["node"] == node:
        assert len(view["strip"]["peaks"]) == LAYERS


def test_the_strip_grows_while_the_others_run(explore, ran, monkeypatch):
    step = LM.step
    monkeypatch.setattr(LM, "step", lambda self, stage, *rest: time.sleep(0.35 if stage > 1 else 0) or step(self, stage, *rest))
    answers = list(explore.run(ask(layer=1)))
    filling = [a for a in answers if a["kind"] == "filling"]
    counts = [len(a["strip"]["peaks"]) for a in filling]
    assert counts == sorted(counts) and 2 < counts[-1] <= LAYERS and {a["total"] for a in filling} == {LAYERS + 1}
    assert all(a["what"] == f"layer {a['done'] - 1:.0f}" for a in filling if a["done"] == int(a["done"]) <= LAYERS)


@pytest.mark.browser
def test_a_slow_run_on_the_page_can_be_watched_stopped_and_resumed(chrome, explore, monkeypatch):
    pause, step = [3.0], LM.step
    monkeypatch.setattr(
        LM, "step", lambda self, stage, *rest: time.sleep(pause[0] if stage > 2 else 0.2) or step(self, stage, *rest)
    )
    with b.serving(app.web(explore.shelf)) as address:
        page = chrome.new_page(viewport={"width": 1280, "height": 720})
        page.goto(address + "/?prompt=one+two&layer=0")
        b.settle(page)
        bars = page.locator("#strip rect.peak")
        assert bars.count() < LAYERS and page.locator("#strip g.layer").count() == LAYERS
        expect(page.locator("#progress span")).to_contain_text(f"of {LAYERS + 1}")
        expect(page.locator("#strip-legend")).to_contain_text("layers so far")
        began = time.monotonic()
        page.click("#cancel")
        expect(page.locator("#notice span")).to_contain_text("Stopped. The last view is kept.")
        assert time.monotonic() - began < 1.5 and page.locator("#go").is_visible()
        stood = bars.count()
        assert 0 < stood < LAYERS
        page.wait_for_timeout(3500)
        assert bars.count() == stood  # nothing runs on
        pause[0] = 0.05
        page.click("#go")
        expect(bars).to_have_count(LAYERS, timeout=20_000)
        expect(page.locator("#strip-legend")).not_to_contain_text("so far")
        expect(page.locator("#cancel")).to_be_hidden()
        page.close()
