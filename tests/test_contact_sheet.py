"""All diagrams on one page, drawn by a real browser: the sheets to look at, and that every label lies inside its box."""

import browser as b
import contact_sheet
import pytest
from playwright.sync_api import sync_playwright

pytestmark = pytest.mark.browser
SPILLED = """() => [...document.querySelectorAll(".sheet .node")].filter((node) => {
    const box = node.querySelector(".box").getBBox();
    return box.width && [...node.querySelectorAll("text")].some((text) => {
        const t = text.getBBox();
        return t.width && (t.x < box.x || t.x + t.width > box.x + box.width + 0.5 || t.y + t.height > box.y + box.height + 1);
    });
}).map((node) => node.closest("figure").innerText.split("\\n")[0] + ": " + node.textContent)"""
BROKEN = """() => document.querySelectorAll(".sheet .node").forEach((node) => {
    node.classList.add("bad", "sel");
    if (node.querySelector(".max").textContent) node.querySelector(".max").textContent = "⚠ NaN 17.5k";
})"""
CROWDED = """() => [...document.querySelectorAll(".sheet .node")].filter((node) => {
    const boxes = [...node.querySelectorAll("text")].map((text) => text.getBBox()).filter((t) => t.width);
    return boxes.some((a, i) => boxes.slice(i + 1).some((c) =>
        a.x < c.x + c.width - 0.5 && c.x < a.x + a.width - 0.5 && a.y + 3 < c.y + c.height && c.y + 3 < a.y + a.height));
}).map((node) => node.closest("figure").innerText.split("\\n")[0] + ": " + node.textContent)"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_contact_sheet_of_all_diagrams(theme):
    path = b.chromium()
    if path is None:
        pytest.skip("no Chromium: name one in BLOCKSCOPE_CHROMIUM, or install Debian's chromium")
    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=path, args=b.FLAGS)
        page = chrome.new_page(viewport={"width": 1500, "height": 900})
        page.set_content(contact_sheet.sheet(theme == "dark"))
        page.wait_for_timeout(200)
        for row in (0, 1):  # standing, lying
            name = f"diagrams_{theme}" if row == 0 else f"diagrams_lying_{theme}"
            b.SHOTS.mkdir(parents=True, exist_ok=True)
            page.locator(".sheet").nth(row).screenshot(path=b.SHOTS / f"{name}.png")
        assert page.evaluate(SPILLED) == [] and page.evaluate(CROWDED) == []
        page.evaluate(BROKEN)
        assert page.evaluate(SPILLED) == [] and page.evaluate(CROWDED) == []
        chrome.close()
