"""The Anatomy page in a real browser: what a person does, and what then stands there."""

import json
import re
from urllib.parse import parse_qs, quote, urlsplit

import browser as b
import pytest
from configs import values
from playwright.sync_api import expect

import app
from model import count

pytestmark = pytest.mark.browser
SECTIONS = ("block", "totals", "table", "charts", "shapes", "side", "ladder", "caches", "hand")
DONE = """(before) => {
    const page = document.querySelector("#bs");
    if (!page || !(Number(page.dataset.ready) > before) || page.dataset.complete !== page.dataset.ready) return false;
    return !document.querySelector("[data-busy]");
}"""


@pytest.fixture(scope="module")
def address():
    with b.serving(app.build({"mine": "tiny-qwen3"})) as address:
        yield f"{address}/anatomy/"


def settle(page, before=0):
    page.wait_for_function(DONE, arg=before, timeout=60_000)


def visit(page, address):
    page.goto(address)
    settle(page)


def after(page, act):
    before = b.token(page)
    act()
    settle(page, before)


def fill(page, field, text):
    after(page, lambda: (page.fill(f'[data-field="{field}"]', text), page.press(f'[data-field="{field}"]', "Enter")))


def words(page, selector):
    return page.locator(selector).text_content()


def test_the_first_view(page, address):
    visit(page, address)
    assert words(page, "#model-name") == "llama-3.1-8b" and "32 layers · 4,096 wide · 8.03 B" in words(page, "#model-size")
    assert words(page, "#hero") == "h = x + AttnGQA, RoPE(RMSNorm(x))y = h + SwiGLU(RMSNorm(h))"
    assert page.locator("#hero sub").first.text_content() == "GQA, RoPE"
    assert f"{count('llama-3.1-8b').parameters:,}" in words(page, "#totals")
    assert page.locator("#side thead th").all_text_contents() == ["", "gpt2", "llama-3.1-8b", "qwen3-8b"]
    assert page.locator("nav .tab[aria-current]").text_content() == "Anatomy"
    page.wait_for_function("document.querySelector('#bs').dataset.twins")
    assert words(page, '#ladder [data-rung="2017"] [data-twin="logit"]') == "382"
    assert "× 0.25" in words(page, '#ladder [data-rung="gqa"]')


def test_another_model_changes_every_section_and_the_address(page, address):
    visit(page, address)
    after(page, lambda: page.select_option("#model", "deepseek-v3"))
    assert "model=deepseek-v3" in page.url and "671,026,419,200" in words(page, "#totals")
    assert page.locator("#kinds label").count() == 2 and "layers 3–60" in words(page, "#kinds")
    after(page, lambda: page.locator('#kinds input[value="1"]').check(force=True))
    assert "MoE8 of 256" in words(page, "#hero") and "kind=1" in page.url
    assert "expert" in words(page, "#shapes")
    after(page, page.go_back)
    assert "SwiGLU" in words(page, "#hero")
    after(page, page.go_back)
    assert words(page, "#model-name") == "llama-3.1-8b"


def test_a_number_shows_its_formula_on_hover_focus_and_tap(page, address):
    visit(page, address)
    tip = page.locator("#tip")
    page.locator("#totals [data-formula]", has_text="131 kB").hover()
    assert tip.text_content() == "2 bytes × 32 layers × 2 · n_kv_heads 8 · d_head 128"
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()
    page.locator("#totals [data-formula]", has_text="74").first.focus()
    assert "rounded down" in tip.text_content()
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.locator("#table summary", has_text="attention").click()
    page.locator("#table .inside:visible [data-formula]", has_text="4,194,304").first.hover()
    assert tip.text_content() == "n_kv_heads · d_head · d_model = 8 × 128 × 4,096 = 4,194,304"
    page.locator("#side [data-formula]", has_text="1,000,000").hover()
    assert "Qwen/Qwen3-8B" in tip.text_content() and "rope_theta" in tip.text_content()


BARE = """() => {
    const bare = [];
    for (const node of document.querySelectorAll("#sections .num, #sections [data-twin]")) {
        if (!/[0-9]/.test(node.textContent) || node.closest("thead")) continue;
        if (node.closest("#hand")) {  // a calculator's own line holds its formula, or its column's head is one
            const said = [...node.closest("tr").querySelectorAll(".eq")].map((e) => e.textContent).join("");
            if (!said && !node.closest("table").tHead?.textContent) bare.push(node.closest("tr").textContent);
        } else if (!node.closest("[data-formula]") && !node.querySelector("[data-formula]")) bare.push(node.closest("section").id + ": " + node.textContent);
    }
    return bare;
}"""


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v3"])
def test_no_number_is_without_its_formula(page, address, model):
    visit(page, f"{address}?model={model}&kind=1")
    page.wait_for_function("document.querySelector('#bs').dataset.twins")
    assert page.evaluate(BARE) == []
    assert page.evaluate("document.querySelectorAll('#sections [data-formula]').length") > 400
    page.locator('#ladder [data-rung="gqa"] td:nth-child(4) [data-formula]').first.hover()
    assert "2 bytes × 32 layers × 2,048 × 8,192 tokens = 1,073,741,824" in words(page, "#tip")
    page.evaluate("document.querySelector('#totals [data-formula]').removeAttribute('data-formula')")
    assert len(page.evaluate(BARE)) == 1, "the search finds a number without one"


def test_batch_and_length_change_the_shapes(page, address):
    visit(page, f"{address}?batch=2&length=300")
    row = page.locator('#shapes tr[data-tap="attn.hook_pattern"]')
    assert "2 × 32 × 300 × 300" in row.text_content()
    fill(page, "length", "2,048")
    assert "2 × 32 × 2,048 × 2,048" in row.text_content() and "length=2048" in page.url
    assert page.locator("#length").input_value() == "2,048"
    page.locator('#diagram .standing [data-node="pattern"] .box').click()
    assert "marked" in row.get_attribute("class")
    fill(page, "length", "-4")
    assert "Length must lie between 1 and" in words(page, "#notice") and page.locator("#length").input_value() in ("1", "-4")


def test_models_are_put_side_by_side(page, address):
    visit(page, f"{address}?compare=gpt2")
    after(page, lambda: page.select_option("#add-model", "deepseek-v3"))
    assert page.locator("#side thead th").all_text_contents() == ["", "gpt2", "deepseek-v3"]
    assert parse_qs(urlsplit(page.url).query)["compare"] == ["gpt2,deepseek-v3"]
    heads = page.locator("#side tr", has=page.locator("th", has_text=re.compile("^key/value heads$")))
    assert "latent 512 + 64" in heads.text_content() and "differs" in heads.get_attribute("class")
    laid = page.evaluate("[...document.querySelectorAll('#side tr')].map((tr) => getComputedStyle(tr).display)")
    assert set(laid) == {"table-row"}, "a row that differs is still a row"
    after(page, lambda: page.locator(".chip button").first.click())
    assert page.locator("#side thead th").all_text_contents() == ["", "deepseek-v3"]
    after(page, lambda: page.select_option("#model", "mine"))
    assert words(page, "#model-name") == "mine"


def test_the_ladder_takes_the_width_of_a_gated_mlp(page, address):
    visit(page, address)
    rung = page.locator('#ladder [data-rung="swiglu"]')
    before = rung.text_content()
    after(page, lambda: page.locator('input[value="same"]').check(force=True))
    page.wait_for_function(
        "(old) => document.querySelector('#ladder [data-rung=swiglu] [data-twin=logit]').textContent !== ''", arg=before
    )
    assert rung.text_content() != before and "× 1.33" in rung.text_content() and "width=same" in page.url


def test_the_calculators(page, address):
    visit(page, address)
    result = lambda name: page.locator(f'[data-hand="{name}"] tr.result td.num').all_text_contents()  # noqa: E731
    assert result("rmsnorm") == ["0.3651", "0.7303", "1.0954", "1.4606"]
    assert result("swiglu") == ["5.2848", "−0.2689"]
    fill(page, "x", "2, -1, 3, 0")
    assert result("rmsnorm") == ["1.069", "−0.5345", "1.6036", "0"] and "x=2%2C%20-1" in page.url
    assert result("layernorm")[3] == "−0.6325"
    fill(page, "x", "two")
    assert "x must hold finite numbers" in words(page, '[data-hand="rmsnorm"] .wrong')
    softmax = page.locator('[data-hand="softmax"] table').last
    assert softmax.locator("tbody tr").count() == 5
    normed = softmax.locator("tbody tr td:nth-child(8)").all_text_contents()
    assert len(set(normed)) == 1, "QK-norm holds the weights whatever q's length"
    visit(page, f"{address}?x=1,1&pair=0,2&position=2&frequency=0")
    assert result("rotation") == ["0", "2"]


def test_a_pasted_config_is_read_or_says_why(page, address):
    visit(page, address)
    page.locator("#paste").click()
    page.fill("#config", '{"model_type": "bert"}')
    page.locator("#paste-box .go").click()
    expect(page.locator("#notice.wrong")).to_contain_text("the types that can be opened are")
    assert words(page, "#model-name") == "llama-3.1-8b"
    page.fill("#config", json.dumps(values("llama")))
    after(page, lambda: page.locator("#paste-box .go").click())
    assert words(page, "#model-name") == "pasted config" and page.locator("#notice").is_hidden()
    after(page, lambda: page.select_option("#add-model", "pasted config"))
    assert "pasted config" in words(page, "#side thead")
    there = page.url
    visit(page, there)
    assert words(page, "#model-name") == "pasted config" and page.locator("#model").input_value() == ""
    after(page, lambda: page.select_option("#model", "gpt2"))
    assert words(page, "#model-name") == "gpt2" and "config=" not in page.url


def test_an_uploaded_config_is_read(page, address, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(values("qwen3")))
    visit(page, address)
    page.locator("#paste").click()
    after(page, lambda: page.set_input_files("#config-file", tmp_path / "config.json"))
    assert "QK-norm" in words(page, "#hero")
    (tmp_path / "large.json").write_text("x" * 70_000)
    page.set_input_files("#config-file", tmp_path / "large.json")
    expect(page.locator("#notice.wrong")).to_contain_text("at most 65,536")


def test_hostile_links_open_the_nearest_view(page, address):
    query = "&".join(
        f"{name}={quote(b.HOSTILE)}" for name in ("model", "compare", "x", "q", "width", "theme", "batch", "w_gate")
    )
    visit(page, f"{address}?{query}")
    assert page.evaluate("window.pwned") is None and page.locator(".bs img").count() == 0
    assert words(page, "#model-name") == "llama-3.1-8b" and "here is no model" in words(page, "#notice")
    visit(page, f"{address}?config={quote(b.HOSTILE)}")
    assert page.evaluate("window.pwned") is None and words(page, "#model-name") == "llama-3.1-8b"
    assert "not valid JSON" in words(page, "#notice")


def test_the_page_is_reached_from_the_others_and_back(page, address):
    page.goto(address.removesuffix("anatomy/") + "?prompt=hello")
    b.settle(page)
    page.locator('nav [data-page="anatomy"]').click()
    settle(page)
    assert "/anatomy/" in page.url and words(page, "#model-name") == "mine"
    page.locator('nav [data-page="explore"]').click()
    b.settle(page)
    assert "/anatomy" not in page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080), (390, 844)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_nothing_scrolls_sideways_in_any_theme(chrome, address, size, theme):
    context = chrome.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    for model in ("llama-3.1-8b", "gpt-oss-20b"):
        visit(page, f"{address}?model={model}")
        page.wait_for_function("document.querySelector('#bs').dataset.twins")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
        out = page.evaluate(
            """() => [...document.querySelectorAll("#sections > section > *, .top > *, .what-line > *")]
            .filter((e) => e.offsetParent && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1))
            .map((e) => e.id || e.className)"""
        )
        assert out == []
    visit(page, address)
    page.wait_for_function("document.querySelector('#bs').dataset.twins")
    for section in SECTIONS if size[0] != 1920 else ("block", "charts", "ladder"):
        page.evaluate(
            "(id) => { const e = document.getElementById(id); scrollTo(0, e.getBoundingClientRect().top + scrollY - 54); }",
            f"s-{section}",
        )
        page.wait_for_timeout(120)
        b.shot(page, f"anatomy_{section}_{size[0]}_{theme}")
    context.close()


def test_an_empty_paste_and_a_link_of_several_faults_are_said_in_sentences(page, address):
    visit(page, address)
    page.locator("#paste").click()
    page.locator('#paste-box button[type="submit"]').click()
    expect(page.locator("#notice.wrong")).to_contain_text("Nothing is pasted yet: paste the text of a config.json here")
    assert words(page, "#model-name") == "llama-3.1-8b"
    visit(page, f"{address}?config=%7B&batch=x&nothing=1")
    said = words(page, "#notice")
    for fault in ("not valid JSON", "Batch must be a whole number", "'nothing'", "Showing llama-3.1-8b instead."):
        assert fault in said, said
    visit(page, f"{address}?model=deepseek-v3")
    assert words(page, "#model-note") == words(page, "#totals > .caption")
    assert "14,848 of the parameters are routing biases" in words(page, "#model-note")
