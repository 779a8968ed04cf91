"""The Growth page without a browser: its state, its choices, its captions, its figures, live runs and their line."""

import base64
import json
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import browser as b
import numpy as np
import pytest
from fastapi.testclient import TestClient
from gradio_client import Client
from gradio_client.exceptions import AppError
from growth_records import HEADS, LAYERS, SNAPSHOTS, STEPS, folder_of_records, made_up, small_corpus

import app
from model import load
from model.errors import BlockscopeError
from model.growth.quantities import QUANTITIES
from viz.figures.growth import Level, Line, Panel, decades, panel, power, shade
from viz.figures.growth_heads import heads, short
from viz.growth_state import PROMPT_IN_LINK, GrowthState, parse
from viz.pages import growth_frames, growth_texts
from viz.pages.growth import Growth
from viz.pages.growth_line import Line as Waiting
from viz.pages.growth_live import Live, arms
from viz.pages.growth_opened import from_csv, read_sent
from viz.pages.growth_records import Records, end, over_heads, worst_head
from viz.pages.growth_sections import SECTIONS
from viz.shelf import Shelf
from viz.store import Store
from viz.theme import DARK, LIGHT

HOSTILE = "<img src=x onerror=window.pwned=1>${alert(1)}{{7*7}}`\\"


@pytest.fixture(scope="module", autouse=True)
def short_text():
    """A short text in place of the standard library, which takes seconds to read."""
    patched = pytest.MonkeyPatch()
    patched.setattr(growth_texts, "standard_library", small_corpus)
    growth_texts.standard.cache_clear()
    yield
    patched.undo()
    growth_texts.standard.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of_records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def growth(folder) -> Growth:
    return Growth(Shelf({"tiny": "tiny-llama", "gemma": "tiny-gemma2"}, load), Store(), folder)


def look(growth, have=None, **state) -> dict:
    return growth.look({"token": 5, "scheme": "light", "have": have or {}, "state": state})


def figure(growth, card) -> dict:
    import gzip

    return json.loads(gzip.decompress(growth.store.get(card["url"].rpartition("/")[2])))


# ---- the state ------------------------------------------------------------------------------------------------------


def test_a_view_is_its_query_string():
    assert GrowthState().query() == "" and parse("") == (GrowthState(), [])
    state = GrowthState(
        group="fixes", fix="softcap-50", at_layer=2, at_head=3, run_step=40, b_fixes="qk-norm,no-clip", prompt="a&b=é"
    )
    assert parse(state.query()) == (state, [])
    assert "prompt" not in GrowthState(prompt="x" * (PROMPT_IN_LINK + 1)).query()


@pytest.mark.parametrize(
    "raw",
    [None, 3, [], "?x=%00", {"at_layer": []}, {"live_steps": float("nan")}, {"live_steps": 10**30}, {"run_step": "-7"}, {"lr": HOSTILE},
     {"group": HOSTILE}, {"models": "x," * 2000}, {"untrained": "x"}, {"prompt": "\ud800"}, {"live_lr": True}, {"at_head": 10**9},
     {"run_seed": "9" * 300}, {"seen": HOSTILE}, {"quantity": HOSTILE}],
    ids=lambda x: str(x)[:30],
)  # fmt: skip
def test_nothing_that_is_sent_raises(growth, raw):
    state, _ = parse(raw)
    assert (
        isinstance(state, GrowthState)
        and 1 <= state.live_steps <= 5000
        and state.untrained in ("scale", "depth", "context", "width")
        and state.quantity in QUANTITIES
    )
    answer = growth.look({"state": raw, "token": [], "have": 3, "opened": [HOSTILE, 3], "result": {"a": 1}})
    assert answer["kind"] == "view" and "Traceback" not in json.dumps(answer)
    assert growth.look(raw)["kind"] == "view"
    assert growth.control(raw)["kind"] == "error" and growth.open(raw)["kind"] == "error"
    assert next(iter(growth.measure(raw)))["kind"] == "error"


# ---- recorded runs --------------------------------------------------------------------------------------------------


def test_only_what_changed_travels(growth):
    first = look(growth)
    assert first["sections"].keys() == SECTIONS.keys() and first["token"] == 5
    assert len(json.dumps(first)) < 40_000
    have = {name: section["key"] for name, section in first["sections"].items()}
    assert look(growth, have)["sections"] == {}
    assert look(growth, have, quantity="entropy")["sections"].keys() == {"heads", "result", "opened"}
    assert look(growth, have, live_lr="0.01")["sections"].keys() == {"form"}
    assert look(growth, have, group="stress", lr="0.1", run_seed="0")["sections"] == {}  # what is shown anyway


def test_a_learning_rate_is_that_of_a_run_and_never_between(growth):
    choice = look(growth, group="sweep", lr="0.02")["sections"]["choice"]
    assert choice["lrs"] == ["0.001", "0.01", "0.1", "0.3"] and choice["lr"] == "0.01"
    answer = look(growth, group="sweep", lr="0.02")
    assert "no run has the learning rate '0.02': showing 0.01, the nearest that was run" in answer["notes"]
    assert answer["state"]["lr"] == "0.01" and "lr=0.01" in answer["query"]
    for lr in ("0", "-3", "1e9", "nan", HOSTILE):
        answer = look(growth, group="sweep", lr=lr)
        assert answer["sections"]["choice"]["lr"] in choice["lrs"] and answer["notes"], lr


def test_both_arms_and_the_fixes_against_the_run_without(growth):
    choice = look(growth, group="fixes", fix="soft-cap 50")["sections"]["choice"]
    assert choice["names"] == ["QK-norm off", "made up: soft-cap 50"]
    assert choice["table"]["arms"] == ["off", "on", "QK-clip 20", "soft-cap 50"]
    assert all(len(row) == len(choice["table"]["columns"]) for row in choice["table"]["rows"])
    seeds = look(growth, run_seed="all")["sections"]["choice"]
    assert seeds["seeds"] == ["0", "1", "2", "all"] and seeds["several"]


def test_curves_are_the_numbers_of_the_record(growth, folder):
    records = Records(folder)
    left = records.read(records.choose(GrowthState()).pairs[0][0])
    card = next(c for c in look(growth)["sections"]["panels"]["cards"] if c["id"] == "growth-max_logit")
    drawn = figure(growth, card)
    assert len(drawn["data"]) == 2 * LAYERS + 1  # every layer of both arms, and the bound of the one that has it
    last = drawn["data"][LAYERS - 1]
    values = np.frombuffer(base64.b64decode(last["y"]["bdata"]), "f4")
    np.testing.assert_array_equal(values, left.values["max_logit"][:, LAYERS - 1].max(-1))
    assert drawn["layout"]["yaxis"]["type"] == "log" and "dashed: what QK-norm allows" in card["caption"]
    one = figure(
        growth, next(c for c in look(growth, at_layer=1, at_head=2)["sections"]["panels"]["cards"] if "max_logit" in c["id"])
    )
    picked = next(t for t in one["data"] if t["name"] == "QK-norm off, layer 1, head 2")
    np.testing.assert_array_equal(
        np.frombuffer(base64.b64decode(picked["y"]["bdata"]), "f4"), left.values["max_logit"][:, 1, 2]
    )


def test_every_step_of_the_maps_and_patterns_is_the_record(growth, folder):
    import gzip

    answer = look(growth, at_layer=2, at_head=1)["sections"]
    get = lambda url: json.loads(gzip.decompress(growth.store.get(url.rpartition("/")[2])))  # noqa: E731
    told, drawn = get(answer["heads"]["frames"]), get(answer["patterns"]["frames"])
    records = Records(folder)
    left = records.read(records.choose(GrowthState()).pairs[0][0])
    assert told["steps"] == drawn["steps"] == SNAPSHOTS.tolist()
    bytes_ = np.frombuffer(base64.b64decode(drawn["patterns"][0]["data"]), np.uint8).reshape(len(SNAPSHOTS), 12, 12)
    np.testing.assert_array_equal(bytes_, left.patterns[:, 2, 1])
    assert told["heads"][0]["text"][-1][3][3] == short(float(left.values["max_logit"][-1, 3, 3]))
    layer, head = worst_head(left)
    assert told["heads"][0]["most"][-1].endswith(f"in layer {layer} head {head}")


def test_captions_are_read_from_the_records(growth, folder):
    story = " ".join(look(growth)["sections"]["choice"]["story"])
    records = Records(folder)
    off = [records.read(e) for e in records.own("stress") if e.arm == "off"]
    low = min(float(r.values["max_logit"].max()) for r in off)
    assert f"{low:,.0f} to" in story and "did not diverge" in story and "learning rate 0.1" in story
    fixes = look(growth, group="fixes")["sections"]["choice"]["story"][0]
    assert "made up: QK-clip 20" in fixes and "one seed each" in fixes
    assert "nothing interpolated" in look(growth, group="sweep")["sections"]["choice"]["story"][0]


def test_no_records_is_a_sentence(tmp_path):
    empty = Growth(Shelf({"tiny": "tiny-llama"}, load), Store(), tmp_path)
    assert "train one below" in look(empty)["sections"]["choice"]["empty"]


def test_shipped_records_open_small():
    shipped = Growth(Shelf({"tiny": "tiny-llama"}, load), Store())
    assert len(shipped.records.entries) == 26
    answer = look(shipped)
    assert answer["sections"]["choice"]["groups"][0][0] == "stress" and len(answer["sections"]["choice"]["story"]) == 2
    cards = [card for section in answer["sections"].values() for card in section.get("cards", [])]
    urls = [card["url"] for card in cards if "url" in card] + [answer["sections"][n]["frames"] for n in ("heads", "patterns")]
    sent = sum(len(shipped.store.get(url.rpartition("/")[2])) for url in urls)
    assert len(json.dumps(answer)) + sent < 300_000, "the page's own bytes"


# ---- figures --------------------------------------------------------------------------------------------------------


def test_panels_hold_what_cannot_be_drawn_out_and_mark_levels():
    lines = [Line("off", STEPS, np.array([1, np.inf, 0, -1, np.nan, 10, 1e5]), 0, label="off")]
    drawn = panel(Panel(lines, log=True, levels=[Level(50, "bigram")]), LIGHT, revision="x")
    data, layout = drawn.figure.data, drawn.figure.layout
    assert list(data[0].y) == [1, 10, 100_000] and layout.shapes[1].y0 == 50
    assert {a.text for a in layout.annotations} == {"off", "bigram"} and layout.yaxis.range[0] < 0 < 5 < layout.yaxis.range[1]
    assert len(panel(Panel([]), DARK, revision="x").figure.data) == 0  # plotly accepts a picture without lines
    assert power(3) == "1,000" and power(6) == "10⁶" and shade(0, 4) < shade(3, 4) == 1.0
    assert len(decades(0, 40)["tickvals"]) < 9


def test_a_map_names_its_cells_and_frames_the_chosen():
    values = np.array([[1.0, 13_855.0], [np.nan, np.inf]], np.float32)
    drawn = heads(
        [values, values[:1]], ["off", HOSTILE], values, LIGHT, revision="x", unit="|logit|", chosen=[(0, 1), None]
    ).figure
    assert (
        drawn.data[0].text[0][1] == "13.9k"
        and list(drawn.data[0].text[1]) == ["", "inf"]
        and drawn.data[0].customdata[1][1] == 1025
    )
    assert len(drawn.layout.shapes) == 1 and "<img" not in drawn.data[1].hovertemplate
    assert [short(x) for x in (4.3e37, 3.27e12, 2.5e9, 0.0)] == ["4.3e37", "3.3e12", "2.5G", "0"], "a cell is about 50 px wide"
    assert (
        over_heads(values[None], "max_logit").tolist() == [[13_855.0, np.inf]]
        and over_heads(values[None], "entropy")[0, 0] == 1
    )


# ---- live -----------------------------------------------------------------------------------------------------------


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


def test_stop_pause_and_a_closed_page_free_the_worker_at_once(growth):
    run = growth.train({"state": {"live_steps": 3000}})
    name = next(a["run"] for a in run if a["kind"] == "points" and a["points"])
    growth.control({"run": name, "what": "pause"})
    live = growth.stage._runs[name]
    time.sleep(0.3)
    done = live.done
    time.sleep(0.3)
    assert live.done <= done + 1 and next(run)["kind"] == "points"
    growth.control({"run": name, "what": "go"})
    second = growth.train({"state": {"live_steps": 4}, "token": 2})
    assert next(second) == {"token": 2, "run": second_name(second), "kind": "waiting", "ahead": 1}
    run.close()  # what Gradio does when the page goes away
    began = time.monotonic()
    rest = list(second)
    assert rest[-1]["kind"] == "ended" and rest[-1]["ended"] == ["finished"] * 2
    done = live.done
    time.sleep(0.3)
    assert live.done == done and time.monotonic() - began < 20 and growth.stage.line._standing == []
    run = growth.train({"state": {"live_steps": 3000}})
    name = next(a["run"] for a in run if a["kind"] == "points" and a["points"])
    began = time.monotonic()
    growth.control({"run": name, "what": "stop"})
    last = list(run)[-1]
    assert time.monotonic() - began < 3 and last["ended"][0].startswith("stopped at step")


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


def test_a_live_run_that_was_dropped_is_not_trained_on():
    live = Live(*arms(GrowthState(live_steps=50)))
    live.stopped.set()
    live.work(lambda step: None)
    assert len(live.points) == 1


# ---- records of others ----------------------------------------------------------------------------------------------


def sent(path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_a_record_of_somebody_is_opened_and_drawn(growth, tmp_path):
    paths = [made_up(arm=arm, layers=6, heads=2).write(tmp_path / f"{arm}.safetensors") for arm in ("on", "off")]
    keys = [growth.open({"n": i, "name": path.name, "data": sent(path)})["key"] for i, path in enumerate(paths)]
    shown = growth.look({"state": {}, "opened": keys})["sections"]["opened"]
    assert shown["names"][0] == "QK-norm off" and "opened-max_logit" in {card["id"] for card in shown["cards"]}
    csv = made_up(layers=2, heads=HEADS, patterns=False)
    told = growth.open({"name": "../run.csv", "data": base64.b64encode(csv.csv().encode()).decode()})
    read = growth.files.get(told["key"])
    np.testing.assert_allclose(read.values["max_logit"], csv.values["max_logit"], rtol=1e-5)
    assert read.name == "run.csv" and growth.look({"state": {}, "opened": [told["key"]]})["sections"]["opened"]["heads"]


@pytest.mark.parametrize(
    "name, body, words",
    [
        ("a.safetensors", b"\x08\0\0\0\0\0\0\0{}      ", "^a.safetensors holds no tensors"), ("a.safetensors", b"", "^a.safetensors"),
        ("a.bin", b"x", "is not a record"), ("a.csv", b"\xff\xfe", "is not text"), ("a.csv", b"step,loss\n1,2\n", "columns must begin"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,0,0,x\n", "line 2: a value is not a number"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,0\n", "expected 6 values, got 4"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,1e9,0,2\n", "layer must be whole numbers"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,1000,1000,2\n", "are missing"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n", "no rows"),
    ],
    ids=lambda x: str(x)[:24],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_a_sentence(name, body, words):
    with pytest.raises(BlockscopeError, match=words):
        read_sent(name, base64.b64encode(body).decode())


def test_another_version_and_nonsense_are_sentences(growth, tmp_path):
    from safetensors.numpy import save_file

    save_file({"step": np.zeros(1, np.int64)}, tmp_path / "new.safetensors", metadata={"blockscope_growth": "99"})
    answer = growth.open({"name": "new.safetensors", "data": sent(tmp_path / "new.safetensors"), "n": 4})
    assert answer["n"] == 4 and "format '99'" in answer["sentence"] and "train the run again" in answer["sentence"]
    for data in (None, 3, "%%%", "a" * (24 << 20)):
        assert growth.open({"name": HOSTILE + ".csv", "data": data})["kind"] == "error"
    with pytest.raises(BlockscopeError, match="columns"):
        from_csv(b"", "empty.csv")


# ---- without training, checkpoints ----------------------------------------------------------------------------------


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


# ---- the web app ----------------------------------------------------------------------------------------------------


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


def test_an_arm_that_ended_earlier_stays_at_its_last_step_while_the_other_goes_on():
    whole = made_up()
    short = replace(
        whole, step=whole.step[:2], train_loss=whole.train_loss[:2], validation_loss=whole.validation_loss[:2],
        values={name: value[:2] for name, value in whole.values.items()}, bound=whole.bound[:2],
        snapshot_step=whole.snapshot_step[:1], patterns=whole.patterns[:1],
    )  # fmt: skip
    both = SimpleNamespace(shown=lambda: [SimpleNamespace(record=record) for record in (short, whole)])
    assert growth_frames.steps_of(both) == whole.snapshot_step.tolist()
    assert [growth_frames._last_at(short.snapshot_step, step) for step in whole.snapshot_step] == [0] * len(whole.snapshot_step)
    assert [growth_frames._last_at(np.array([4, 8]), step) for step in (0, 4, 7, 8, 90)] == [0, 0, 0, 1, 1]
