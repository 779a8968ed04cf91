"""The Files panel: what it says of a model's files, without a browser and in one."""

import json
import re
import shutil
from pathlib import Path

import browser as b
import pytest
import torch
from safetensors.torch import load_file, save_file

import app
from model import load
from model.errors import BlockscopeError
from viz.pages.explore import Explore
from viz.pages.files import MOST, contents, described, examined
from viz.shelf import Shelf
from viz.store import Store

SHIPPED = Path(__file__).parents[1] / "assets" / "checkpoints" / "code-qknorm-on"


@pytest.fixture
def shelf(tmp_path) -> Shelf:
    broken = shutil.copytree(SHIPPED, tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"][3] = torch.nan
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    return Shelf(
        {"shipped": str(SHIPPED), "broken": str(broken), "random": "tiny-llama"}, lambda source: load(source, device="cpu")
    )


def warnings(told: dict) -> list[str]:
    return [sentence for level, _, sentence in told["findings"] if level == "warning"]


def test_contents_are_those_of_the_files_and_no_path_leaves(shelf):
    told = contents(shelf, "shipped")
    files = told["files"]
    header = load_file(SHIPPED / "model.safetensors")
    assert {row[0]: row[1] for row in files["tensors"]} == {name: list(t.shape) for name, t in header.items()}
    assert files["count"] == len(header) and files["agrees"] and "as its config asks for" in files["summary"]
    status = {row[0]: row[2] for row in files["fields"]}
    assert status["rms_norm_eps"] == "used" and "used" in status.values()
    assert str(SHIPPED.parent) not in json.dumps(told)


def test_a_check_names_what_is_broken(shelf):
    steps = []
    told = examined(shelf, "broken", steps.append)["files"]
    assert warnings(told) == ["ln_final.weight holds 1 NaN and 0 infinite of 128 numbers; fetch or convert the file again"]
    assert steps[0].done == 0 and any(step.what == "ln_final.weight" for step in steps)
    whole = examined(shelf, "shipped", steps.append)["files"]
    assert not warnings(whole) and whole["whole"] and "twice" in {name for _, name, _ in whole["checks"]}


def test_models_without_files_say_so(shelf):
    with pytest.raises(BlockscopeError, match="random has no files: its weights are random"):
        contents(shelf, "random")
    with pytest.raises(BlockscopeError, match="those of a live training"):
        contents(shelf, shelf.lend(load("tiny-llama", device="cpu")))


def test_handlers_answer_with_sentences_and_never_raise(shelf, monkeypatch):
    explore = Explore(shelf, Store())
    told = explore.files({"state": {"model": "random"}})
    assert told["kind"] == "files-error" and told["name"] == "random" and "has no files" in told["sentence"]
    assert explore.files("nonsense")["kind"] == "files"
    (last,) = [a for a in explore.examine({"state": {"model": "broken"}}) if a["kind"] == "files"]
    assert warnings(last["files"])
    monkeypatch.setattr("viz.pages.files.inspect", lambda source: 1 / 0)
    assert "failed here (ZeroDivisionError)" in explore.files({})["sentence"]


def test_a_long_list_of_tensors_is_cut(shelf, monkeypatch):
    monkeypatch.setattr("viz.pages.files.MOST", 5)
    from model.checkpoints.inspection import inspect

    told = described(inspect(SHIPPED), [], whole=False)
    assert len(told["tensors"]) == 5 < told["count"] and MOST > 5


@pytest.mark.browser
def test_the_panel_in_a_browser(shelf):
    from playwright.sync_api import sync_playwright

    if b.chromium() is None:
        pytest.skip("no Chromium here")
    with b.serving(app.web(shelf)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=b.chromium(), args=b.FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        b.visit(page, address + "/?model=broken")
        page.click("#files-open")
        page.wait_for_selector("#files-body table")
        said = page.inner_text("#files-said")
        assert re.search(r"Hugging Face · 3 files, .* · 791,936 parameters, as its config asks for", said)
        page.fill("#files-body .filter", "q_proj")
        names = page.locator("#files-body tbody tr:visible td:first-child").all_inner_texts()
        assert names and all("q_proj" in name for name in names)
        page.click("#files-body button.pill")
        page.wait_for_selector(".findings .warning")
        assert "ln_final.weight holds 1 NaN" in page.inner_text(".findings .warning")
        for width, height, scheme in ((1280, 720, "light"), (1920, 1080, "dark"), (390, 844, "light")):
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(400)
            inside = page.evaluate(
                "(() => { const r = document.querySelector('#files').getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth && r.bottom <= innerHeight; })()"
            )
            assert inside, (width, height)
            b.shot(page, f"files_{width}_{scheme}")
        page.keyboard.press("Escape")
        assert not page.evaluate("document.querySelector('#files').open")
        browser.close()
