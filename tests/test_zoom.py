"""A window of the attention square: in the link, in the request, in the picture, and by zooming in a browser."""

import json
from urllib.parse import parse_qs, urlparse

import browser as b
import numpy as np
import pytest
import torch
from conftest import make_lm

from viz.nodes import cards
from viz.nodes.square import MOST
from viz.state import UiState, fit, parse
from viz.theme import LIGHT

N = 300


def picture(lm, ids, **state):
    (first, *_) = cards(lm, ids, UiState(layer=1, head=2, **state), LIGHT)
    return first


@pytest.fixture(scope="module")
def ids() -> list[int]:
    return torch.randint(131, (N,), generator=torch.Generator().manual_seed(1)).tolist()


def test_the_window_of_a_link(ids):
    state, notes = parse("zoom=100-163,60-120")
    assert state.window == ((100, 164), (60, 121)) and notes == [] and parse(state.query())[0] == state
    fitted, notes = fit(state, layers=2, heads=2, tokens=150, nodes=["logits"])
    assert fitted.zoom == "100-149,60-120" and notes == []
    gone, notes = fit(state, layers=2, heads=2, tokens=50, nodes=["logits"])
    assert gone.zoom == "" and notes == ["there is no window 100-163,60-120 in 50 tokens: showing the whole square"]
    assert fit(parse("zoom=9-3,0-5")[0], layers=1, heads=1, tokens=20, nodes=["logits"])[0].zoom == ""


@pytest.mark.parametrize("zoom", ["1-2", "a-b,c-d", "1-2,3-4,5-6", "-1-2,3-4", "1-2,3-99999999", "٣-4,5-6", "<b>", 5, None])
def test_a_window_that_is_none_is_refused(zoom):
    state, notes = parse({"zoom": zoom})
    assert state.zoom == "" and len(notes) == 1 and "zoom" in notes[0]


def test_the_picture_of_a_window_holds_the_model_s_own_numbers(ids):
    lm = make_lm()
    card = picture(lm, ids, node="pattern", stage="pattern", zoom="200-263,150-230")
    whole = lm.capture(ids, ["blocks.1.attn.hook_pattern"])["blocks.1.attn.hook_pattern"][0, 2].numpy()
    z = np.asarray(card.figure.data[0].z, np.float32)
    seen = np.tril(np.ones((N, N), bool))[200:264, 150:231]
    np.testing.assert_allclose(np.where(seen, z, 0), whole[200:264, 150:231], rtol=1e-5, atol=1e-7)
    assert list(card.figure.layout.xaxis.range) == [149.5, 230.5] and list(card.figure.layout.yaxis.range) == [263.5, 199.5]
    assert card.figure.layout.meta["window"] == "200-263,150-230"
    assert "64 × 81 of 300 × 300, nothing pooled, query_pos 200 to 263, key_pos 150 to 230" in card.caption
    assert np.asarray(card.figure.data[0].x)[[0, -1]].tolist() == [150, 230]


def test_only_a_pooled_picture_offers_a_window(ids):
    lm = make_lm()
    pooled, small = picture(lm, ids), picture(lm, ids[:60])
    assert pooled.figure.layout.meta["window"] == "all" and "zoom in for a window" in pooled.caption
    assert "window" not in small.figure.layout.meta and "zoom in" not in small.caption
    wide = picture(lm, ids, zoom="0-299,0-99")
    assert (
        max(np.asarray(wide.figure.data[0].z).shape) <= MOST and "largest |x| of each 3 × 3, query_pos 0 to 299" in wide.caption
    )


def test_the_hidden_first_key_stays_hidden_in_a_window(ids):
    card = picture(make_lm(), ids, zoom="0-50,0-50", hide_first=1)
    assert list(card.figure.layout.xaxis.range) == [0.5, 50.5] and "key 0 hidden" in card.caption


@pytest.mark.browser
def test_zooming_into_a_pooled_square_asks_for_the_window_and_a_double_click_leaves_it():
    from playwright.sync_api import sync_playwright

    import app

    if b.chromium() is None:
        pytest.skip("no Chromium here")
    prompt = "def area(width, height): return width * height\n" * 6
    with b.serving(app.build([])) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=b.chromium(), args=b.FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        b.visit(page, address)
        b.run(page, prompt)
        window = "document.querySelector('#cards-main .gd').layout.meta.window"
        assert page.evaluate(window) == "all"
        zoom = {"xaxis.range[0]": 99.6, "xaxis.range[1]": 140.4, "yaxis.range[0]": 180.4, "yaxis.range[1]": 119.6}
        relayout = "(zoom) => BlockscopePlotly.relayout(document.querySelector('#cards-main .gd'), zoom)"
        b.after(page, lambda: page.evaluate(relayout, zoom))
        assert page.evaluate(window) == "120-180,100-140"
        trace = b.main_trace(page)
        assert len(trace["z"]) == 61 and len(trace["z"][0]) == 41
        assert parse_qs(urlparse(page.url).query)["zoom"] == ["120-180,100-140"]
        b.shot(page, "zoom_1280")
        box = page.locator("#cards-main .gd .nsewdrag").first.bounding_box()
        b.after(page, lambda: page.mouse.dblclick(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2))
        assert page.evaluate(window) == "all" and "zoom" not in page.url
        assert json.loads(page.evaluate("JSON.stringify(document.querySelector('#cards-main .gd').layout.xaxis.range)"))[0] < 0
        browser.close()
