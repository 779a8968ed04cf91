"""The Compare page in a real browser: one click, the strip, a cell, the tensors; links, sides, screens."""

from urllib.parse import parse_qs, urlsplit

import browser as b
import numpy as np
import pytest
from playwright.sync_api import expect

import app
import model
from model.view import Request

pytestmark = pytest.mark.browser
MODELS = {"tiny": "tiny-llama", "gpt2": "tiny-gpt2"}
PROMPT = "prompt=the+cat+sat"
COMPLETE = """() => {
    const page = document.querySelector("#bs");
    return page && Number(page.dataset.ready) > 0 && page.dataset.complete === page.dataset.ready && !document.querySelector("[data-busy]");
}"""


@pytest.fixture(scope="module")
def address():
    with b.serving(app.build(MODELS, max_tokens=300)) as address:
        yield address


def settle(page) -> None:
    page.wait_for_function(COMPLETE, timeout=60_000)
    page.wait_for_timeout(80)


def visit(page, address: str) -> None:
    page.goto(address)
    settle(page)


def after(page, act) -> None:
    before = b.token(page)
    act()
    page.wait_for_function(
        "(before) => Number(document.querySelector('#bs').dataset.ready) > before", arg=before, timeout=60_000
    )
    settle(page)


def drawn(page, card: str) -> np.ndarray:
    """The values of a card's heat map as the browser drew them; NaN where a cell is empty."""
    rows = page.evaluate(
        """(card) => {
        const gd = document.querySelector(`[data-card="${card}"] .gd`);
        const trace = gd._fullData.find((one) => one.type === "heatmap");
        const rows = gd.calcdata[trace.index]?.[0]?.z ?? trace.z;  // nothing to draw: plotly keeps no cells
        return [...rows].map((row) => [...row].map((v) => Number.isFinite(v) ? v : null));
    }""",
        card,
    )
    return np.array(rows, float)


def click_cell(page, row: int, layer: int, card: str = "strip-B") -> None:
    """A real click in the middle of a cell of a strip."""
    page.locator(f'[data-card="{card}"] .gd').scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    at = page.evaluate(
        """([card, row, layer]) => {
        const gd = document.querySelector(`[data-card="${card}"] .gd`);
        const box = gd.getBoundingClientRect();
        const {xaxis, yaxis} = gd._fullLayout;
        return [box.left + xaxis._offset + xaxis.d2p(layer), box.top + yaxis._offset + yaxis.d2p(row)];
    }""",
        [card, row, layer],
    )
    page.mouse.move(*at)
    page.wait_for_timeout(250)
    page.mouse.down()
    page.mouse.up()


def logits(qk: str | None, layer: int, head: int = 0) -> np.ndarray:
    lm = model.load("tiny-llama")
    lm = lm if qk is None else lm.variant(qk)
    (view,) = lm.views(lm.encode("the cat sat"), [Request(f"blocks.{layer}.attn.hook_logits", select=(("head", head),))])
    return np.where(view.masked, np.nan, view.values)


def test_one_click_shows_where_qk_norm_moves_the_numbers(page, address):
    visit(page, f"{address}/compare?{PROMPT}&quick=eps")
    after(page, lambda: page.locator('[data-quick="qk_norm"]').click())
    assert parse_qs(urlsplit(page.url).query)["prompt"] == ["the cat sat"] and urlsplit(page.url).path == "/compare/"
    strip = drawn(page, "strip-B")
    assert strip.shape == (13, 4) and np.isnan(strip[:2, 0]).all(), "ln1 and q of layer 0 lie above the change"
    assert np.isfinite(strip[2:, 0]).all() and np.isfinite(strip[:, 1:]).all()
    np.testing.assert_allclose(drawn(page, "tensor-A"), logits(None, 0), rtol=1e-4)
    np.testing.assert_allclose(drawn(page, "tensor-B"), logits("head", 0), rtol=1e-4)
    np.testing.assert_allclose(drawn(page, "delta-B"), logits("head", 0) - logits(None, 0), atol=2e-5)
    expect(page.locator("#next")).to_contain_text("KL(A ‖ B) =")
    expect(page.locator('[data-side="b"]')).to_contain_text("QK-norm off → head")
    page.wait_for_function("document.querySelector('#bs').dataset.late")
    assert page.locator("#cards-late .js-plotly-plot").count() == 1


def test_a_cell_opens_its_tensor(page, address):
    visit(page, f"{address}/compare/?{PROMPT}")
    after(page, lambda: click_cell(page, 9, 2))
    assert page.locator("#tensor-title").text_content() == "blocks.2.mlp.hook_pre"
    after(page, lambda: click_cell(page, 1, 0))  # an empty cell: nothing differs there
    assert page.locator("#tensor-title").text_content() == "blocks.0.attn.hook_q · head 0"
    assert not drawn(page, "delta-B").any() and "bit for bit" in page.locator("#tensor-caption").text_content()
    after(page, lambda: click_cell(page, 3, 3))
    after(page, lambda: page.locator('#stages input[value="pattern"]').check(force=True))
    assert "blocks.3.attn.hook_pattern" in page.locator("#tensor-title").text_content()
    after(page, lambda: page.select_option("#head", "4"))
    before = (page.locator("#tensor-title").text_content(), drawn(page, "tensor-B"))
    visit(page, page.url)  # reload: the link holds it all
    assert page.locator("#tensor-title").text_content() == before[0]
    np.testing.assert_array_equal(drawn(page, "tensor-B"), before[1])
    after(page, lambda: page.select_option("#layer", "1"))
    after(page, page.go_back)
    assert page.locator("#tensor-title").text_content() == before[0]


def test_a_equal_to_b_is_all_zeros(page, address):
    visit(page, f"{address}/compare/?{PROMPT}&quick=own&rows=all")
    assert np.isnan(drawn(page, "strip-B")).all() and not drawn(page, "delta-B")[np.tril_indices(11)].any()
    expect(page.locator("#table")).to_contain_text("nothing differs")
    expect(page.locator("#next")).to_contain_text("KL(A ‖ B) = 0 nats")
    assert page.locator("#identities .broken").count() == 0


def test_sides_are_changed_added_and_removed(page, address):
    visit(page, f"{address}/compare/?{PROMPT}")
    page.locator('[data-side="b"]').click()
    page.locator("#edit-chips button").click()
    page.select_option("#edit-part", "window")
    page.select_option("#edit-choice", "?")
    page.fill("#edit-value", "3")
    page.fill("#edit-layers", "2-3")
    after(page, lambda: page.locator('#editor button[type="submit"]').click())
    expect(page.locator('[data-side="b"]')).to_contain_text("window off → 3, layers 2–3")
    assert np.isnan(drawn(page, "strip-B")[:, :2]).all()
    after(page, lambda: page.locator(".add-side").click())
    page.locator("#edit-chips button").click()
    page.fill("#edit-layers", "")
    page.select_option("#edit-what", "head")
    page.fill("#edit-layer", "1")
    page.fill("#edit-index", "2")
    page.locator("#edit-more").click()
    page.select_option("#edit-what", "patch")
    page.fill("#edit-layer", "2")
    page.select_option("#edit-leaf", "hook_mlp_out")
    after(page, lambda: page.locator('#editor button[type="submit"]').click())
    expect(page.locator('[data-side="c"]')).to_contain_text("scale a head 2 in layer 1 × 0")
    expect(page.locator('[data-side="c"]')).to_contain_text("A's hook_mlp_out patched into layer 2")
    assert parse_qs(urlsplit(page.url).query)["c_edit"] == ["head:1:2:0,patch:2:-1:0:hook_mlp_out"]
    assert page.locator("#edit-edits button").count() == 2
    after(page, lambda: page.locator(".add-side").click())
    assert page.locator(".side-card").count() == 4 and page.locator(".add-side").count() == 0
    assert page.locator("#cards-strip .js-plotly-plot").count() == 3
    there = page.url
    visit(page, there)
    assert page.locator(".side-card").count() == 4
    page.locator('[data-side="d"]').click()
    after(page, lambda: page.locator("#edit-remove").click())
    assert page.locator(".side-card").count() == 3
    after(page, lambda: click_cell(page, 5, 1, "strip-C"))
    assert "against=c" in page.url and "d_" not in urlsplit(page.url).query
    assert page.locator("#cards-tensor h3").all_text_contents() == ["A", "B", "C", "B − A", "C − A"]


def test_a_strip_is_walked_by_the_keyboard(page, address):
    visit(page, f"{address}/compare/?{PROMPT}&tap=ln1.hook_out")
    cursor = page.locator("#cards-strip .strip-cursor")
    assert cursor.count() == 1, "one tab stop a strip"
    page.locator("#rows").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "strip-cursor"
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    said = cursor.get_attribute("aria-label")
    assert said.startswith("B against A, logits, layer 2: 0.") and "Enter opens" in said
    assert page.locator("#cards-strip [role=status]").text_content() in said
    on = page.evaluate(
        """() => {
        const gd = document.querySelector("#cards-strip .gd"), box = gd.getBoundingClientRect(), {xaxis, yaxis} = gd._fullLayout;
        const at = document.activeElement.getBoundingClientRect();
        return [at.left + at.width / 2 - box.left - xaxis._offset - xaxis.d2p(2), at.top + at.height / 2 - box.top - yaxis._offset - yaxis.l2p(3),
                getComputedStyle(document.activeElement).boxShadow];
    }"""
    )
    assert abs(on[0]) < 2 and abs(on[1]) < 2 and on[2] != "none", "the ring stands on the cell that is read out"
    after(page, lambda: page.keyboard.press("Enter"))
    assert page.locator("#tensor-title").text_content().startswith("blocks.2.attn.hook_logits")
    assert page.evaluate("document.activeElement.className") == "strip-cursor"
    page.keyboard.press("ArrowUp")
    assert "rot_q, layer 2" in cursor.get_attribute("aria-label")


def test_pictures_take_the_room_that_more_sides_leave_them(page, address):
    visit(page, f"{address}/compare/?{PROMPT}&quick=window")
    for _ in range(2):
        after(page, lambda: page.locator(".add-side").click())
    page.wait_for_timeout(300)
    wide = page.evaluate(
        "[...document.querySelectorAll('#cards-tensor .gd')].map((gd) => [gd.clientWidth, gd._fullLayout.width])"
    )
    assert len(wide) == 8 and all(abs(place - drawn) <= 1 for place, drawn in wide), wide
    table = page.evaluate("(() => { const t = document.querySelector('#table'); return [t.scrollWidth, t.clientWidth]; })()")
    assert table[0] <= table[1], "what changed is not cut off"
    expect(page.locator("#table")).to_contain_text("D 1,024 B")


def test_any_side_can_stand_beside_a(page, address):
    visit(page, f"{address}/compare/?{PROMPT}&quick=wiring&diagrams=1")
    assert page.locator("#diagram-pair h3").all_text_contents() == ["A", "B"]
    after(page, lambda: page.locator('#diagrams input[value="c"]').check(force=True))
    assert page.locator("#diagram-pair h3").all_text_contents() == ["A", "C"] and "against=c" in page.url
    assert page.locator("#identities-title").text_content() == "Identities of A and C"
    assert "ln1_post" in page.locator("#identities").text_content() or "C" in page.locator("#identities").text_content()
    visit(page, f"{address}/compare/?{PROMPT}")
    assert page.locator("[data-against]:visible").count() == 0, "of two sides there is nothing to choose"


def test_the_blocks_stand_side_by_side(page, address):
    visit(page, f"{address}/compare/?{PROMPT}&layer=1")
    after(page, lambda: page.locator("#diagrams summary").click())
    assert page.locator("#diagram-pair svg:visible").count() == 2
    assert page.locator('.of-b [data-node="qk_norm"].only').count() == 1
    assert page.locator('.of-a [data-node="q"].moved').count() == 1
    after(page, lambda: page.locator('.of-b [data-node="gate"] .box').click())
    assert page.locator("#tensor-title").text_content() == "blocks.1.mlp.hook_pre"


def test_the_view_goes_along_between_the_pages(page, address):
    b.visit(page, f"{address}/?prompt=hello&layer=2&head=3&qk=head&node=gate")
    page.locator('nav [data-page="compare"]').click()
    settle(page)
    expect(page.locator('[data-side="b"]')).to_contain_text("QK-norm off → head")
    assert page.locator("#tensor-title").text_content() == "blocks.2.mlp.hook_pre"
    assert "".join(page.locator("#tokens span").all_text_contents()) == "hello"
    assert (page.locator("#layer").input_value(), page.locator("#head").input_value()) == ("2", "3")
    after(page, lambda: page.locator('[data-quick="eps"]').click())
    page.locator('nav [data-page="explore"]').click()
    b.settle(page)
    assert page.locator("#main-title").text_content().startswith("RMSNorm") or "ln1" in page.url
    assert parse_qs(urlsplit(page.url).query)["change"] == ["eps=1e-06"], "the changed side is what Explore then shows"
    assert (page.locator("#layer-now").text_content(), page.locator("#head").input_value()) == ("2", "3")


def test_what_cannot_be_compared_is_a_sentence_and_the_view_stays(page, address):
    visit(page, f"{address}/compare/?{PROMPT}")
    before = drawn(page, "tensor-B")
    page.locator('[data-side="b"]').click()
    page.fill("#edit-layers", "3-9")
    page.locator('#editor button[type="submit"]').click()
    expect(page.locator("#notice.wrong")).to_contain_text("Layers 3–9 do not lie within 0–3")
    page.fill("#prompt", "")
    page.locator("#go").click()
    expect(page.locator("#notice.wrong")).to_contain_text("The prompt is empty")
    np.testing.assert_array_equal(drawn(page, "tensor-B"), before)
    visit(page, f"{address}/compare/?quick=own&b_model=gpt2&{PROMPT}&rows=all&layer=1")
    expect(page.locator("#cards-strip")).to_contain_text("hatched: only in A")


def test_why_a_choice_is_not_there_is_to_be_read_and_not_only_to_be_hovered(page, address):
    visit(page, f"{address}/compare/?{PROMPT}")
    expect(page.locator("#quick-not")).to_have_text(
        "Not here: trained with / without, since the two shipped models are not open in this app."
    )
    visit(page, f"{address}/compare/?{PROMPT}&nothing=1&layer=x")
    assert "No page knows the name 'nothing': left out." in page.locator("#notice").text_content()
    assert "Layer must be a whole number" in page.locator("#notice").text_content()


def test_hostile_links_and_text_are_shown_as_they_are(page, address):
    visit(page, f"{address}/compare/?{PROMPT}")
    page.fill("#prompt", b.HOSTILE)
    after(page, lambda: page.press("#prompt", "Enter"))
    assert "".join(page.locator("#tokens span").all_text_contents()) == b.HOSTILE.replace(" ", "·")
    visit(
        page,
        f"{address}/compare/?b_change=<img/src=x/onerror=window.pwned=1>,eps=1&model=<b>&layer=NaN&tap=<i>&sides=99&b_edit=${{1}}&prompt=ab",
    )
    assert page.evaluate("window.pwned") is None and page.locator(".bs img").count() == 0
    assert "Norm eps must lie in [0, 1), got 1.0. " in page.locator("#notice").text_content()
    for fault in (
        "Showing the default comparison instead.",
        "B_change: '<img/src",
        "Layer must be a whole",
        "Tap '<i>' cannot",
        "Sides must lie",
    ):
        assert fault in page.locator("#notice").text_content(), "a link's every fault is said"
    assert page.locator(".side-card").count() == 2
    assert "".join(page.locator("#tokens span").all_text_contents()) == "ab", "of the link what can be kept is"
    visit(page, f"{address}/compare/?b_change=<b>,eps=0.1&layer=NaN&prompt=ab")
    assert "layer must be a whole number" in page.locator("#notice").text_content().lower()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080), (390, 844)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_nothing_overlaps_or_scrolls_sideways(chrome, address, size, theme):
    context = chrome.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    for name, query in {
        "qk_norm": "diagrams=1",
        "kv_heads": "quick=kv_heads&rows=all&tap=attn.hook_k",
        "mlp": "quick=mlp&tap=mlp.hook_post",
    }.items():
        visit(page, f"{address}/compare/?{PROMPT}&layer=1&{query}")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], name
        b.shot(page, f"compare_{name}_{size[0]}_{theme}", full=True)
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
    clipped = page.evaluate(
        """() => [...document.querySelectorAll(".bs button, .bs h2, .bs h3, .bs .segments span, .bs .field")]
        .filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline").map((e) => e.textContent)"""
    )
    assert clipped == []
    context.close()
