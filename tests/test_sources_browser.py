"""The model box takes a typed name where the operator allows it: opened, refused in a sentence, or left again."""

import shutil

import browser as b
import pytest
from playwright.sync_api import expect

import app

pytestmark = pytest.mark.browser


def test_a_name_is_typed_in_place_of_the_list(chrome, tmp_path, monkeypatch):
    monkeypatch.setattr("viz.library.FRESH", 0.0)
    web = app.build([], model_dirs=[str(tmp_path)], device="cpu")
    opened = lambda: list(web.state.shelf.opened.models)  # noqa: E731
    with b.serving(web) as address:
        shutil.copytree(app.SHIPPED / "code-qknorm-on", tmp_path / "deep" / "later")  # after the start: in no menu
        page = chrome.new_page(viewport={"width": 1280, "height": 720})
        b.visit(page, address)
        page.select_option("#model", label="another…")
        expect(page.locator("#typed")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#model")).to_have_value("code-qknorm-off")
        for typed, said in (
            ("", "No name was typed: type the name of a model in this app's folders"),
            ("../outside", "No model named '../outside' is open here"),
            ("/etc/passwd", "No model named '/etc/passwd' is open here"),
            (b.HOSTILE, "No model named"),
            ("x" * 1_000_000, "far longer than the name of any model"),
        ):
            page.select_option("#model", label="another…")
            page.fill("#typed", typed)
            page.keyboard.press("Enter")
            expect(page.locator("#notice span")).to_contain_text(said)
            expect(page.locator("#typed")).to_have_value(typed)  # to be corrected
            page.keyboard.press("Escape")
            expect(page.locator("#model")).to_have_value("code-qknorm-off")
        assert page.locator("#notice img").count() == 0 and opened() == ["code-qknorm-off"]
        page.select_option("#model", label="another…")
        page.fill("#typed", " deep/later ")
        b.after(page, lambda: page.keyboard.press("Enter"))
        expect(page.locator("#model")).to_have_value("deep/later")
        assert "model=deep%2Flater" in page.url and page.locator("#typed").is_hidden()
        page.close()


def type_name(page, select, name):
    page.select_option(select, label="another…")
    page.fill("#typed" if select == "#model" else f"{select}-typed", name)
    page.keyboard.press("Enter")


def test_the_same_in_compare_for_its_model_and_for_each_side(chrome, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(app.SHIPPED / "code-qknorm-on", tmp_path / "deep" / name)
    web = app.build({"shipped": str(app.SHIPPED / "code-qknorm-off")}, model_dirs=[str(tmp_path)], device="cpu")
    with b.serving(web) as address:
        page = chrome.new_page(viewport={"width": 1280, "height": 720})
        b.visit(page, address + "/compare/")
        for typed in ("../outside", b.HOSTILE):
            type_name(page, "#model", typed)
            expect(page.locator("#notice span")).to_contain_text("No model named")
            page.keyboard.press("Escape")
        assert page.locator("#notice img").count() == 0
        b.after(page, lambda: type_name(page, "#model", "deep/one"))
        expect(page.locator("#model")).to_have_value("deep/one")
        page.click('.side-card[data-side="b"]')
        type_name(page, "#edit-model", "/etc/passwd")
        expect(page.locator("#notice span")).to_contain_text("No model named '/etc/passwd' is open here")
        page.keyboard.press("Escape")
        expect(page.locator("#edit-model")).to_have_value("deep/one")
        expect(page.locator("#editor")).to_be_visible()
        type_name(page, "#edit-model", "deep/two")
        expect(page.locator("#edit-model")).to_have_value("deep/two")
        b.after(page, lambda: page.click('#editor button[type="submit"]'))
        expect(page.locator('.side-card[data-side="b"]')).to_contain_text("deep/two")
        page.close()
