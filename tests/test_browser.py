"""The page in a real browser: what a person does, and what is then really drawn."""

import re
import time
from urllib.parse import parse_qs, urlsplit

import browser as b
import numpy as np
import pytest
from playwright.sync_api import expect

import app
import model
from model.view import Request
from viz.shelf import Shelf

pytestmark = pytest.mark.browser
MODELS = {"tiny": "tiny-llama", "normed": "tiny-qwen3"}
VIEWPORTS = [(1280, 720), (1920, 1080), (390, 844)]


@pytest.fixture(scope="module")
def address():
    with b.serving(app.build(MODELS, max_tokens=300)) as address:
        yield address


def logits(source: str, prompt: str, layer: int = 0, head: int = 0, qk: str | None = None) -> np.ndarray:
    """Scaled logits of one head by the model itself [query_pos, key_pos], NaN where masked."""
    lm = model.load(source)
    lm = lm if qk is None else lm.variant(qk)
    (view,) = lm.views(lm.encode(prompt), [Request(f"blocks.{layer}.attn.hook_logits", select=(("head", head),))])
    return np.where(view.masked, np.nan, view.values)


def drawn(page) -> np.ndarray:
    return np.array(b.main_trace(page)["z"], float)


def test_a_typed_prompt_is_run_and_drawn_as_the_model_computed_it(page, address):
    b.visit(page, address)
    b.run(page, "the cat the")
    assert page.locator("#tokens button").count() == 11
    assert page.locator("#tokens button").nth(3).text_content() == "·"
    np.testing.assert_allclose(drawn(page), logits("tiny-llama", "the cat the"), rtol=1e-5)
    assert parse_qs(urlsplit(page.url).query)["prompt"] == ["the cat the"]


def test_repeated_tokens_are_nine_cells(page, address):
    b.visit(page, f"{address}/?prompt=aba")
    told = b.main_trace(page)
    assert [len(row) for row in told["z"]] == [3, 3, 3]
    values = [told["z"][i][j] for i, j in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2))]
    assert values[0] == pytest.approx(values[-1], rel=1e-5)  # an "a" on itself in layer 0: the rotations cancel
    assert len({round(v, 5) for v in values}) == 5  # all others differ
    assert told["x"]["type"] == told["y"]["type"] == "linear"
    assert told["y"]["range"][0] > told["y"]["range"][1], "query 0 is at the top"
    assert [text[-1] for text in told["x"]["text"]] == ["a", "b", "a"]


def test_a_click_on_a_node_shows_its_tensor_and_numbers(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    lm = model.load("tiny-llama")
    tokens = lm.encode("hello")
    for node, tap in {
        "z": "attn.hook_z",
        "gate": "mlp.hook_pre",
        "attn_out": "hook_attn_out",
        "pattern": "attn.hook_pattern",
    }.items():
        b.click_node(page, node)
        assert tap in page.locator("#main-caption").text_content()
        (view,) = lm.views(tokens, [Request(f"blocks.0.{tap}", "stats")])
        told = page.locator(f'.standing [data-node="{node}"]')
        assert told.get_attribute("aria-pressed") == "true"
        largest = float(re.search(r"max\|x\| ([\d.]+)", told.text_content())[1])
        assert largest == pytest.approx(view.stats.absmax, abs=0.006)
        assert str(list(view.shape)) in told.locator("title").text_content()


def test_keyboard_alone_moves_and_selects(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    page.locator('.standing [data-node="logits"]').focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.node") == "rope"
    b.after(page, lambda: page.keyboard.press("Enter"), "rope")
    page.locator("#layer").focus()
    b.after(page, lambda: page.keyboard.press("ArrowRight"))
    assert page.locator("#layer-now").text_content() == "1"
    page.locator('#tokens [aria-checked="true"]').focus()
    b.after(page, lambda: page.keyboard.press("ArrowLeft"))
    assert "token=3" in page.url


def test_the_qk_norm_switch_changes_the_logits(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    before = drawn(page)
    assert "QK-norm off" in page.locator('.standing [data-node="qk_norm"]').text_content()
    b.after(page, lambda: page.select_option("#qk", "head"))
    np.testing.assert_allclose(drawn(page), logits("tiny-llama", "hello", qk="head"), rtol=1e-5)
    assert not np.allclose(np.nan_to_num(before), np.nan_to_num(drawn(page)))
    assert "QK-norm off" not in page.locator('.standing [data-node="qk_norm"]').text_content()
    b.after(page, lambda: page.select_option("#qk", "as-built"))
    np.testing.assert_array_equal(drawn(page), before)


def test_a_link_restores_the_view_and_back_goes_back(page, address):
    b.visit(page, f"{address}/?prompt=hello&node=gate&layer=2&head=3&token=1&neurons=sorted")
    assert page.locator("#layer-now").text_content() == "2"
    assert page.locator('#tokens [aria-checked="true"]').text_content() == "e"
    b.click_node(page, "logits")
    b.after(page, lambda: page.locator('input[value="pattern"]').check(force=True))
    there, title, numbers = page.url, page.locator("#main-title").text_content(), drawn(page)
    b.visit(page, there)  # reload
    assert page.locator("#main-title").text_content() == title
    assert page.locator("#head").input_value() == "3"
    np.testing.assert_array_equal(drawn(page), numbers)
    b.click_node(page, "ln1")
    b.after(page, page.go_back, "pattern")
    assert page.url == there


def test_each_view_that_was_asked_for_is_one_step_back(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    b.after(page, lambda: page.click("#layer-more"))
    b.after(page, lambda: page.locator("#strip .layer").nth(3).dispatch_event("click"))
    page.locator("#layer").focus()
    b.after(page, lambda: page.keyboard.press("ArrowLeft"))
    seen = [page.locator("#layer-now").text_content()]
    for _ in range(3):
        b.after(page, page.go_back)
        seen.append(page.locator("#layer-now").text_content())
    assert seen == ["2", "3", "1", "0"]


def test_typed_text_that_has_not_run_stays(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    b.run(page, "other")
    page.fill("#prompt", "not run yet")
    b.after(page, page.go_back)
    assert page.locator("#tokens button").count() == 5 and page.input_value("#prompt") == "not run yet"


@pytest.mark.parametrize(("prompt", "said"), [("", "The prompt is empty"), ("x" * 900, "the budget of this app is 300")])
def test_a_first_link_that_cannot_run_leaves_a_usable_page(page, address, prompt, said):
    page.goto(f"{address}/?model=tiny-llama&prompt={prompt}")
    expect(page.locator("#notice.wrong")).to_contain_text(said, timeout=30_000)
    assert page.input_value("#prompt") == prompt and page.locator("#model").is_enabled()
    expect(page.locator("#main-caption")).to_contain_text("Type a prompt")
    assert not any(page.locator(one).is_visible() for one in ("#layer", "#qk", "#layer-more", "#diagram", "#surgery-open"))
    b.run(page, "hello")
    assert page.locator("#layer-more").is_visible() and drawn(page).shape == (5, 5)


def test_clicks_on_pictures_select(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    box = page.locator("#cards-main .nsewdrag").first.bounding_box()
    at = (box["x"] + box["width"] * 0.1, box["y"] + box["height"] * 0.5)  # query 2 of 5

    def click():
        page.mouse.move(*at)
        page.wait_for_timeout(200)
        page.mouse.down()
        page.mouse.up()

    b.after(page, click)
    assert page.locator('#tokens [aria-checked="true"]').get_attribute("data-token") == "2"
    b.after(page, lambda: page.locator('#strip [data-layer="3"]').click())
    assert page.locator("#layer-now").text_content() == "3"
    page.locator('#cards-side [data-card="heads"]').scroll_into_view_if_needed()
    box = page.locator('#cards-side [data-card="heads"] .gd').bounding_box()
    at = (box["x"] + box["width"] * 1.05 / 3, box["y"] + box["height"] * 1.93 / 2)  # tile 4 of 3 x 2, its lower left corner
    b.after(page, click)
    assert page.locator("#head").input_value() == "4"


def test_zoom_survives_another_head(page, address):
    b.visit(page, f"{address}/?prompt=hello+world")
    box = page.locator("#cards-main .nsewdrag").first.bounding_box()
    page.evaluate("() => { window.kept = document.querySelector('#cards-main .gd'); }")
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.3)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.8, steps=6)
    page.mouse.up()
    page.wait_for_timeout(300)
    zoomed = b.main_trace(page)
    assert zoomed["x"]["range"][1] - zoomed["x"]["range"][0] < 6
    b.after(page, lambda: page.select_option("#head", "2"))
    again = b.main_trace(page)
    assert again["z"] != zoomed["z"]
    assert (again["x"]["range"], again["y"]["range"]) == (zoomed["x"]["range"], zoomed["y"]["range"])
    assert page.evaluate("document.querySelector('#cards-main .gd') === window.kept"), "the same DOM node is redrawn"


def test_two_visitors_do_not_see_each_other(chrome, address):
    contexts = [chrome.new_context(viewport={"width": 1280, "height": 720}) for _ in range(2)]
    one, two = (context.new_page() for context in contexts)
    b.visit(one, f"{address}/?prompt=alpha")
    b.visit(two, f"{address}/?prompt=beta&qk=head")
    b.after(one, lambda: one.locator("#layer-more").click())
    assert "".join(one.locator("#tokens button").all_text_contents()) == "alpha"
    assert "".join(two.locator("#tokens button").all_text_contents()) == "beta"
    np.testing.assert_allclose(drawn(one), logits("tiny-llama", "alpha", layer=1), rtol=1e-5)
    for context in contexts:
        context.close()


def test_hostile_text_is_shown_as_it_is(page, address):
    b.visit(page, address)
    b.run(page, b.HOSTILE)
    assert page.evaluate("window.pwned") is None
    assert "".join(page.locator("#tokens button").all_text_contents()) == b.HOSTILE.replace(" ", "·")
    assert page.locator(".bs img").count() == 0
    b.visit(page, page.url)
    assert page.locator("#prompt").input_value() == b.HOSTILE
    assert page.evaluate("window.pwned") is None
    b.visit(
        page,
        f"{address}/?node=<img/src=x/onerror=window.pwned=1>&model=<b>x</b>&stage=${{1}}&layer=NaN&head=-3&token=1e9&prompt=ab",
    )
    assert page.evaluate("window.pwned") is None and page.locator("#notice img").count() == 0
    assert "Layer must be a whole number" in page.locator("#notice").text_content()


def test_a_smaller_model_takes_the_view_without_an_error(page, address):
    b.visit(page, f"{address}/?prompt=hello&layer=3&head=5&qk=head")
    for name in ("normed", "tiny", "normed"):
        b.after(page, lambda name=name: page.select_option("#model", name))
        assert page.locator("#model").input_value() == name
    assert page.locator("#notice.wrong").count() == 0
    b.visit(page, f"{address}/?prompt=hello&layer=20")
    assert page.locator("#layer-now").text_content() == "3"
    assert "there is no layer 20" in page.locator("#notice").text_content().lower()


def test_what_cannot_be_run_is_a_sentence_and_the_view_stays(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    before = drawn(page)
    page.fill("#prompt", "")
    page.locator("#go").click()
    expect(page.locator("#notice.wrong")).to_contain_text("The prompt is empty")
    page.fill("#prompt", "x" * 10_000)
    page.locator("#go").click()
    expect(page.locator("#notice.wrong")).to_contain_text("10,000 tokens and the budget of this app is 300")
    np.testing.assert_array_equal(drawn(page), before)
    b.after(page, lambda: page.select_option("#head", "1"))
    assert page.locator("#notice").is_hidden()
    b.run(page, "🙂")
    assert page.locator("#tokens button").all_text_contents() == ["⟨F0⟩", "⟨9F⟩", "⟨99⟩", "⟨82⟩"]
    b.run(page, "a")
    assert drawn(page).shape == (1, 1)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", VIEWPORTS, ids=lambda size: f"{size[0]}x{size[1]}")
def test_nothing_overlaps_or_scrolls_sideways(chrome, address, size, theme):
    context = chrome.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    b.visit(page, address)
    for node in ("logits", "ln1", "rope", "gate", "resid_post"):
        b.click_node(page, node) if node != "logits" else None
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], node
        b.shot(page, f"{node}_{size[0]}_{theme}", full=size[0] < 900)
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
    boxes = page.evaluate(
        """() => [...document.querySelectorAll(".bs .top > *")].flatMap((e) => e.matches("nav") ? [...e.children] : [e])
        .filter((e) => e.offsetParent).map((e) => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom, e.id]; })"""
    )
    for i, one in enumerate(boxes):
        assert one[0] >= 0 and one[2] <= size[0], one
        for other in boxes[i + 1 :]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart, f"{one} overlaps {other}"
    clipped = page.evaluate(
        """() => [...document.querySelectorAll(".bs button, .bs h2, .bs h3, .bs .segments span, .bs .field")]
        .filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline").map((e) => e.textContent)"""
    )
    assert clipped == []
    context.close()


@pytest.mark.real
def test_axis_titles_stand_clear_of_words(shared, real_model):
    """The words of a tokenizer are long labels: askew below, and wide at the left."""
    with b.serving(app.build([str(real_model("smollm2-135m"))], max_tokens=40)) as served:
        page = shared.new_page()
        for node in ("logits", "ln1", "rope", "z", "resid_post"):
            b.visit(page, f"{served}/?node={node}&model=smollm2-135m")
            assert b.crossed_titles(page) == [], node
        page.close()


def test_the_theme_button_changes_page_and_pictures(page, address):
    b.visit(page, f"{address}/?prompt=hello&theme=light")
    ink = "() => document.querySelector('#cards-main .gd')._fullLayout.font.color"
    light = page.evaluate(ink)
    b.after(page, lambda: page.locator("#theme").click())
    assert page.evaluate("document.body.classList.contains('dark')")
    assert page.evaluate(ink) != light and "theme=dark" in page.url


@pytest.fixture(scope="module")
def pace() -> dict:
    """Seconds that each layer of the slow app takes."""
    return {"seconds": 0.0}


@pytest.fixture(scope="module")
def slow(pace):
    def opener(source):
        lm = model.load(source)
        step = lm.step
        lm.step = lambda stage, *rest: (time.sleep(pace["seconds"]), step(stage, *rest))[1]
        return lm

    with b.serving(app.web(Shelf({"tiny": "tiny-llama"}, opener))) as address:
        yield address
    pace["seconds"] = 0.0


def test_long_work_shows_progress_and_can_be_cancelled(chrome, slow, pace):
    page = chrome.new_context(viewport={"width": 1280, "height": 720}).new_page()
    pace["seconds"] = 0.0
    b.visit(page, f"{slow}/?prompt=hello")
    before = drawn(page)
    pace["seconds"] = 1.0
    page.fill("#prompt", "long work")
    page.press("#prompt", "Enter")
    expect(page.locator("#progress span")).to_contain_text(re.compile("layer . · [1-6] of [56]"), timeout=10_000)
    assert page.locator("#cancel").is_visible() and page.locator("#go").is_hidden()
    page.locator("#cancel").click()
    expect(page.locator("#notice")).to_contain_text("Stopped")
    assert page.locator("#go").is_visible() and page.locator("#progress").is_hidden()
    np.testing.assert_array_equal(drawn(page), before)
    pace["seconds"] = 0.0
    b.run(page, "again")  # nothing is stuck: the next run is answered
    assert page.locator("#tokens button").count() == 5
    page.context.close()


def test_a_slow_run_holds_up_nobody_and_a_late_answer_is_dropped(chrome, slow, pace):
    contexts = [chrome.new_context(viewport={"width": 1280, "height": 720}) for _ in range(2)]
    one, two = (context.new_page() for context in contexts)
    pace["seconds"] = 0.0
    for page in (one, two):
        b.visit(page, f"{slow}/?prompt=hello")
    pace["seconds"] = 0.8
    one.fill("#prompt", "a slow prompt")
    one.press("#prompt", "Enter")
    one.wait_for_timeout(300)
    began = time.monotonic()
    b.after(two, lambda: two.select_option("#head", "3"))
    assert time.monotonic() - began < 4  # its run takes more; a bound that a loaded machine keeps too
    one.fill("#prompt", "quick")  # while the first still runs
    pace["seconds"] = 0.0
    b.run(one, "quick")
    one.wait_for_timeout(2500)  # time for the first to arrive, were it not dropped
    assert "".join(one.locator("#tokens button").all_text_contents()) == "quick"
    for context in contexts:
        context.close()


def test_the_mode_bar_cannot_send_a_chart_away(page, address):
    b.visit(page, f"{address}/?prompt=hello")
    titles = page.locator("#cards-main .modebar-btn").evaluate_all(
        "(all) => all.map((e) => e.dataset.title || e.dataset.attr || '')"
    )
    assert titles and not any("cloud" in title.lower() or "share" in title.lower() for title in titles)
    assert page.locator(".plotlyjsicon").count() == 0
    assert page.locator(".modebar-btn").evaluate_all("(all) => all.every((e) => e.tabIndex === -1)")


def test_a_phone_has_no_mode_bar_and_its_navigation_in_one_line(chrome, address):
    context = chrome.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    b.visit(page, f"{address}/?prompt=hello")
    assert page.locator(".modebar-btn").count() == 0
    for where in ("", "compare/", "anatomy/"):
        page.goto(f"{address}/{where}")
        expect(page.locator("nav .tab").first).to_be_visible()
        assert len(set(page.locator("nav .tab").evaluate_all("(all) => all.map((e) => e.getBoundingClientRect().top)"))) == 1
    context.close()


def test_a_long_prompt_is_weighed_before_it_runs_and_its_tokens_come_as_they_are_looked_at(chrome):
    with b.serving(app.build({"tiny": "tiny-llama"}, max_tokens=1500)) as address:
        page = chrome.new_context(viewport={"width": 1280, "height": 720}).new_page()
        b.visit(page, f"{address}/?prompt=hello")
        text = "".join(chr(97 + i % 26) for i in range(1300))
        page.fill("#prompt", text)
        expect(page.locator("#cost")).to_contain_text(
            re.compile(r"1,300 tokens · about .* FLOP|1,300 tokens · about .*FLOP · about")
        )
        assert page.locator("#go").is_visible() and page.locator("#progress").is_hidden()
        page.fill("#prompt", text + "x" * 300)
        expect(page.locator("#cost")).to_contain_text("The budget of this app is 1,500 tokens")
        page.fill("#prompt", "short")
        expect(page.locator("#cost")).to_be_hidden()
        b.run(page, text)
        assert page.locator("#cost").is_hidden() and page.locator("#tokens button").count() == 600
        assert "#?" not in page.url
        chosen = page.locator('#tokens [aria-checked="true"]')
        assert (chosen.get_attribute("data-token"), chosen.text_content()) == ("1299", text[1299])
        b.after(page, lambda: (page.fill("#token-at", "700"), page.press("#token-at", "Enter")))
        assert (chosen.get_attribute("data-token"), chosen.text_content()) == ("700", text[700])
        chosen.focus()
        b.after(page, lambda: page.keyboard.press("Home"))
        assert chosen.get_attribute("data-token") == "0" and page.evaluate("document.activeElement.dataset.token") == "0"
        page.evaluate("document.querySelector('#tokens').scrollLeft = 1e7")
        expect(page.locator('#tokens [data-token="1299"]')).to_be_visible()
        assert page.locator("#tokens button").count() == 600 and page.locator('#tokens [data-token="0"]').count() == 0
        page.context.close()


def test_a_link_too_long_for_a_server_stands_behind_the_hash(chrome):
    with b.serving(app.build({"tiny": "tiny-llama"}, max_tokens=3000)) as address:
        page = chrome.new_context(viewport={"width": 1280, "height": 720}).new_page()
        b.visit(page, f"{address}/?prompt=hello")
        text = "a b " * 625  # 2,500 characters, of which 1,250 are written as three
        text = text.replace(" ", "€")
        page.evaluate("(text) => { document.querySelector('#prompt').value = text; }", text[:1400])
        b.after(page, lambda: page.locator("#go").click())
        assert "/#?" in page.url and "?prompt" not in page.url.split("#")[0]
        page.reload()
        b.settle(page)
        assert page.input_value("#prompt") == text[:1400]
        page.context.close()


def test_what_was_said_of_another_run_goes_when_a_new_one_starts(chrome, slow, pace):
    page = chrome.new_context(viewport={"width": 1280, "height": 720}).new_page()
    pace["seconds"] = 0.0
    b.visit(page, f"{slow}/?prompt=hello")
    page.fill("#prompt", "x" * 2000)
    page.locator("#go").click()
    expect(page.locator("#notice")).to_contain_text("was not run")
    pace["seconds"] = 1.0
    page.fill("#prompt", "another")
    page.locator("#go").click()
    expect(page.locator("#progress span")).to_contain_text("of", timeout=10_000)
    assert page.locator("#notice").is_hidden()
    pace["seconds"] = 0.0
    page.locator("#cancel").click()
    page.context.close()
