"""The Anatomy page without a browser: its state, its handlers as functions, its route and its named endpoints."""

import json
import re

import browser as b
import hostile
import pytest
from configs import values
from fastapi.testclient import TestClient
from gradio_client import Client
from gradio_client.exceptions import AppError

import app
from model import PRESETS, count
from model.anatomy.ladder import RUNGS
from viz.anatomy_state import CHOICES, CONFIG_IN_LINK, AnatomyState, numbers, parse, rows
from viz.figures.budget import short
from viz.pages.anatomy import Anatomy
from viz.pages.anatomy_answers import SECTIONS, counted
from viz.pages.anatomy_charts import FIGURES
from viz.store import Store

HOSTILE = hostile.MARKUP


@pytest.fixture(scope="module")
def anatomy() -> Anatomy:
    return Anatomy(Store(), {"mine": "tiny-qwen3"})


def look(anatomy: Anatomy, have=None, scheme="light", **state) -> dict:
    return anatomy.look({"token": 5, "scheme": scheme, "have": have or {}, "state": state})


# ---- the state ------------------------------------------------------------------------------------------------------


def test_a_view_is_its_query_string():
    assert AnatomyState().query() == "" and parse("") == (AnatomyState(), [])
    state = AnatomyState(
        model="gpt2", context=4096, batch=3, width="same", bits="8", x="1, 2", eps=0.5, compare="gpt2", q="a&b=c#é"
    )
    assert parse(state.query()) == (state, [])
    long = AnatomyState(config="x" * (CONFIG_IN_LINK + 1))
    assert "config" not in long.query() and "config" in AnatomyState(config="{}").query()


@pytest.mark.parametrize(
    "raw",
    [
        None,
        3,
        [],
        "?x=%00",
        {"batch": []},
        {"batch": float("nan")},
        {"model": 7},
        {"eps": "x"},
        {"config": "x" * 70_000},
        {"compare": HOSTILE * 60},
        {"context": 10**30},
        {"length": "-5"},
        {"bits": True},
        {"width": "wide"},
        {"x": "\ud800"},
    ],
    ids=lambda x: str(x)[:30],
)
def test_nothing_that_is_sent_raises(anatomy, raw):
    state, _ = parse(raw)
    assert isinstance(state, AnatomyState) and 1 <= state.context <= 1 << 24 and state.bits in CHOICES["bits"]
    answer = anatomy.look({"state": raw, "token": [], "have": 3})
    assert answer["kind"] in ("view", "error") and "Traceback" not in json.dumps(answer)
    assert anatomy.look(raw)["kind"] == "view"


def test_typed_vectors():
    assert numbers("[2, -1, 3, 0]") == [2, -1, 3, 0] and numbers("1 2.5") == [1, 2.5] and numbers("1, x") == [1, "x"]
    assert rows("2, 0; 1, -1") == rows("[[2, 0], [1, -1]]") == [[2, 0], [1, -1]] and numbers("−3") == [-3]


# ---- handlers -------------------------------------------------------------------------------------------------------


def test_only_what_changed_travels(anatomy):
    first = look(anatomy)
    assert first["sections"].keys() == SECTIONS.keys() | FIGURES.keys() and first["token"] == 5
    have = {name: section["key"] for name, section in first["sections"].items()}
    assert look(anatomy, have)["sections"] == {}
    assert look(anatomy, have, x="1, 2")["sections"].keys() == {"hand"}
    assert look(anatomy, have, scheme="dark")["sections"].keys() == FIGURES.keys()
    assert look(anatomy, have, batch=2)["sections"].keys() == {"block", "shapes"}
    assert "ladder" not in look(anatomy, have, model="gpt2")["sections"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_shown_and_small(anatomy, name):
    answer = look(anatomy, model=name)
    assert answer["kind"] == "view" and answer["model"]["name"] == name and not answer["notes"]
    assert len(json.dumps(answer, allow_nan=False)) < 130_000
    totals = {row["name"]: row for row in answer["sections"]["totals"]["rows"]}
    assert totals["parameters"]["text"] == f"{count(name).parameters:,}" and all(row["formula"] for row in totals.values())
    parts = answer["sections"]["table"]["parts"]
    assert sum(int(part["total"].replace(",", "")) for part in parts) == count(name).parameters
    assert sum(part["share"] for part in parts) == pytest.approx(1)
    for card in [card for figure in FIGURES for card in answer["sections"][figure]["cards"]]:
        assert anatomy.store.get(card["url"].removeprefix("../data/")), card


def test_the_models_of_the_app_are_there_too(anatomy):
    answer = look(anatomy, model="mine", compare="mine,gpt2")
    assert answer["own"] == ["mine"] and answer["model"]["name"] == "mine"
    assert answer["sections"]["side"]["models"] == ["mine", "gpt2"]


def test_an_unknown_model_opens_the_default_and_says_so(anatomy):
    for name in ("gtp2", HOSTILE, "../../etc/passwd", "/etc"):
        answer = look(anatomy, model=name, compare=f"gpt2,{name}")
        assert (
            answer["kind"] == "view"
            and answer["state"]["model"] == "llama-3.1-8b"
            and "there is no model" in answer["notes"][0]
        )
        assert answer["sections"]["side"]["models"] == ["gpt2"]


def test_a_pasted_config_is_shown_and_travels_in_the_link(anatomy):
    text = json.dumps(values("llama"))
    answer = look(anatomy, config=text, compare="pasted config,gpt2")
    assert answer["model"]["name"] == "pasted config" and "config=" in answer["query"]
    assert answer["sections"]["side"]["models"] == ["pasted config", "gpt2"]
    assert parse(answer["query"])[0].config == text
    large = look(anatomy, config=json.dumps(values("llama") | {"_name_or_path": "x" * 5000}))
    assert large["kind"] == "view" and "config=" not in large["query"] and "the link leaves it out" in large["notes"][-1]


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"model_type": "bert"}', '{"model_type": NaN}', "[" * 60_000, HOSTILE])
def test_a_config_that_is_none_is_a_sentence(anatomy, text):
    answer = look(anatomy, config=text)
    assert answer["kind"] == "error" and answer["sentence"].startswith("config.json") and "Traceback" not in answer["sentence"]


def test_a_kind_beyond_the_last_is_the_last(anatomy):
    answer = look(anatomy, model="deepseek-v3", kind=99)
    assert answer["state"]["kind"] == 1 and answer["sections"]["block"]["kind"] == 1
    assert any("MoE" in line["right"] for line in answer["sections"]["block"]["lines"])


def test_nodes_of_the_diagram_have_shapes(anatomy):
    block = look(anatomy, length=100, batch=3)["sections"]["block"]
    assert block["nodes"]["logits"]["short"] == "32 × 100 × 100" and "[3, 32, 100, 100]" in block["nodes"]["logits"]["full"]
    assert block["nodes"]["gate"]["taps"] == ["mlp.hook_pre"]


def test_the_ladder_says_what_each_rung_did(anatomy):
    rungs = {rung["id"]: rung for rung in look(anatomy)["sections"]["ladder"]["rungs"]}
    assert rungs.keys() == {rung.id for rung in RUNGS}
    assert rungs["gqa"]["cache"]["delta"] == "× 0.25" and rungs["gqa"]["attention"]["delta"].startswith("−9.5 points")
    assert rungs["vocab"]["parameters"]["exact"].endswith("8,030,261,248")
    assert rungs["base"]["parameters"]["delta"] == "" and rungs["rmsnorm"]["parameters"]["delta"] == "−266 k"
    same = {rung["id"]: rung for rung in look(anatomy, width="same")["sections"]["ladder"]["rungs"]}
    assert same["swiglu"]["mlp"] == "16,384 neurons" and rungs["swiglu"]["mlp"] == "11,008 neurons"


def test_the_twins_are_measured_once(anatomy):
    told = anatomy.measure({"width": "matched"})
    assert told["kind"] == "twins" and told["twins"].keys() == {rung.id for rung in RUNGS}
    assert anatomy.measure(None)["twins"] is told["twins"] and look(anatomy)["twins"] is told["twins"]
    assert look(anatomy, width="same")["twins"] is None


def test_calculators_answer_or_say_why(anatomy):
    hand = look(anatomy, x="2, -1, 3, 0")["sections"]["hand"]
    assert [round(v, 2) for v in hand["rmsnorm"]["steps"][-1]["values"]] == [1.07, -0.53, 1.6, 0]
    assert [round(v, 3) for v in hand["swiglu"]["steps"][-1]["values"]] == [5.285, -0.269]
    wrong = look(anatomy, x="two", w_up="1;2;3")["sections"]["hand"]
    assert "x must hold finite numbers" in wrong["rmsnorm"]["wrong"] and "W_up must be two rows" in wrong["swiglu"]["wrong"]
    assert not wrong["rotation"]["wrong"]


def test_numbers_in_words():
    assert [counted(n) for n in (8_030_261_248, 124_439_808, 671e9, 1.2e12, 4096, 7)] == [
        "8.03 B",
        "124 M",
        "671 B",
        "1.2 T",
        "4.1 k",
        "7",
    ]
    assert [short(n) for n in (128, 1024, 8192, 1 << 20)] == ["128", "1k", "8k", "1M"]


# ---- the web app ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def web():
    with TestClient(app.build({"tiny": "tiny-llama"})) as client:
        yield client


def test_the_route(web):
    answer = web.get("/anatomy?model=gpt2", follow_redirects=False)
    assert answer.status_code == 307 and answer.headers["location"] == "anatomy/?model=gpt2"
    page = web.get("/anatomy/")
    assert (
        page.status_code == 200
        and "Blockscope" in page.text
        and "default-src 'self'" in page.headers["content-security-policy"]
    )
    config = web.get("/anatomy/config").json()
    public = {d["api_name"] for d in config["dependencies"] if d["api_visibility"] != "private"}
    assert public == {"anatomy", "by_hand"}


def test_the_named_endpoints_do_what_the_page_does():
    with b.serving(app.build({"tiny": "tiny-llama"})) as address:
        client = Client(f"{address}/anatomy/", verbose=False)
        told = client.predict(model="gpt2", length=100, api_name="/anatomy")
        assert told["totals"]["rows"][0]["text"] == "124,439,808" and "drawing" not in told["block"]
        assert told["block"]["lines"][0]["right"] == "x + Attn_{MHA}(LayerNorm(x))"
        assert client.predict(config=json.dumps(values("llama")), api_name="/anatomy")["model"]["name"] == "pasted config"
        hand = client.predict(x="2, 4, 6, 8", api_name="/by_hand")
        assert [round(v, 3) for v in hand["rmsnorm"]["steps"][-1]["values"]] == [0.365, 0.730, 1.095, 1.461]
        with pytest.raises(AppError, match="not valid JSON"):
            client.predict(config="{", api_name="/anatomy")


# ---- what stands beside a number ------------------------------------------------------------------------------------


def test_why_another_count_of_parameters_differs_is_said_where_the_total_stands(anatomy):
    answer = look(anatomy, model="deepseek-v3")
    said = "14,848 of the parameters are routing biases, buffers in transformers, which counts 671,026,404,352"
    assert answer["model"]["note"] == answer["sections"]["totals"]["note"] == said
    assert look(anatomy)["model"]["note"] == "" == look(anatomy, model="mixtral-8x7b")["model"]["note"]


def test_a_cache_is_told_with_its_number_format(anatomy):
    for bits in ("8", "16", "32"):
        sections = look(anatomy, bits=bits)["sections"]
        named = [row["name"] for row in sections["totals"]["rows"] if "cache" in row["name"] and "read too" not in row["name"]]
        assert len(named) == 3 and all(name.endswith(f", {bits} bits") for name in named)
        assert sections["caches"]["bits"] == sections["ladder"]["bits"] == bits
    lines = [line["name"] for line in look(anatomy)["sections"]["side"]["lines"] if "cache" in line["name"]]
    assert lines and all(name.endswith(", 16 bits") for name in lines)


@pytest.mark.parametrize("model", ["gpt2", "llama-3.1-8b", "deepseek-v3", "gemma3-4b"])
def test_no_number_is_its_own_reason(anatomy, model):
    sections = look(anatomy, model=model, batch=1, length=1)["sections"]
    table, shapes = sections["table"], sections["shapes"]["rows"]
    said = [part["formula"] for part in table["parts"]] + [row["sum"] for part in table["parts"] for row in part["rows"]]
    said += [row["formula"] for part in table["parts"] for row in part["rows"]] + [row["formula"] for row in shapes]
    for formula in said:
        terms = formula.split(" = ")
        assert len(set(terms)) == len(terms), formula


def test_one_of_a_thing_is_said_in_the_singular(anatomy):
    config = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 64}
    told = look(anatomy, config=json.dumps(values("llama") | config), context=1, together=1, compare="pasted config")
    found = json.dumps([told["sections"], told["model"]])
    wrong = re.findall(
        r"(?<![\d,.:])1 (?:layers|heads|tokens|keys|caches|cards|entries|neurons|KV heads|key/value heads)\b", found
    )
    assert wrong == []
    assert told["sections"]["shapes"]["where"] == "layer 0" and "layers 0" not in found.replace("layers 0–", "")


def test_head_sizes_that_differ_are_said_beside_the_cache_designs(anatomy):
    assert look(anatomy)["sections"]["caches"]["heads"] == "32 query heads of 128, 32 layers"
    told = look(anatomy, model="deepseek-v3")["sections"]["caches"]["heads"]
    assert told == "128 query heads of 128 (as built q and k have 192: 64 more are rotated), 61 layers"


def test_what_is_no_number_is_named_as_it_was_typed(anatomy):
    hand = look(anatomy, x="2, four, 6", w_gate="1, b; 2, 3", q="nan, 1")["sections"]["hand"]
    assert hand["rmsnorm"]["wrong"] == "x must hold finite numbers up to 1,000,000, got 'four'"
    assert hand["swiglu"]["wrong"].endswith("got 'b'") and hand["softmax"]["wrong"].endswith("got 'nan'")


def test_every_fault_of_a_link_is_said(anatomy):
    names = ",".join(name for name in PRESETS if name.startswith("tiny-"))
    answer = look(anatomy, batch="x", widht="same", bits="7", compare=f"gone,{names}")
    said = " ".join(answer["notes"])
    for fault in ("batch must be", "'widht'", "bits must be one of", "no model 'gone'", "at most 6 models stand side by side"):
        assert fault in said, fault
    assert look(anatomy, prompt="x", b_change="y", at_layer=3)["notes"] == [], "names of the other pages are known"
