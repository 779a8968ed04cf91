"""What visitors of a shared app may open: names below the operator's folders, hub ids only where allowed, nothing else."""

import os
import shutil
from pathlib import Path

import pytest
from folders import llama_state, write
from gguf_files import write_gguf
from meta_files import llama, write_meta
from reference import build, config_json
from safetensors.torch import save_file

import app
from model import load
from model.errors import BlockscopeError
from viz.library import Library
from viz.pages.explore import Explore
from viz.shelf import Shelf
from viz.store import Store

REFUSED = "no model of that name is open here: showing tiny"


@pytest.fixture(scope="module")
def shelves(tmp_path_factory):
    """A folder of models and, beside it, one that nobody listed."""
    root = tmp_path_factory.mktemp("models")
    inside, outside = root / "shared", root / "private"
    for folder in (inside / "a", inside / "deep" / "b", outside / "secret"):
        folder.mkdir(parents=True)
        write(folder, dict(llama_state()))
    (inside / "runs").mkdir()
    shutil.copy(inside / "a" / "config.json", inside / "runs")
    for step in (1, 2):
        save_file(dict(llama_state()), inside / "runs" / f"step{step}.safetensors")
    write_gguf(inside / "small.gguf", build(config_json("llama")))
    write_meta(inside / "meta", llama())
    (inside / "empty").mkdir()
    (inside / ".hidden").mkdir()
    shutil.copytree(outside / "secret", inside / ".hidden" / "c")
    snapshot = inside / "models--org--name" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for file in (inside / "a").iterdir():
        (snapshot / file.name).symlink_to(file)
    (inside / "link").symlink_to(outside / "secret")
    (inside / "half").mkdir()
    shutil.copy(outside / "secret" / "config.json", inside / "half")
    (inside / "half" / "model.safetensors").symlink_to(outside / "secret" / "model.safetensors")
    (inside / "whole").mkdir()
    for file in (outside / "secret").iterdir():
        (inside / "whole" / file.name).symlink_to(file)
    (inside / "x.gguf").symlink_to(inside / "small.gguf")
    return inside, outside


NAMES = ["a", "deep/b", "meta", "org/name", "runs/step1.safetensors", "runs/step2.safetensors", "small.gguf", "x.gguf"]


def explore(**more) -> Explore:
    return Explore(Shelf({"tiny": "tiny-llama"}, load, library=Library(**more)), Store())


def ask(name: str) -> dict:
    return {"token": 1, "state": {"prompt": "1 2 3", "model": name}}


def test_every_checkpoint_below_the_folder_has_a_name_and_links_that_leave_it_have_none(shelves):
    inside, _ = shelves
    found = Library([inside]).names()
    assert sorted(found) == NAMES
    for name, path in found.items():
        assert load(path, device="cpu").config.n_layers == 3, name
    assert set(Library([inside / "a", inside / "a"]).names()) == {"a", "a′"}


def test_a_link_that_leaves_the_folder_does_not_hide_the_gguf_files_beside_it(shelves, tmp_path):
    inside, _ = shelves
    shutil.copy(inside / "small.gguf", tmp_path / "here.gguf")
    shutil.copy(inside / "small.gguf", tmp_path / "part-00001-of-00002.gguf")
    (tmp_path / "part-00002-of-00002.gguf").symlink_to(inside / "small.gguf")
    (tmp_path / "there.gguf").symlink_to(inside / "small.gguf")
    assert list(Library([tmp_path]).names()) == ["here.gguf"]


def outsiders(shelves) -> list[str]:
    inside, outside = shelves
    secret = str(outside / "secret")
    return [
        secret, "../private/secret", "a/../../private/secret", "deep/../a", "./a", "/etc/passwd", str(inside / "a"), "link", "half",
        "whole", ".hidden/c", "empty", "nowhere", "A", "a/", "a\0", "x" * 200, "~", "org/other", "org/name/q4.gguf", "file:///etc/passwd",
    ]  # fmt: skip


def test_what_is_outside_and_what_is_missing_get_the_same_answer(shelves):
    page = explore(roots=[shelves[0]])
    for name in outsiders(shelves):
        answer = page.look(ask(name))
        assert answer["notes"][-1] == REFUSED and answer["kind"] == "run", (name, answer)
    assert [entry for _, names in page.look(ask(""))["models"] for entry in names] == ["tiny"]


def test_a_typed_name_is_opened_and_stands_in_the_menu_of_whoever_typed_it(shelves):
    page = explore(roots=[shelves[0]])
    *_, view, strip = page.run(ask("deep/b"))
    assert view["kind"] == "view" and view["state"]["model"] == "deep/b" and view["models"][-1] == ["typed", ["deep/b"]]
    assert strip["kind"] == "strip"
    assert page.look(ask(""))["models"] == [["", ["tiny"]]]
    assert explore().look(ask("a"))["notes"] == [REFUSED]


def test_hub_ids_only_where_they_are_allowed(shelves):
    asked = []
    shelf = Shelf({"tiny": "tiny-llama"}, lambda source, progress: asked.append(source) or 1 / 0, library=Library(hub=True))
    closed, open_ = explore(roots=[shelves[0]]), Explore(shelf, Store())
    assert closed.look(ask("org/other"))["notes"] == [REFUSED]
    assert open_.look(ask("org/other"))["notes"] == []
    list(open_.run(ask("org/other")))
    assert asked == ["org/other"]
    for name in ("/etc/passwd", "../x", "a/../b", str(shelves[1] / "secret")):
        assert open_.look(ask(name))["notes"] == [REFUSED]


def test_a_handful_of_models_stays_open(shelves):
    opened = []
    shelf = Shelf(
        {"tiny": "tiny-llama"}, lambda s: opened.append(s) or load(s, device="cpu"), opened=2, library=Library([shelves[0]])
    )
    page = Explore(shelf, Store())
    for name in ("a", "deep/b", "small.gguf", "a", "a"):
        list(page.run(ask(name)))
    assert [Path(source).name for source in opened] == ["a", "b", "small.gguf", "a"] and len(shelf.opened.models) == 2
    assert page.look(ask("deep/b"))["kind"] == "run" and page.look(ask("a"))["kind"] == "view"


def test_names_that_were_typed_are_forgotten_at_last():
    shelf = Shelf({"tiny": "tiny-llama"}, load, library=Library(hub=True))
    for i in range(100):
        shelf.name(f"org/m{i}")
    assert len(shelf._typed) == 32
    with pytest.raises(BlockscopeError, match="choose it again"):
        shelf.model("org/m1")


def test_a_model_written_after_the_start_is_found(shelves, tmp_path, monkeypatch):
    monkeypatch.setattr("viz.library.FRESH", 0.0)
    library = Library([tmp_path])
    assert library.find("new") is None
    shutil.copytree(shelves[0] / "a", tmp_path / "new")
    assert library.find("new") == str(tmp_path / "new")


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--model", "/nowhere/at/all"], "'/nowhere/at/all' is not here: there is no such folder or file"),
        (["--model", "tiny-lama"], "did you mean tiny-llama"),
        (["--max-tokens", "-5"], "--max-tokens is -5"),
        (["--max-tokens", "0"], "--max-tokens is 0"),
        (["--port", "70000"], "--port is 70000"),
        (["--device", "foo"], "device 'foo' cannot be used here"),
        (["--dtype", "int4"], "dtype must be one of"),
        (["--memory", "much"], "memory must be a size"),
        (["--model-dir", "/nowhere/at/all"], "--model-dir '/nowhere/at/all' is not a folder"),
    ],
)
def test_what_cannot_work_is_said_in_the_terminal_with_exit_code_2(argv, word, capsys, monkeypatch):
    monkeypatch.setattr("viz.serving.serve", lambda *args, **kwargs: pytest.fail("the server was started"))
    with pytest.raises(SystemExit) as caught:
        app.main(argv)
    said = capsys.readouterr().err
    assert caught.value.code == 2 and word in said and said.startswith("app.py: ") and said.count("\n") == 1


def test_a_damaged_model_is_also_told_in_the_terminal(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BlockscopeError):
        app._opened(load, str(tmp_path))
    assert "config.json is not valid JSON" in capsys.readouterr().err


def test_the_first_model_is_opened_while_the_server_starts(tmp_path, capsys, monkeypatch):
    (tmp_path / "config.json").write_text("{")
    shelves = []
    monkeypatch.setattr("viz.serving.serve", lambda app, *args: shelves.append(app.state.shelf))
    app.main(["--model", str(tmp_path), "--device", "cpu"])
    app._open_first(shelves[0])
    said = capsys.readouterr()
    assert "Blockscope: http://" in said.out and said.err.count("config.json is not valid JSON") >= 1
    app.main(["--model", "tiny-llama", "--device", "cpu"])
    app._open_first(shelves[1])
    assert shelves[1].ready("tiny-llama")


def test_models_below_the_folder_stand_in_the_menu(shelves, monkeypatch):
    made = {}
    monkeypatch.setattr(app, "web", lambda shelf, texts: made.update(shelf=shelf))
    app.build(["tiny-llama"], model_dirs=[str(shelves[0])], allow_hub=True)
    menu = dict(map(tuple, ((heading, tuple(names)) for heading, names in made["shelf"].menu)))
    assert menu[app.BELOW] == tuple(NAMES) and made["shelf"].library.typed == "name or org/name"
    assert os.path.samefile(made["shelf"].sources["deep/b"], shelves[0] / "deep" / "b")
