"""The app without a browser: handlers as functions, the parent's routes, and the named endpoints by gradio_client."""

import gzip
import json
import re
import threading
import time
from dataclasses import replace

import browser as b
import pytest
from conftest import make_lm, tiny_config
from fastapi.testclient import TestClient
from gradio_client import Client
from gradio_client.exceptions import AppError

import app
from model import load
from model.cost import amount
from model.errors import BlockscopeError
from model.memory import Bound
from model.view import Request
from viz.pages.explore import Explore
from viz.pages.forecast import Pace, duration, forecast
from viz.pages.shell import own_files, own_url, plotly_url, template
from viz.shelf import Shelf
from viz.store import Store
from viz.worker import Step, watched

MODELS = {"tiny": "tiny-llama", "normed": "tiny-qwen3"}


@pytest.fixture
def explore() -> Explore:
    return Explore(Shelf(MODELS, load, max_tokens=100), Store())


def ask(token: int = 1, **state) -> dict:
    return {"token": token, "scheme": "light", "state": {"prompt": "hello", **state}}


def run(explore: Explore, **state) -> list[dict]:
    return [answer for answer in explore.run(ask(**state)) if answer["kind"] != "progress"]


# ---- handlers ------------------------------------------------------------------------------------------------------


def test_look_asks_for_a_run_once_and_then_answers(explore):
    assert explore.look(ask(7)) == {"kind": "run", "token": 7, "models": [["", ["tiny", "normed"]]], "notes": []}
    view, strip = run(explore)
    assert (view["kind"], strip["kind"]) == ("view", "strip")
    again = explore.look(ask(8, head=2, node="gate"))
    assert again["kind"] == "view" and again["token"] == 8
    assert explore.look(ask(9, prompt="hell"))["kind"] == "run"
    assert explore.look(ask(9, qk="head"))["kind"] == "view"  # the counterfactual has run
    assert explore.look(ask(9, qk="projection"))["kind"] == "run"
    assert explore.look(ask(9, model="normed"))["kind"] == "run"


def test_every_answer_is_strict_json_and_small(explore):
    for answer in run(explore, log=1):
        assert len(json.dumps(answer, allow_nan=False)) < 60_000


def test_the_numbers_of_the_diagram_are_those_of_the_tensors(explore):
    view = run(explore, layer=2)[0]
    lm = load("tiny-llama")
    (q,) = lm.views(lm.encode("hello"), [Request("blocks.2.attn.hook_q", "stats")])
    assert view["numbers"]["q"]["size"] == pytest.approx(q.stats.absmax)
    assert view["numbers"]["q"]["rms"] == f"{q.stats.rms:.2f}"
    assert set(view["numbers"]) == set(re.findall(r'data-node="(\w+)"', view["block"]["standing"])) - {"qk_norm"}


def test_the_strip_and_its_counterfactual(explore):
    view, strip = run(explore)
    assert view["strip"]["other"] is None and len(view["strip"]["peaks"]) == 4
    assert strip["strip"]["peaks"] == view["strip"]["peaks"] and strip["strip"]["run"] == view["strip"]["run"]
    lm = load("tiny-llama").variant("head")
    (logits,) = lm.views(lm.encode("hello"), [Request("blocks.1.attn.hook_logits", "stats")])
    assert strip["strip"]["other"][1] == pytest.approx(logits.stats.absmax)
    assert "unit-gain QK-norm per head (counterfactual)" in strip["strip"]["other_label"]
    assert run(explore, model="normed")[1]["strip"]["other_label"] == "QK-norm off (counterfactual)"


def test_a_kept_run_costs_no_more_than_one_block(explore):
    run(explore)
    lm, ran = explore.shelf.model("tiny"), []
    step = lm.step
    lm.step = lambda stage, *rest: (ran.append(stage), step(stage, *rest))[1]
    for state in ({"head": 3}, {"stage": "pattern"}, {"node": "gate"}, {"node": "ln1"}, {"node": "resid_mid"}, {"token": 1}):
        ran.clear()
        assert explore.look(ask(**state))["kind"] == "view"
        assert set(ran) <= {0, 4}, state  # 4: the final norm and logits of one token
    ran.clear()
    assert explore.look(ask(layer=2))["kind"] == "view"
    assert set(ran) <= {2, 4}


def test_what_a_person_can_do_wrong_is_a_sentence(explore):
    for prompt, words in (("", "The prompt is empty"), ("x" * 101, "101 tokens and the budget of this app is 100")):
        (answer,) = run(explore, prompt=prompt)
        assert answer["kind"] == "error" and words in answer["sentence"] and "Traceback" not in answer["sentence"]
    assert explore.look(ask())["kind"] == "run"


@pytest.mark.parametrize(
    "sent", [None, 3, "x", [], {}, {"state": 7}, {"token": "x", "state": {"layer": float("nan"), "head": [], "prompt": 3}}]
)
def test_any_value_is_answered(explore, sent):
    assert explore.look(sent)["kind"] in ("run", "view")


def test_hostile_positions_are_moved_and_said(explore):
    run(explore)
    view = explore.look(ask(layer=10**9, head="-1", token=2.5, node="'; DROP", stage=None, hide_first="2"))
    assert view["kind"] == "view" and view["state"]["layer"] == 3 and len(view["notes"]) >= 5


def test_a_model_is_named_by_its_entry_only(explore):
    for name in ("../../etc", "/etc/passwd", "tiny-llama", "x" * 300, "<b>"):
        answer = explore.look(ask(model=name))
        assert "no model of that name" in " ".join(answer["notes"]) or "characters" in " ".join(answer["notes"])
        assert explore.shelf.name(name)[0] == "tiny"


def test_a_failed_opening_is_a_sentence_and_can_be_tried_again():
    def opener(source):
        raise BlockscopeError(f"there is no config.json in {source}")

    explore = Explore(Shelf({"bad": "somewhere"}, opener), Store())
    for _ in range(2):
        (answer,) = run(explore)
        assert answer["sentence"] == "there is no config.json in somewhere"


def test_an_unforeseen_error_names_no_internals(explore, caplog):
    explore.shelf.opened.opener = lambda source: 1 / 0
    (answer,) = run(explore)
    assert answer["kind"] == "error" and "ZeroDivisionError" in answer["sentence"] and "Traceback" in caplog.text


def test_nan_is_counted_on_its_node():
    lm = make_lm(tiny_config(layers=1))
    lm.store.ready(lm.net.blocks[0], "blocks.0")
    lm.net.blocks[0].attn.v_proj.weight.data[0, 0] = float("nan")
    explore = Explore(Shelf({"m": "m"}, lambda source: lm), Store())
    view = run(explore, prompt="3 5 7")[0]
    assert view["kind"] == "view"
    assert view["numbers"]["v"]["nan"] == 3 and view["numbers"]["q"]["nan"] == 0
    json.dumps(view, allow_nan=False)


def test_one_model_is_opened_once_for_many():
    opened = []

    def opener(source):
        time.sleep(0.05)
        opened.append(source)
        return make_lm()

    shelf = Shelf({"m": "m"}, opener)
    threads = [threading.Thread(target=shelf.model, args=("m", qk)) for qk in ("as-built", "head", "off", "head")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == ["m"] and shelf.model("m", "head") is shelf.model("m", "head")


# ---- long work -----------------------------------------------------------------------------------------------------


def test_long_work_reports_and_can_be_stopped():
    reached = []

    def work(report):
        for i in range(1000):
            report(Step(i, 1000, "counting"))
            reached.append(i)
            time.sleep(0.01)

    going = watched(work)
    first = next(going)
    assert first.what == "counting" and 20 < first.done < 400  # nothing is said in the first second
    began, said = time.monotonic(), 0
    while time.monotonic() - began < 0.5:
        next(going)
        said += 1
    assert said <= 6
    going.close()
    time.sleep(0.1)
    stopped = len(reached)
    time.sleep(0.1)
    assert len(reached) == stopped < 1000


def test_short_work_says_nothing_and_errors_come_through():
    with pytest.raises(StopIteration) as end:
        next(watched(lambda report: 5))
    assert end.value.value == 5
    with pytest.raises(KeyError):
        next(watched(lambda report: {}["x"]))


# ---- the web app ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def web():
    with TestClient(app.build(MODELS, max_tokens=100)) as client:
        yield client


def test_own_files_and_plotly_are_served_compressed_and_for_good(web):
    for name in own_files():
        answer = web.get("/" + own_url(name))
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    for encoding in ("br", "gzip", "identity"):
        answer = web.get("/" + plotly_url(), headers={"accept-encoding": encoding})
        assert answer.status_code == 200 and answer.headers.get("content-encoding", "identity") == encoding
        assert answer.text.endswith("window.BlockscopePlotly=window.Plotly;\n")
    assert int(web.get("/" + plotly_url()).headers["content-length"]) < 1_700_000
    for path in ("/own/x/page.html", "/own/x/../../app.py", "/vendor/plotly-0.js", "/data/0", "/data/../app.py", "/docs"):
        assert web.get(path).status_code == 404, path


def test_the_page_and_its_headers(web):
    answer = web.get("/")
    assert answer.status_code == 200 and "Blockscope" in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    config = web.get("/config").json()
    assert all(d["api_visibility"] == "private" for d in config["dependencies"] if d["api_name"] not in ("explore", "models"))


@pytest.mark.parametrize("path", ["/gradio_api/file=/etc/passwd", "/gradio_api/file=app.py", "/gradio_api/file=../etc/passwd"])
def test_no_file_of_the_server_is_served(web, path):
    assert web.get(path).status_code in (403, 404)


def test_figures_travel_by_key_and_stay_small(web, explore):
    view = run(explore)[0]
    cards = [card for card in view["cards"] if card.get("url")]
    assert cards and [card["role"] for card in cards].count("main") == 1
    for card in cards:
        figure = json.loads(gzip.decompress(explore.store.get(card["url"].removeprefix("data/"))))
        assert figure["layout"]["height"] and len(json.dumps(figure)) < 300_000
    with TestClient(app.build(MODELS)) as other:
        assert other.get("/" + cards[0]["url"]).status_code == 404  # another app's key


def test_templates_hold_no_template_syntax():
    assert '<div class="bs"' in template("page.html")


def test_the_named_endpoint_does_what_the_page_does(capsys):
    with b.serving(app.build(MODELS, max_tokens=100)) as address:
        client = Client(address, verbose=False)
        assert client.predict(api_name="/models") == ["tiny", "normed"]
        told = client.predict(prompt="hello", layer=1, head=2, stage="scaled", qk="head", api_name="/explore")
        assert told["state"]["layer"] == 1 and told["tokens"]["pieces"] == list("hello")
        assert all(identity["holds"] for identity in told["identities"])
        main = next(card for card in told["cards"] if card["role"] == "main")
        heat = next(trace for trace in main["data"] if trace["type"] == "heatmap")
        lm = load("tiny-llama").variant("head")
        (view,) = lm.views(lm.encode("hello"), [Request("blocks.1.attn.hook_logits", select=(("head", 2),))])
        assert heat["z"][4] == pytest.approx([float(v) for v in view.values[4]], rel=1e-5)
        assert heat["z"][0][1] is None
        for odd in (2.5, "abc", -1, 10**9, None, [1]):
            assert client.predict(prompt="hello", layer=odd, api_name="/explore")["notes"]
        with pytest.raises(AppError, match="The prompt is empty"):
            client.predict(prompt="", api_name="/explore")
        assert set(client.view_api(return_format="dict", print_info=False)["named_endpoints"]) == {"/explore", "/models"}


# ---- the command line ----------------------------------------------------------------------------------------------


def test_models_on_the_shelf_have_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(app, "SHIPPED", tmp_path)
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    assert app.shelved([]) == app.Shelved({"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}, "", {})
    found = app.shelved(["tiny-llama", "/x/a", "/y/a", "/x/a"], ["tiny-gpt2", "tiny-llama"])
    assert list(found.sources) == ["a", "b", "tiny-llama", "a′", "a′′", "tiny-gpt2"]
    assert found.shown_first == "tiny-llama" and found.groups == {"random weights": ["tiny-gpt2"]}


def test_without_any_model_the_app_says_so():
    with pytest.raises(BlockscopeError, match="name one with --model"):
        app.build({})


def test_the_cost_of_a_long_prompt_is_said_before_it_runs():
    explore = Explore(Shelf({"tiny": "tiny-llama"}, load, max_tokens=3000), Store())

    def weigh(prompt: str, draft: int = 3) -> dict:
        return explore.weigh({"token": 1, "draft": draft, "state": {"prompt": prompt}})

    nothing = {"kind": "cost", "draft": 3, "text": "", "from": "", "warning": ""}
    assert weigh("x" * 2000) == nothing  # the model is not open, and weighing does not open it
    run(explore)
    assert weigh("short") == nothing
    lm, told = explore.shelf.model("tiny"), weigh("x" * 2000, 9)
    said = f"2,000 tokens · about {amount(lm.cost(2000).flops, 'FLOP')} · about {amount(lm.cost(2000).bytes, 'B')} of memory"
    assert told == nothing | {"draft": 9, "text": said}  # the run of five tokens cannot say how long 2,000 take
    explore.paces.keep("tiny", Pace(lm.cost(1000), 2.0))
    told = weigh("x" * 2000)
    assert told["text"] == f"{said} · about {2.0 * lm.cost(2000).flops / lm.cost(1000).flops:.1f} s"
    assert told["from"] == "as long as its FLOP say, from the last run here: 1,000 tokens in 2.0 s"
    assert weigh("x" * 3001)["warning"] == "The budget of this app is 3,000 tokens (--max-tokens): this prompt will not be run."
    assert explore.weigh("nonsense")["kind"] == "cost"


def test_what_does_not_fit_in_memory_is_said_beforehand():
    lm = load("tiny-llama")
    need = lm.cost(2000).bytes
    assert forecast(lm, 2000, None, 5000, lambda device: need + 1)["warning"] == ""
    warning = forecast(lm, 2000, None, 5000, lambda device: 10_000_000)["warning"]
    assert warning == "That is more memory than the 10 MB that are free on this machine."
    small = load("tiny-llama", memory="1MB") if lm.store.bound is None else lm
    small.store.bound = Bound(1_000_000, 100_000)
    assert forecast(small, 2000, None, 5000, lambda device: 1 << 40)["warning"].endswith("(1 MB, --memory).")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.26, "0.3 s"), (52.2, "52 s"), (99.4, "99 s"), (740, "12 min"), (7300, "2 h 2 min")]
)
def test_how_long_something_takes_in_words(seconds, words):
    assert duration(seconds) == words


def test_a_view_whose_block_takes_long_is_run_with_progress(explore):
    run(explore)
    kept = explore.shelf.find("tiny", "", "hello")
    explore.shelf.keep("tiny", "", "hello", replace(kept, seconds=60.0))
    assert explore.look(ask(2, node="gate"))["kind"] == "run"  # not yet kept: it is not run where nothing can stop it
    assert run(explore, node="gate")[0]["kind"] == "view"
    assert explore.look(ask(3, node="gate"))["kind"] == "view"
    steps = []
    explore._view_of_run(explore._asked(ask(4, node="pattern", layer=2)), steps.append)
    assert steps[0].what == "layer 2" and max(step.done for step in steps) >= 1
