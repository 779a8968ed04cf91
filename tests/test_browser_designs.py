"""Changing parts and opening other designs in a real browser: the panel, the link, the chooser, nodes that only some have."""

import re
from urllib.parse import parse_qs, urlsplit

import browser as b
import numpy as np
import pytest
from playwright.sync_api import expect
from test_browser import VIEWPORTS

import app
from model import load
from model.view import Request

pytestmark = pytest.mark.browser
SHIPPED = "assets/checkpoints/code-qknorm-off"


@pytest.fixture(scope="module")
def address():
    """The app as a person starts it: the shipped pair, and a small preset of every design."""
    with b.serving(app.build([], max_tokens=300)) as address:
        yield address


def open_panel(page):
    page.locator("#surgery-open").click()
    expect(page.locator("#surgery")).to_be_visible()


def logits(lm, prompt: str) -> np.ndarray:
    (view,) = lm.views(lm.encode(prompt), [Request("blocks.0.attn.hook_logits", select=(("head", 0),))])
    return np.where(view.masked, np.nan, view.values)


def drawn(page) -> np.ndarray:
    return np.array(b.main_trace(page)["z"], float)


# ---- the panel -----------------------------------------------------------------------------------------------------


def test_a_changed_part_changes_the_picture_the_diagram_and_the_link(page, address):
    b.visit(page, f"{address}/?prompt=def+f(x)")
    before = drawn(page)
    assert page.locator("#surgery").is_hidden() and page.locator("#differs").is_hidden()
    open_panel(page)
    assert page.locator("#parts .part").count() >= 12
    b.after(page, lambda: page.select_option("#part-norm", "layernorm"))
    lm = load(SHIPPED, device="cpu")
    np.testing.assert_allclose(drawn(page), logits(lm.variant(norm="layernorm"), "def f(x)"), rtol=1e-4, atol=1e-5)
    assert "LayerNorm" in page.locator('.standing [data-node="ln1"]').text_content()
    assert parse_qs(urlsplit(page.url).query)["change"] == ["norm=layernorm"]
    said = page.locator("#differs").text_content()
    assert "norm RMSNorm → LayerNorm" in said and "counterfactual: these weights were trained without it" in said
    assert "e.g. blocks.0.ln1.bias" in said
    expect(page.locator("#strip-legend")).to_contain_text("as loaded")
    b.after(page, lambda: page.select_option("#qk", "head"))  # the short cut beside the picture is part of the same state
    assert page.locator("#part-qk_norm").input_value() == "head" and page.locator("#surgery-open").text_content().endswith("2")
    there = page.url
    b.after(page, lambda: page.locator("#differs [data-reset]").click())
    np.testing.assert_array_equal(drawn(page), before)
    assert "change=" not in page.url and "qk=" not in page.url and page.locator("#differs").is_hidden()
    b.visit(page, there)
    assert page.locator("#surgery").is_hidden() and "LayerNorm" in page.locator("#differs").text_content()
    assert page.locator("#part-norm").input_value() == "layernorm" and page.locator("#qk").input_value() == "head"


def test_any_number_can_be_typed_and_a_wrong_one_is_a_sentence(page, address):
    b.visit(page, f"{address}/?prompt=def+f(x)")
    open_panel(page)
    page.select_option("#part-window", label="another number …")
    number = page.locator(".part:has(#part-window) input")
    number.fill("3")
    b.after(page, lambda: number.press("Enter"))
    assert np.isfinite(drawn(page)).sum(1).max() == 3 and "window=3" in page.url
    assert number.is_visible() and number.input_value() == "3"
    number.fill("0.5")
    b.after(page, lambda: number.press("Enter"))
    expect(page.locator("#notice")).to_contain_text("Window was left as built: expected a number from 1")
    assert page.locator("#part-window").input_value() == "" and number.is_hidden()


def test_what_a_model_has_no_place_for_says_why(page, address):
    b.visit(page, f"{address}/?prompt=def+f(x)&model=tiny-deepseek-v3&qk=head")
    expect(page.locator("#notice")).to_contain_text("latent attention has no such slot")
    assert page.locator("#qk").is_disabled()
    open_panel(page)
    assert page.locator("#part-softcap").count() == 0 and page.locator("#part-window").count() == 1
    expect(page.locator("#parts-not")).to_contain_text("logit soft-cap, attention sink, biases")
    b.after(page, lambda: page.select_option("#part-mlp", "relu"))
    assert "in 1 of 4 layers" in page.locator("#differs").text_content()


def test_the_panel_by_keyboard_and_as_a_sheet_on_a_phone(chrome, address):
    context = chrome.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    b.visit(page, f"{address}/?prompt=def+f(x)")
    page.locator("#surgery-open").focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(100)
    sheet, picture = page.locator("#surgery").bounding_box(), page.locator("#cards-main .gd").bounding_box()
    assert sheet["y"] + sheet["height"] <= 845 and sheet["height"] < 844 / 2 and sheet["width"] == 390
    assert picture["y"] < sheet["y"] - 100, "the picture that changes stays in sight"
    assert page.evaluate("document.activeElement.id") == "part-qk_norm"
    page.keyboard.press("Escape")
    assert page.locator("#surgery").is_hidden() and page.evaluate("document.activeElement.id") == "surgery-open"
    context.close()


# ---- the chooser and other designs ---------------------------------------------------------------------------------


def test_the_chooser_has_the_shipped_models_first_and_every_design_as_random_weights(page, address):
    b.visit(page, f"{address}/?prompt=def+f(x)")
    menu = page.evaluate(
        """() => [...document.querySelector("#model").children].map((e) => e.tagName === "OPTGROUP" ? [e.label, e.children.length] : e.value)"""
    )
    assert (
        menu[:4] == ["code-qknorm-off", "code-qknorm-on", "code-stress-qknorm-off", "code-stress-qknorm-on"]
        and menu[4][0] == "random weights"
        and menu[4][1] >= 17
        and len(menu) == 5
    )
    assert "random" not in page.locator("#size").text_content()
    b.after(page, lambda: page.select_option("#model", "tiny-gpt2"))
    assert "random weights, seed 0" in page.locator("#size").text_content() and "model=tiny-gpt2" in page.url
    assert page.locator('.standing [data-node="rope"]').count() == 0


def test_a_node_of_a_mixture_of_experts(page, address):
    b.visit(page, f"{address}/?prompt=def+f(x)&model=tiny-mixtral&layer=1")
    b.click_node(page, "router")
    lm = load("tiny-mixtral", device="cpu")
    tokens = lm.encode("def f(x)")
    taps = lm.capture(tokens, ["blocks.1.mlp.*"])
    np.testing.assert_allclose(drawn(page), taps["blocks.1.mlp.hook_router_logits"][0], rtol=1e-5, atol=1e-6)
    b.click_node(page, "chosen")
    used = np.isfinite(drawn(page))
    assert (used.sum(1) == 2).all()
    assert used[3].nonzero()[0].tolist() == sorted(taps["blocks.1.mlp.hook_expert_indices"][0, 3].tolist())
    b.click_node(page, "experts")
    assert drawn(page).shape == (2, 132)


def test_a_node_of_latent_attention(page, address):
    b.visit(page, f"{address}/?prompt=def+f(x)&model=tiny-deepseek-v3&layer=1&node=kv_latent")
    lm = load("tiny-deepseek-v3", device="cpu")
    latent = lm.capture(lm.encode("def f(x)"), ["blocks.1.attn.hook_kv_latent"])["blocks.1.attn.hook_kv_latent"][0]
    np.testing.assert_allclose(drawn(page), latent, rtol=1e-5, atol=1e-6)
    assert "kept per token" in page.locator("#cards-side").text_content()
    b.click_node(page, "rope")
    assert "Rotation of q and k" in page.locator("#main-title").text_content()
    assert page.locator("#layer-kind").text_content() == "16 experts"
    b.after(page, lambda: page.locator("#layer-less").click())
    assert page.locator("#layer-kind").text_content() == "one MLP"


def test_a_soft_cap_is_a_stage_and_a_node(page, address):
    b.visit(page, f"{address}/?prompt=def+f(x)&model=tiny-gemma2")
    b.click_node(page, "capped")
    assert page.locator('input[value="capped"]').is_checked()
    b.after(page, lambda: page.locator('input[value="raw"]').check(force=True))
    assert page.locator('.standing [data-node="logits"]').get_attribute("aria-pressed") == "true"
    b.after(page, lambda: page.locator('input[value="capped"]').check(force=True))
    assert page.locator('.standing [data-node="capped"]').get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", VIEWPORTS, ids=lambda size: f"{size[0]}x{size[1]}")
def test_designs_fit_every_screen(chrome, address, size, theme):
    context = chrome.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    for model, node, layer in (
        ("tiny-deepseek-v3", "router", 1), ("tiny-gpt-oss", "pattern", 0), ("tiny-gemma3", "ln1_post", 5), ("tiny-2017", "ln1", 0), ("tiny-palm", "gate", 0),
    ):  # fmt: skip
        b.visit(page, f"{address}/?model={model}&node={node}&layer={layer}&change=biases=on&theme={theme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], model
        b.shot(page, f"design_{model}_{size[0]}_{theme}", full=size[0] < 900)
    open_panel(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    clipped = page.evaluate(
        """() => [...document.querySelectorAll("#surgery label, #surgery button, .switches *, #differs button")]
        .filter((e) => e.offsetParent && !e.matches("select, option") && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline").map((e) => e.textContent)"""
    )
    assert clipped == [] and re.search(r"Change a part · 1", page.locator("#surgery-open").text_content())
    b.shot(page, f"panel_{size[0]}_{theme}")
    context.close()
