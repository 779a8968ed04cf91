"""The model box takes a typed name where the operator allows it: opened, refused in a sentence, or left again."""

import shutil

import browser as b
import pytest
from playwright.sync_api import expect

import app

pytestmark = pytest.mark.browser


def test_a_name_is_typed_in_place_of_the_list(chrome, tmp_path, monkeypatch):
    monkeypatch.setattr("viz.library.FRESH", 0.0)
    with b.serving(app.build([], model_dirs=[str(tmp_path)], device="cpu")) as address:
        shutil.copytree(app.SHIPPED / "code-qknorm-on", tmp_path / "deep" / "later")  # after the start: in no menu
        page = chrome.new_page(viewport={"width": 1280, "height": 720})
        b.visit(page, address)
        page.select_option("#model", label="another…")
        expect(page.locator("#typed")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#model")).to_have_value("code-qknorm-off")
        for typed, said in (("../outside", True), ("deep/later", False)):
            page.select_option("#model", label="another…")
            page.keyboard.type(typed)
            b.after(page, lambda: page.keyboard.press("Enter"))
            if said:
                expect(page.locator("#notice span")).to_contain_text("No model of that name is open here")
        expect(page.locator("#model")).to_have_value("deep/later")
        assert "model=deep%2Flater" in page.url and page.locator("#typed").is_hidden()
        page.close()
