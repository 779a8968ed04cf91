"""Live runs of the Growth page without a browser: arms, stream, line, what remains; the endpoints."""

import json
import threading
import time

import browser as b
import numpy as np
import pytest
from browser import HOSTILE
from fastapi.testclient import TestClient
from gradio_client import Client
from gradio_client.exceptions import AppError
from growth_page import sent, short_text, stored
from growth_records import made_up

import app
from model.errors import BlockscopeError
from viz.growth_state import GrowthState, parse
from viz.pages.growth_line import Line as Waiting
from viz.pages.growth_live import Live, arms
from viz.pages.growth_records import end, over_heads
from viz.pages.growth_stage import Stage


def test_arms_differ_by_what_was_chosen_or_are_refused():
    left, right, chosen = arms(GrowthState(b_fixes="qk-norm,qk-clip-20"))
    assert chosen == ["qk-clip-20", "qk-norm"] and left.recipe.seed == right.recipe.seed and right.recipe.qk_clip == 20
    assert arms(GrowthState(b_arch="tiny-gemma3", b_fixes=""))[2] == ["architecture"]
    assert parse({"live_steps": "1,200"})[0].live_steps == 1200, "a comma that groups thousands"
    for state, words in (
        (GrowthState(b_fixes=""), "Nothing differs"), (GrowthState(live_lr="0"), "above 0, got '0'"),
        (GrowthState(live_lr="-1"), "above 0"), (GrowthState(live_lr="0,1"), "got '0,1'"), (GrowthState(live_lr="0,001"), "above 0"),
        (GrowthState(live_lr="x" * 90), "above 0"), (GrowthState(size="XXL"), "no size"),
        (GrowthState(b_arch="gpt2"), "no small architecture"), (GrowthState(b_fixes=HOSTILE), "there is no fix"),
    ):  # fmt: skip
        with pytest.raises(BlockscopeError, match=words):
            arms(state)


def test_a_live_run_streams_new_points_and_leaves_records(growth):
    answers = list(growth.train({"token": 3, "state": {"live_steps": 12, "size": "M2"}}))
    kinds = [answer["kind"] for answer in answers]
    assert kinds[0] == "preparing" and kinds[-1] == "ended" and "begin" in kinds and all(a["token"] == 3 for a in answers)
    got = []
    for answer in answers:
        if answer["kind"] in ("points", "ended"):
            assert answer["from"] <= len(got), "a gap that the browser would have to ask for"
            got[answer["from"] :] = answer["points"]
    assert [(p[0], p[1]) for p in got] == [(arm, step) for step in range(13) for arm in (0, 1)]
    keys = answers[-1]["records"]
    records = [growth.files.get(key) for key in keys]
    assert [r.meta["ended"] for r in records] == ["finished"] * 2 and records[0].step[-1] == 12
    probed = [p for p in got if p[0] == 0 and p[3]]
    np.testing.assert_allclose([p[3][2] for p in probed], over_heads(records[0].values["max_logit"], "max_logit"), rtol=1e-4)
    shown = growth.look({"state": {}, "result": keys})["sections"]["result"]
    assert {card["id"] for card in shown["cards"]} >= {"result-max_logit", "result-loss", "result-cosine"} and shown["patterns"]
    kept = growth.control({"run": answers[-1]["run"], "what": "keep", "n": 1})["kept"]
    lm = growth.shelf.model(kept[1]["model"])
    assert lm.qk_norm == "head" and kept[1]["model"] not in growth.shelf.names
    assert growth.shelf.menu_with(kept[1]["model"])[-1] == ["trained live", [kept[1]["model"]]]
    assert kept[0]["file"]["bytes"] < 400_000 and growth.control({"run": "guess", "what": "keep"})["kind"] == "error"


def test_not_finite_ends_the_run_and_says_where(growth):
    answers = list(growth.train({"state": {"live_steps": 8, "live_lr": "1e9"}}))
    assert answers[-1]["kind"] == "ended" and answers[-1]["ended"][0].startswith("not finite at step")
    json.dumps(answers, allow_nan=False)
    bad = list(growth.train({"state": {"live_lr": "0"}, "token": 9}))
    assert [a["kind"] for a in bad] == ["error"] and bad[0]["token"] == 9 and "above 0" in bad[0]["sentence"]


def begun(growth, **state):
    """A run that trains, its generator and its Live."""
    run = growth.train({"state": {"live_steps": 3000, **state}})
    name = next(a["run"] for a in run if a["kind"] == "points" and a["points"])
    return run, growth.stage._runs[name], name


def test_a_paused_run_waits_and_goes_on(growth):
    run, live, name = begun(growth)
    growth.control({"run": name, "what": "pause"})
    time.sleep(0.3)
    done = live.done
    time.sleep(0.3)
    assert live.done <= done + 1 and next(run)["kind"] == "points"
    growth.control({"run": name, "what": "go"})
    assert any(live.done > done for _, _ in zip(range(30), run, strict=False))
    run.close()


@pytest.mark.parametrize("how", ["stop", "close"])
@pytest.mark.parametrize("size", ["M2", "C"])
def test_a_stopped_or_closed_page_frees_the_worker_within_a_second(growth, how, size):
    """Measured until the next visitor's run has the place and the old one has taken its last step; 2.5 s on a busy machine."""
    run, live, name = begun(growth, size=size)
    second = growth.train({"state": {"live_steps": 1}, "token": 2})
    assert next(second) == {"token": 2, "run": second_name(second), "kind": "waiting", "ahead": 1}
    began = time.monotonic()
    if how == "stop":
        growth.control({"run": name, "what": "stop"})
        last = list(run)[-1]
        assert last["ended"][0].startswith("stopped at step")
    else:
        run.close()  # what Gradio does when the page goes away
    assert next(a for a in second if a["kind"] != "waiting")["kind"] == "preparing"
    assert live.over.wait(5)
    assert time.monotonic() - began < 2.5
    done = live.done
    assert list(second)[-1]["ended"] == ["finished"] * 2
    assert live.done == done and growth.stage.line._standing == []


def test_a_theme_that_changes_while_a_run_goes_on_brings_its_pictures_in_the_other_colours(growth):
    run, _, name = begun(growth)
    light, dark = (growth.control({"run": name, "what": "theme", "scheme": scheme}) for scheme in ("light", "dark"))
    run.close()
    assert light["kind"] == dark["kind"] == "begin" and (light["scheme"], dark["scheme"]) == ("light", "dark")
    for one, other in zip(light["cards"], dark["cards"], strict=True):
        a, b = stored(growth, one["url"]), stored(growth, other["url"])
        assert [t["name"] for t in a["data"]] == [t["name"] for t in b["data"]] and a["data"][0]["line"] != b["data"][0]["line"]


def second_name(generator) -> str:
    return generator.gi_yieldfrom.gi_frame.f_locals["live"].id


def test_the_line_is_fair_and_bounded():
    line = Waiting(places=1, longest=2)
    tickets = [line.join() for _ in range(3)]
    with pytest.raises(BlockscopeError, match="2 visitors already wait"):
        line.join()
    assert [line.before(t) for t in tickets] == [0, 1, 2] and list(line.wait(tickets[0])) == []
    threading.Timer(0.1, line.leave, [tickets[0]]).start()
    assert set(line.wait(tickets[1], beat=5)) == {1}
    line.leave(tickets[1])
    line.leave(tickets[1])
    assert line.before(tickets[2]) == 0


def test_a_place_that_was_freed_while_nobody_looked_is_taken_at_once():
    line = Waiting()
    first, second = line.join(), line.join()
    waiting = line.wait(second, beat=30)
    assert next(waiting) == 1
    line.leave(first)
    began = time.monotonic()
    assert list(waiting) == [] and time.monotonic() - began < 1


def test_a_live_run_that_was_dropped_is_not_trained_on():
    live = Live(*arms(GrowthState(live_steps=50)))
    live.stopped.set()
    live.work(lambda step: None)
    assert len(live.points) == 1


def test_the_route_and_the_named_endpoints(tmp_path):
    with TestClient(app.build({"tiny": "tiny-llama"})) as web:
        assert web.get("/growth?group=sweep", follow_redirects=False).headers["location"] == "growth/?group=sweep"
        config = web.get("/growth/config").json()
        public = {d["api_name"] for d in config["dependencies"] if d["api_visibility"] != "private"}
        assert public == {"growth", "growth_train", "growth_untrained", "growth_survey", "growth_record"}
    with b.serving(app.build({"tiny": "tiny-llama"})) as address:
        client = Client(f"{address}/growth/", verbose=False)
        told = client.predict(size="M2", steps=3, lr=0.1, api_name="/growth_train")
        assert [run["meta"]["ended"] for run in told["runs"]] == ["finished"] * 2
        assert end(made_up()) > 1000 and len(told["runs"][0]["values"]["max_logit"]) == len(told["runs"][0]["step"])
        path = made_up().write(tmp_path / "x.safetensors")
        assert client.predict(name=path.name, data=sent(path), api_name="/growth_record")["meta"]["arm"] == "off"
        with pytest.raises(AppError, match="above 0"):
            client.predict(lr=0, api_name="/growth_train")
        assert client.predict(model="tiny", prompt="abc", api_name="/growth_survey")["tokens"] == [1, 3]


def test_the_api_reports_progress_and_is_cancelled(monkeypatch):
    made, init = [], Stage.__init__
    monkeypatch.setattr(Stage, "__init__", lambda self, *given: (init(self, *given), made.append(self))[0])
    with short_text(), b.serving(app.build({"tiny": "tiny-llama"})) as address:
        first, second = (Client(f"{address}/growth/", verbose=False) for _ in range(2))
        job = first.submit(size="M2", steps=3000, api_name="/growth_train")
        until(lambda: job.outputs() and job.outputs()[-1].get("step", 0) > 3)
        told = [one for one in job.outputs() if one["kind"] == "progress"]
        steps = [one["step"] for one in told]
        assert steps == sorted(steps) and {one["steps"] for one in told} == {3000} and told[-1]["seconds_left"] > 0
        waiting = second.submit(size="M2", steps=2, api_name="/growth_train")
        until(lambda: waiting.outputs())
        assert waiting.outputs()[0] == {"kind": "waiting", "ahead": 1}
        began = time.monotonic()
        job.cancel()
        until(lambda: len(made[0].line._standing) < 2)
        assert time.monotonic() - began < 2.5, "a second, on a busy machine"
        ended = waiting.result(timeout=20)
        assert ended["kind"] == "ended" and [run["meta"]["ended"] for run in ended["runs"]] == ["finished"] * 2


def until(found, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.02)
