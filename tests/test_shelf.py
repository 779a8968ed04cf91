"""Models on a shelf that visitors share: one that is slow, damaged or gone does not keep the others waiting."""

import shutil
import threading
import time

import pytest
from conftest import make_lm

import app
from model import load
from model.errors import BlockscopeError
from viz.pages import running
from viz.pages.explore import Explore
from viz.shelf import Shelf
from viz.store import Store

SHIPPED = app.SHIPPED / "code-qknorm-on"


def ask(**state) -> dict:
    return {"token": 1, "state": {"prompt": "one two", **state}}


def first(answers) -> dict:
    """The first that is no progress."""
    return next(answer for answer in answers if answer["kind"] != "progress")


def test_a_slow_model_keeps_nobody_waiting_and_a_damaged_one_disturbs_nobody():
    go = threading.Event()

    def opener(source):
        if source == "slow":
            assert go.wait(60)
        if source == "bad":
            raise BlockscopeError("config.json is not valid JSON")
        return make_lm()

    explore = Explore(Shelf({name: name for name in ("slow", "bad", "quick")}, opener), Store())
    slow = []
    threads = [threading.Thread(target=lambda: slow.append(list(explore.run(ask(model="slow"))))) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert explore.look(ask(model="quick"))["kind"] == "run"
    assert first(explore.run(ask(model="quick")))["kind"] == "view"  # though four visits are being opened
    assert first(explore.run(ask(model="bad")))["sentence"] == "config.json is not valid JSON"
    assert all(thread.is_alive() for thread in threads)
    go.set()
    for thread in threads:
        thread.join(20)
    assert [answers[-1]["kind"] for answers in slow] == ["strip"] * 4


def test_runs_take_turns_and_who_waits_is_told(monkeypatch):
    runs, told, go, busy = running.Runs(Shelf({"m": "m"}, load), None), [], threading.Event(), []
    work = lambda report: busy.append(1) or go.wait(20)  # noqa: E731
    threads = [threading.Thread(target=runs.in_turn, args=(work, told.append)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.4)
    assert len(busy) == running.AT_ONCE and told and {step.what for step in told} == {"waiting for its turn: others run"}
    go.set()
    for thread in threads:
        thread.join(20)
    assert len(busy) == 3
    with pytest.raises(ZeroDivisionError):
        runs.in_turn(lambda report: 1 / 0, told.append)
    assert runs.in_turn(lambda report: "free again", told.append) == "free again"


@pytest.mark.parametrize("memory", [None, "1MB"])
def test_a_folder_that_is_deleted_while_it_is_open_is_a_sentence(memory, tmp_path):
    folder = shutil.copytree(SHIPPED, tmp_path / "m")
    shelf = Shelf({"gone": str(folder), "other": str(SHIPPED)}, lambda source: load(source, device="cpu", memory=memory))
    explore = Explore(shelf, Store())
    assert list(explore.run(ask(model="gone")))[-1]["kind"] == "strip"
    shutil.rmtree(folder)
    assert explore.look(ask(model="gone"))["kind"] in ("run", "error")
    answer = first(explore.run(ask(model="gone")))
    assert answer["sentence"] == "gone is no longer where it was on this machine's disk: choose another model"
    assert str(tmp_path) not in str(answer) and list(explore.run(ask(model="other")))[-1]["kind"] == "strip"
    files = explore.files(ask(model="gone"))
    assert files["kind"] in ("files", "files-error") and str(tmp_path) not in str(files)
