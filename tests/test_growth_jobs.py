"""What the Growth page measures on models: sweeps without training, and checkpoints over a text."""

import base64
import re

import numpy as np
import pytest
from growth_page import figure

import app
from model import load
from viz.pages.growth import Growth
from viz.shelf import Shelf
from viz.store import Store


def test_what_is_said_of_one_checkpoint_names_it(growth, monkeypatch):
    long, short_one = (growth.jobs.surveyed("tiny", text)[0] for text in ("def f(x):", "def"))
    found = {"tiny": (long, "the text is longer"), "gemma": (short_one, "")}
    monkeypatch.setattr(growth.jobs, "surveyed", lambda name, text, report: found[name])
    ask = {"job": "survey", "state": {"models": "tiny,gemma", "prompt": "x"}}
    last = list(growth.measure(ask))[-1]
    assert last["notes"] == ["tiny: the text is longer"] and last["about"] == "", "each map says its own number of tokens"
    found["gemma"] = found["tiny"]
    last = list(growth.measure(ask))[-1]
    assert last["notes"] == ["the text is longer"] and last["about"].startswith("9 tokens")


def test_checkpoints_over_a_text(growth):
    told = list(
        growth.measure(
            {
                "token": 7,
                "job": "survey",
                "state": {"model": "tiny", "models": "gemma", "prompt": "def f(x):", "seen": "capped"},
            }
        )
    )
    last = told[-1]
    assert last["kind"] == "survey" and last["token"] == 7 and last["names"] == ["tiny", "gemma"]
    assert [card["caption"] for card in last["cards"] if card["id"] == "survey-0"] == ["this model has no such stage"]
    assert [len(row) for row in last["table"]["rows"]] == [len(last["table"]["columns"])] * 2
    assert last["table"]["rows"][0][3] == "–" and last["table"]["rows"][1][3] != "–"
    lm, tokens = growth.shelf.model("tiny"), growth.shelf.model("tiny").encode("def f(x):")
    cap = lm.capture(tokens, taps=["blocks.*.attn.hook_logits"])
    causal = [t[0].tril().abs().max() for t in cap.values()]
    assert last["about"].startswith("9 tokens"), "both read the same number of tokens"
    survey, _ = growth.jobs.surveyed("tiny", "def f(x):")
    np.testing.assert_allclose(survey.stages["masked"].max(-1), [float(x) for x in causal], rtol=1e-5)
    empty = list(growth.measure({"job": "survey", "state": {"prompt": "  "}}))
    assert "The text is empty" in empty[-1]["sentence"]


def test_a_directory_of_steps_is_a_growth_curve(tmp_path):
    from shutil import copytree

    source = app.SHIPPED / "code-qknorm-off"
    for step in (200, 10):
        copytree(source, tmp_path / "run" / f"step-{step}")
    found = app.shelved([str(tmp_path / "run")])
    assert list(found.groups) == ["run: training steps"] and found.groups["run: training steps"] == [
        "run step-10",
        "run step-200",
    ]
    growth = Growth(Shelf(found.sources, load, groups=found.groups), Store(), tmp_path)
    assert growth.jobs.offered[-1] == "run: training steps" and "run step-10" not in growth.jobs.offered
    told = list(growth.measure({"job": "survey", "state": {"models": "run: training steps", "prompt": "import os"}}))[-1]
    assert told["cards"][0]["id"] == "survey-growth" and told["names"] == ["run step-10", "run step-200"]


def test_growth_without_training_says_what_it_is(growth, monkeypatch):
    answer = list(growth.measure({"job": "untrained", "state": {"untrained": "scale"}}))[-1]
    assert "is not open here" in answer["sentence"]  # this shelf has no trained pair
    told = list(growth.measure({"job": "untrained", "state": {"untrained": "width"}}))[-1]
    assert "nobody trained them" in told["label"] and told["cards"][0]["url"]
    pair = Growth(Shelf({p.name: str(p) for p in app.SHIPPED.iterdir()}, load), Store())
    monkeypatch.setattr("viz.pages.growth_jobs.TEXTS", 1)
    told = list(pair.measure({"job": "untrained", "state": {"untrained": "scale"}}))[-1]
    off, on = pair.jobs.sweeps("scale")
    tops = {s.label[:15]: [float(row.max_logit[0]) for row in s.rows] for s in (off, on)}
    np.testing.assert_allclose(
        np.array(tops["code-qknorm-off"]) / tops["code-qknorm-off"][2], np.array(told["factors"]) ** 2, rtol=1e-3
    )
    assert np.ptp(tops["code-qknorm-on:"]) < 1e-2 and "artificial scaling, not training" in told["label"]
    found = re.search(r"s² exactly: 256 times at s = 16, within ([\d.]+)% .* goes ([\d.]+) times instead of 256", told["label"])
    worst = [max(row.max_logit) for row in off.rows]
    assert float(found[1]) <= 0.01 and float(found[2]) == pytest.approx(worst[-1] / worst[2], rel=0.01)
    drawn = figure(pair, told["cards"][0])["data"]
    assert [trace["name"] for trace in drawn] == [
        f"QK-norm {arm}, {layer}" for arm in ("off", "on") for layer in ("layer 0", "worst layer")
    ]
    np.testing.assert_allclose(
        np.frombuffer(base64.b64decode(drawn[0]["y"]["bdata"]), "f4"), tops["code-qknorm-off"], rtol=1e-6
    )
