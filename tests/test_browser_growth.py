"""The Growth page in a real browser: recorded runs, every step, a live run that is watched, stopped, kept and opened again."""

import json
import time

import browser as b
import numpy as np
import pytest
from growth_records import folder_of_records, small_corpus
from playwright.sync_api import expect

import app
from viz.pages import growth as page_module
from viz.pages import growth_stage, growth_texts
from viz.theme import DARK, LIGHT, see_through

pytestmark = pytest.mark.browser
MODELS = {"tiny": "tiny-llama", "gemma": "tiny-gemma2"}
SMALL = "size=M2&live_steps=3000"  # longer than any test watches
CUT = """() => [...document.querySelectorAll(".bs button, .bs h2, .bs h3, .bs .segments span, .bs .field, .bs .caption")]
    .filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline").map((e) => e.textContent)"""
HIDDEN = "(all) => all.filter((one) => one.offsetParent && one.offsetWidth < 40 || !one.offsetParent).map((one) => one.id)"
LIVE = "() => document.querySelector('#bs').dataset.live"


COLOURS = """() => document.querySelector('[data-card="live-loss"] .gd')._fullData.map((one) => one.line.color)"""
stages = []  # of the app under test


def colours(page) -> list[str]:
    return [colour.replace(" ", "") for colour in page.evaluate(COLOURS)]


def loss_colours(theme) -> set[str]:
    return {see_through(colour, strength) for colour in (theme.a, theme.b) for strength in (0.4, 1.0)}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The shipped records, or made-up ones where none ship."""
    patched, folder = pytest.MonkeyPatch(), page_module.SHIPPED
    if not list(folder.glob("*.safetensors")):
        folder = folder_of_records(tmp_path_factory.mktemp("records"))
    patched.setattr(page_module.Growth.__init__, "__defaults__", (folder, ()))
    patched.setattr(growth_texts, "standard_library", small_corpus)
    init = growth_stage.Stage.__init__
    patched.setattr(growth_stage.Stage, "__init__", lambda self, *given: (init(self, *given), stages.append(self))[0])
    growth_texts.standard.cache_clear()
    with b.serving(app.build(MODELS, max_tokens=300)) as address:
        yield address
    patched.undo()
    growth_texts.standard.cache_clear()


def drawn(page, card: str) -> list[np.ndarray]:
    """The values of a card's maps as the browser holds them; NaN where a cell is empty."""
    maps = page.evaluate(
        """(card) => document.querySelector(`[data-card="${card}"] .gd`)._fullData.filter((one) => one.type === "heatmap")
        .map((one) => [...one.z].map((row) => [...row].map((v) => Number.isFinite(v) ? v : null)))""",
        card,
    )
    return [np.array(rows, float) for rows in maps]


def lines(page, card: str) -> list[int]:
    """How many points each curve of a card has."""
    return page.evaluate(
        "(card) => document.querySelector(`[data-card='${card}'] .gd`)._fullData.map((one) => one.x?.length ?? 0)", card
    )


def choose_a_head(page) -> None:
    """A click in the map chooses a head for curves and patterns."""
    page.locator("#cards-heads .gd").scroll_into_view_if_needed()
    at = page.evaluate(
        """() => { const gd = document.querySelector("#cards-heads .gd"), box = gd.getBoundingClientRect();
        const {xaxis, yaxis} = gd._fullLayout;
        return [box.left + xaxis._offset + xaxis.d2p(1), box.top + yaxis._offset + yaxis.d2p(2)]; }"""
    )
    page.mouse.move(*at)
    page.wait_for_timeout(250)
    b.after(page, lambda: page.mouse.click(*at))
    assert "at_layer=2" in page.url and "at_head=1" in page.url
    expect(page.locator('[data-card="growth-pattern-1"] .caption')).to_contain_text("layer 2 head 1 (chosen)")
    assert page.locator("#cell").input_value() == "2049"
    b.after(page, lambda: page.locator("#worst").click())
    assert "at_layer" not in page.url and page.locator("#cell").input_value() == "-1"
    page.locator("#cell").focus()
    b.after(page, lambda: page.keyboard.press("ArrowDown"))  # without a mouse
    assert "at_layer=0" in page.url and "at_head=0" in page.url
    b.after(page, lambda: page.locator("#cell").select_option("-1"))


def test_recorded_runs_their_learning_rates_and_steps(page, address):
    b.visit(page, f"{address}/growth/")
    assert "did not diverge" in page.locator("#story").text_content()
    assert page.locator("#cards-panels .js-plotly-plot").count() == 4 and page.locator("#keys .key").count() == 2
    assert page.evaluate("performance.getEntriesByType('resource').filter((r) => /\\/data\\//.test(r.name)).length") < 20
    b.after(page, lambda: page.locator('#groups input[value="sweep"]').check(force=True))
    page.locator("#lr").focus()
    before = page.locator("#lr-now").text_content()
    b.after(page, lambda: page.keyboard.press("ArrowLeft"))
    rate = page.locator("#lr-now").text_content()
    assert float(rate) < float(before) and f"lr={rate}" in page.url and "group=sweep" in page.url
    b.after(page, lambda: page.locator('#groups input[value="stress"]').check(force=True))
    last = drawn(page, "growth-pattern-0")[0]
    assert np.nanmin(last) >= 0 and np.nanmax(last) <= 1
    page.locator("#step").focus()
    page.keyboard.press("Home")
    expect(page.locator("#step-now")).to_have_text("0")
    first = drawn(page, "growth-pattern-0")[0]
    assert not np.array_equal(first, last, equal_nan=True) and "run_step=0" in page.url
    assert "Step 0" in page.locator("#step-said").text_content()
    page.locator("#play").click()
    page.wait_for_function("document.querySelector('#step-now').textContent !== '0'")
    page.locator("#play").click()
    there, said = page.url, page.locator("#step-said").text_content()
    bars = page.locator(".js-plotly-plot .cbfill").evaluate_all("(all) => all.map((one) => one.style.fill)")
    assert bars and all(fill.startswith('url("#') for fill in bars), "a gradient does not hang on an address that changes"
    b.visit(page, there)
    expect(page.locator("#step-said")).to_have_text(said)
    b.shot(page, "growth_recorded", full=True)
    choose_a_head(page)


def test_a_live_run_is_watched_stopped_kept_and_opened_again(page, address, shared, tmp_path):
    b.visit(page, f"{address}/growth/?{SMALL}")
    page.locator("#train").click()
    page.wait_for_function("Number(document.querySelector('#bs').dataset.points ?? 0) > 20")
    page.wait_for_function("(document.querySelector('[data-card=\"live-loss\"] .gd')?._fullData?.[0].x?.length ?? 0) > 5")
    before = lines(page, "live-loss")
    page.wait_for_function(f"document.querySelector('[data-card=\"live-loss\"] .gd')._fullData[0].x.length > {before[0]}")
    assert lines(page, "live-max_logit")[0] >= 1
    first = colours(page)
    assert set(first) == loss_colours(LIGHT)
    page.locator("#theme").click()
    page.wait_for_function(f"({COLOURS})()[0] !== {json.dumps(first[0])}")
    assert set(colours(page)) == loss_colours(DARK), "in the middle of a run"
    page.wait_for_function(f"document.querySelector('[data-card=\"live-loss\"] .gd')._fullData[0].x?.length > {before[0]}")
    page.locator("#theme").click()
    page.locator("#pause").click()
    expect(page.locator("#live-said")).to_contain_text("paused at")
    expect(page.locator("#pause")).to_have_text("Go on")

    other = shared.new_page()
    b.visit(other, f"{address}/growth/?{SMALL}")
    other.locator("#train").click()
    expect(other.locator("#live-said")).to_have_text("Another visitor is training: you are next in line.")
    page.locator("#stop").click()
    other.wait_for_function(f"({LIVE})() === 'points'", timeout=20_000)
    assert len(stages[-1].line._standing) == 1
    began = time.monotonic()
    other.close()  # in the middle of a run, which ends with it
    while stages[-1].line._standing:
        assert time.monotonic() - began < 2.5, "a second, on a busy machine"
        time.sleep(0.02)

    expect(page.locator("#live-said")).to_contain_text("stopped at step")
    expect(page.locator("#result-about")).to_contain_text("stopped at step")
    page.wait_for_selector('[data-card="result-cosine"] .js-plotly-plot, [data-card="result-cosine"] .gd.js-plotly-plot')
    page.locator("#keep").click()
    page.wait_for_selector("#kept a")
    name = page.locator("#kept code").nth(1).text_content()
    assert name.startswith("live-") and f"model={name}" in page.locator("#kept a").nth(1).get_attribute("href")
    expect(page.locator("#keep")).to_be_hidden()
    expect(page.locator("#kept p")).to_contain_text("under names that only you know")
    with page.expect_download() as download:
        page.locator("#kept button", has_text="save its record").first.click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    explore = page.locator("#kept a").nth(1).get_attribute("href")

    page.set_input_files("#record-file", [path])
    expect(page.locator("#opened-about")).to_contain_text("stopped at step")
    page.wait_for_selector('[data-card="opened-max_logit"] .gd.js-plotly-plot')
    b.settle(page)
    b.shot(page, "growth_live", full=True)

    page.fill("#live_steps", "4")
    b.after(page, lambda: page.press("#live_steps", "Tab"))
    page.locator("#train").click()  # starts at once: the page that was closed no longer trains
    page.wait_for_function(f"({LIVE})() === 'ended'", timeout=20_000)
    expect(page.locator("#live-said")).to_have_text("finished")
    b.visit(page, explore)
    assert page.locator("#model").input_value().startswith("live-") and "live-" in page.url
    assert page.locator("#qk").input_value() == "as-built"


def test_a_text_of_ones_own_is_trained_on(page, address, tmp_path):
    b.visit(page, f"{address}/growth/?live_steps=4")
    page.locator("#text-add").click()
    page.locator("#text-use").click()
    expect(page.locator("#text-said")).to_contain_text("pasted text is empty")
    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 20)
    page.set_input_files("#text-file", tmp_path / "a.bin")
    expect(page.locator("#text-said")).to_contain_text("a.bin holds zero bytes: it is not a text file")
    page.fill("#text-paste", "a line of some words and no others\n" * 200)
    b.after(page, lambda: page.locator("#text-use").click())
    expect(page.locator("#text-box")).to_be_hidden()
    assert (
        page.locator("#text").input_value().startswith("text-")
        and page.locator("#text option").last.text_content() == "pasted text"
    )
    expect(page.locator("#text-about")).to_contain_text(
        "pasted text, 6,300 bytes to train on, 700 bytes held out (its last tenth), sha256 "
    )
    page.locator("#train").click()
    page.wait_for_function(f"({LIVE})() === 'ended'", timeout=20_000)
    expect(page.locator("#result-about")).to_contain_text("text: pasted text, 6,300 bytes")


def test_what_cannot_be_trained_or_read_is_a_sentence(page, address, tmp_path):
    b.visit(page, f"{address}/growth/?live_lr=0&group={'%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E'}&at_layer=99&lr=1e9")
    expect(page.locator("#live-wrong")).to_contain_text("The learning rate must be a number above 0, got '0'")
    expect(page.locator("#train")).to_be_disabled()
    assert "no group of runs of that name" in page.locator("#notice").text_content().replace("There is", "there is")
    page.fill("#live_lr", "1e9")
    b.after(page, lambda: page.press("#live_lr", "Tab"))
    page.fill("#live_steps", "20")
    b.after(page, lambda: page.press("#live_steps", "Tab"))
    page.locator("#train").click()
    expect(page.locator("#live-said")).to_contain_text("not finite at step", timeout=30_000)
    page.wait_for_function(
        "document.querySelectorAll('[data-card=\"live-max_logit\"] .ytick').length in {3: 1, 4: 1, 5: 1, 6: 1, 7: 1}"
    )
    assert "not shown" not in page.locator('[data-card="live-max_logit"] .caption').text_content()
    (tmp_path / "a.csv").write_text("step,loss\n1,2\n")
    page.set_input_files("#record-file", [tmp_path / "a.csv"])
    expect(page.locator("#open-said")).to_contain_text("is not the CSV of a record")
    page.fill("#survey-text", b.HOSTILE)
    page.locator("#survey-go").click()
    page.wait_for_function("document.querySelector('#bs').dataset.job === 'survey'")
    assert page.locator("#survey-table td").count() > 5
    assert page.evaluate("window.pwned") is None and page.locator(".bs img").count() == 0


def test_nothing_scrolls_sideways_or_is_cut(page, address):
    page.emulate_media(color_scheme="light")
    b.visit(page, f"{address}/growth/?group=fixes&details=1")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function("(dark) => document.body.classList.contains('dark') === dark", arg=theme == "dark")
        for size in ((1280, 720), (1920, 1080), (390, 844)):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            b.settle(page)
            page.wait_for_function("(wide) => document.documentElement.scrollWidth <= wide", arg=size[0], timeout=5000)
            assert page.evaluate(CUT) == [], (theme, size)
            hidden = page.locator("#live-form :is(select, input):not([type=checkbox], [type=file])").evaluate_all(HIDDEN)
            assert hidden == [], (theme, size)
            b.shot(page, f"growth_{size[0]}_{theme}")
