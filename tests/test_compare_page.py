"""The Compare page without a browser: its state, its one-click list, its handlers as functions, its endpoint."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import browser as b
import numpy as np
import pytest
import torch
from gradio_client import Client
from hostile import VALUES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import app
from model import load
from model.compare import Losses
from model.errors import BlockscopeError
from viz.change import changes
from viz.compare_state import LETTERS, PARTS, CompareState, field, layer_range, parse
from viz.figures.divergence import EMPTY, MOVED, ONLY_B, SHAPE, Strip, strip
from viz.pages.compare import KEPT, Compare
from viz.pages.compare_pictures import a_character
from viz.pages.quick import QUICK
from viz.shelf import Shelf
from viz.store import Store
from viz.theme import DARK, LIGHT, number

MODELS = {"tiny": "tiny-llama", "normed": "tiny-qwen3", "gpt2": "tiny-gpt2", "latent": "tiny-deepseek-v3"}
calmly = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def compare() -> Compare:
    return Compare(Shelf(MODELS, load, max_tokens=100), Store())


def ask(token: int = 1, **state) -> dict:
    return {"token": token, "scheme": "light", "state": {"prompt": "the cat sat", **state}}


def run(compare: Compare, **state) -> list[dict]:
    return [answer for answer in compare.run(ask(**state)) if answer["kind"] != "progress"]


def view(compare: Compare, **state) -> dict:
    found = run(compare, **state)
    assert found[0]["kind"] == "view", found[0]
    return found[0]


# ---- state ---------------------------------------------------------------------------------------------------------


def test_layers_that_run_backwards_are_turned_round():
    state, notes = parse({"b_layers": "9-2"})
    assert state.b_layers == "2-9" and notes == ["b_layers 9-2 runs backwards: using 2-9"]


def test_a_link_of_explore_is_its_model_against_its_changed_one():
    state, notes = parse("prompt=hi&layer=2&head=1&change=norm%3Dlayernorm&qk=head&node=gate&token=3")
    assert (state.quick, state.change, state.b_change) == ("own", "", "norm=layernorm,qk_norm=head") and notes == []
    assert (state.prompt, state.layer, state.head, state.tap) == ("hi", 2, 1, "mlp.hook_pre")
    assert parse("qk=as-built&prompt=hi")[0] == CompareState(prompt="hi")
    mine = CompareState(quick="own", change="eps=0.1", prompt="hi")
    assert parse(mine.query()) == (mine, []), "the page's own links keep A's change"


def test_a_view_survives_its_link():
    state = CompareState(
        model="a b", prompt="x = '&=?#'\n<b>", quick="own", sides=4, b_change="qk_norm=head,window=8", b_layers="8-29", c_model="m",
        d_edit="head:3:4:0.5", against="c", tap="mlp.hook_post", layer=3, head=2, stage="pattern", log=1, rows="all", diagrams=1, theme="dark",
    )  # fmt: skip
    assert parse(state.query()) == (state, [])
    assert CompareState().query() == "" and parse("") == (CompareState(), [])
    quick = CompareState(quick="wiring", sides=3, b_change="wiring=post", layer=1)
    assert quick.query() == "quick=wiring&layer=1", "what a quick choice fills is not in the link"


def test_a_link_from_explore_is_understood():
    state, notes = parse(
        "model=tiny&prompt=hi&layer=2&head=1&stage=pattern&node=gate&qk=head&neurons=sorted&token=3&theme=dark"
    )
    assert (state.model, state.prompt, state.layer, state.head, state.stage, state.theme, notes) == (
        "tiny",
        "hi",
        2,
        1,
        "pattern",
        "dark",
        [],
    )


def test_naming_a_side_is_asking_for_it():
    state, _ = parse({"b_change": "qk_norm=head", "b_layers": "8-29"})
    assert (state.quick, state.sides) == ("own", 2)
    assert parse({"d_model": "x"})[0].sides == 4
    assert changes("qk_norm=head;window:64") == {"qk_norm": "head", "window": "64"}
    assert layer_range("8-29") == range(8, 30) and layer_range("3") == range(3, 4) and layer_range("") is None


@pytest.mark.parametrize("name", CompareState.__dataclass_fields__)
def test_hostile_values_are_dropped_and_said(name):
    for value in [*VALUES, -1]:
        state, notes = parse({name: value})
        assert isinstance(state, CompareState) and all(len(note) < 300 and "\n" not in note for note in notes)
        kept = getattr(state, name)
        assert kept == CompareState.__dataclass_fields__[name].default or notes or isinstance(kept, str | int)
        assert parse(state.query())[0] == replace(state, **{} if state.quick == "own" else {"sides": 2})
    for raw in (3, None, "a=b=c&&;", [1]):
        parse(raw)


@calmly
@given(
    st.dictionaries(
        st.sampled_from(list(CompareState.__dataclass_fields__)), st.text(max_size=30) | st.integers() | st.floats() | st.none()
    )
)
def test_anything_is_a_view(raw):
    state, _ = parse(raw)
    assert 2 <= state.sides <= 4 and state.against in LETTERS[1:] and 0 <= state.layer <= 10**6


# ---- handlers ------------------------------------------------------------------------------------------------------


def test_look_asks_for_a_run_once(compare):
    fresh = Compare(compare.shelf, compare.store)
    assert fresh.look(ask(7))["kind"] == "run"
    first, late = run(fresh)
    assert (first["kind"], late["kind"], len(late["late"])) == ("view", "late", 1)
    again = fresh.look(ask(8, layer=2, tap="mlp.hook_post"))
    assert (again["kind"], again["token"], again["title"]) == ("view", 8, "blocks.2.mlp.hook_post") and again["late"]
    assert fresh.look(ask(9, quick="eps"))["kind"] == "run"
    for value in ("1", "2", "3", "4", "5", "6", "7"):
        run(fresh, quick="own", b_change=f"eps=0.{value}")
    assert len(fresh._done) == KEPT


@pytest.mark.parametrize("name", [n for n in QUICK if n != "trained"])
def test_every_quick_choice_runs_on_random_weights(compare, name):
    told = view(compare, quick=name, tap=QUICK[name].tap, diagrams=1)
    assert (
        len(told["sides"]) == (3 if name in ("wiring", "kv_heads", "patch") else 2)
        and len(json.dumps(told, allow_nan=False)) < 120_000
    )
    assert all(identity["holds"] for identity in told["identities"])
    assert told["starts"][0][1].startswith("blocks.0.") and told["next"][0]["kl"] == "0" != told["next"][1]["kl"]
    assert [card["role"] for card in told["cards"]].count("strip") == len(told["sides"]) - 1
    assert told["sides"][1]["title"] != told["sides"][0]["title"]
    for card in told["cards"]:
        assert len(compare.store.get(card["url"].removeprefix("data/"))) < 300_000


def test_the_mlp_is_compared_at_equal_parameters(compare):
    told = view(compare, quick="mlp")
    assert told["table"]["rows"][1] == ["parameters", "452,448", "+0"] and "396" in told["sides"][1]["title"]


@pytest.mark.parametrize("model", ["normed", "gpt2", "latent"])
def test_a_design_that_has_no_such_part_says_why(compare, model):
    compare.shelf.model(model)
    for name in QUICK:
        found = run(compare, model=model, quick=name)
        entry = next(q for q in view(compare, model=model, quick="own")["quick"] if q["id"] == name)
        if found[0]["kind"] == "error":
            assert len(found[0]["sentence"]) < 300 and "failed here" not in found[0]["sentence"], (name, found[0]["sentence"])
        else:
            assert not entry["wrong"]


def test_nothing_changed_is_all_zeros(compare):
    told = view(compare, quick="own")
    assert told["starts"] == [["B", "nothing differs"]] and told["next"][1]["kl"] == "0"
    assert "bit for bit" in told["cards"][0]["caption"] and "bit for bit" in told["caption"]


def test_a_counterfactual_is_called_one_and_new_weights_are_named():
    shelf = Shelf(
        {
            "off": "assets/checkpoints/code-qknorm-off",
            "code-qknorm-off": "assets/checkpoints/code-qknorm-off",
            "code-qknorm-on": "assets/checkpoints/code-qknorm-on",
        },
        load,
    )
    compare = Compare(shelf, Store())
    a, other = view(compare)["sides"]
    assert (
        a["title"] == "as trained"
        and other["note"] == "counterfactual: these weights were trained without it; new: attn.k_norm, attn.q_norm (unit gain)"
    )
    on = view(compare, model="code-qknorm-on")["sides"][1]
    assert on["note"] == "counterfactual: these weights were trained with it" and on["title"] == "QK-norm head → off"
    pair = view(compare, quick="trained")
    assert [side["model"] for side in pair["sides"]] == ["code-qknorm-off", "code-qknorm-on"] and pair["sides"][1]["note"] == ""
    (refused,) = run(compare, quick="kv_heads")
    assert "choose a preset" in refused["sentence"]
    (refused,) = run(compare, quick="own", b_change="d_mlp=64")
    assert "blocks.0.mlp.down_proj.weight is [128, " in refused["sentence"]


def test_a_side_that_is_not_there_or_cuts_the_text_otherwise_is_told(compare):
    told = view(compare, quick="own", b_model="nope")
    assert "side B: no model of that name is open here: showing tiny" in told["notes"]
    both = view(compare, quick="own", model="tiny", b_model="gpt2", tap="hook_resid_post")
    assert not any("cut this text" in note for note in both["notes"]), "bytes on both sides"
    assert [card["id"] for card in both["cards"] if card["role"] == "tensor"] == ["tensor-A", "tensor-B", "delta-B"]
    gap = view(compare, quick="own", b_change="qk_norm=head", c_change="softcap=5", sides=3, tap="attn.q_norm.hook_out")
    cards = {card["id"]: card["caption"] for card in gap["cards"]}
    assert "a gap" in cards["tensor-A"] and "a gap" in cards["tensor-C"] and "a gap" not in cards["tensor-B"]


def test_bounds_are_lines_where_something_bounds(compare):
    def reach(**state) -> str:
        return next(card["caption"] for card in view(compare, **state)["cards"] if card["id"] == "reach")

    assert "dashed: A cannot pass max|g_q|·max|g_k|·√24 = 1.00 × 1.00 × 4.90 = 4.90 · nothing bounds B" in reach(
        quick="qk_norm", model="normed"
    )
    far = reach(quick="own", b_change="softcap=50", tap="attn.hook_attn_scores", stage="masked")
    assert "B cannot pass the soft-cap 50.0, " in far and "times the largest here: not drawn" in far
    assert "nothing bounds A, B" in reach(quick="eps", tap="attn.hook_logits")
    capped = reach(quick="own", b_change="softcap=5", tap="attn.hook_attn_scores", stage="masked")
    assert "B cannot pass the soft-cap 5.00 · nothing bounds A" in capped


def test_the_largest_logit_of_a_side_does_not_depend_on_the_others(compare):
    def highest(**state) -> list[str]:
        row = view(compare, quick="own", prompt="the cat sat on the mat", **state)["table"]["rows"][0]
        assert row[0] == "largest |logit|"
        return row[1:]

    a, normed = highest(b_change="qk_norm=head")
    assert highest(b_change="window=1")[0] == a
    assert highest(b_change="window=1", c_change="qk_norm=head", sides=3)[::2] == [a, normed]
    late = {"b_change": "qk_norm=head", "c_change": "qk_norm=head", "c_layers": "3", "sides": 3}
    found = highest(**late)
    done = next(reversed(compare._done.values()))
    logits = [lm.capture(done.lock.ids[0], ["*.attn.hook_logits"]) for lm in done.lms]
    seen = torch.ones(22, 22, dtype=torch.bool).tril()
    assert found == [number(max(float(x[..., seen].abs().max()) for x in own.values())) for own in logits]


def test_the_loss_of_a_character_is_taken_over_one_span(compare):
    told = view(compare, quick="own", b_change="qk_norm=head")
    done = next(reversed(compare._done.values()))
    late = replace(done, lock=SimpleNamespace(ends=[[2, 4, 6], [0, 1, 4, 6]], at=[[1, 2], [2, 3]]), losses=None)
    late.losses = Losses(np.array([[1, 5, np.nan], [9, 2, 3]], np.float32), None, (True, False))
    assert told["kind"] == "view" and a_character(late) == ([2.5, 1.5], (4, 6)), "what only one side predicts is left out"


def test_a_node_shows_the_tensor_that_it_opens(compare):
    for state in ({"b_change": "qk_norm=head"}, {"b_change": "rope_base=1000"}, {"b_change": "window=2"}):
        told = view(compare, quick="own", diagrams=1, layer=1, **state)
        cells = next(reversed(compare._done.values())).lock.cells[0]
        for node, one in told["diagrams"][1]["nodes"].items():
            if one["words"].startswith("Δ") or " Δ " in one["words"]:
                assert one["words"].endswith(f"Δ {number(cells['blocks.1.' + one['open']].relative)}"), node
        nodes = told["diagrams"][1]["nodes"]
        assert nodes["pattern"]["open"] == "attn.hook_pattern", "not the masked logits that enter the softmax"
        rot = {which: cells[f"blocks.1.attn.hook_rot_{which}"].relative for which in "qk"}
        most = max(rot, key=rot.get)
        assert nodes["rope"]["words"] == f"{most} Δ {number(rot[most])}" and nodes["rope"]["said"].count("Δ") == 2


def test_norms_at_another_place_are_said_to_be(compare):
    told = view(compare, quick="own", b_change="wiring=post", diagrams=1, tap="ln1.hook_out", layer=1)
    assert [side["nodes"]["ln1"]["words"] for side in told["diagrams"]] == ["other place"] * 2
    assert "a norm of the same name at another place in the block" in told["caption"] and "shapes differ" not in told["caption"]
    assert "crosses: another place in the block" in told["cards"][0]["caption"]
    assert not any(card["id"].startswith("delta") for card in told["cards"])


def test_what_is_shown_of_one_head_is_not_given_for_all(compare):
    told = view(compare, quick="own", b_edit="head:0:3:0", tap="attn.hook_z", head=3)
    cell = next(reversed(compare._done.values())).lock.cells[0]["blocks.0.attn.hook_z"]
    assert f"‖B − A‖ / ‖A‖ = 1.00 in head 3, {number(cell.relative)} over all heads" in told["caption"]
    told = view(compare, quick="own", b_edit="head:0:3:0", tap="attn.hook_z", head=2)
    assert f"B the same in head 2, bit for bit ({number(cell.relative)} over all heads)" in told["caption"]
    narrow = view(compare, quick="own", b_change="window=2", tap="attn.hook_attn_scores", stage="masked", layer=1)
    assert " over all heads" in narrow["caption"] and "in head 0" not in narrow["caption"], "other keys: no share of this head"


def test_a_cache_is_said_with_its_number_format(compare):
    row = view(compare)["table"]["rows"][2]
    assert row[0] == "KV cache / token, fp32" and row[1:] == ["1,024 B"] * 2


def test_layers_edits_and_patches(compare):
    told = view(compare, quick="own", b_change="qk_norm=head", b_layers="2-3")
    assert (
        told["starts"] == [["B", "blocks.2.attn.q_norm.hook_scale"]]
        and told["sides"][1]["title"] == "QK-norm off → head, layers 2–3"
    )
    assert told["identities"][0]["name"] == "nothing differs above layer 2"
    told = view(compare, quick="own", b_edit="head:1:3:0")
    assert told["starts"] == [["B", "blocks.1.attn.hook_z"]] and told["sides"][1]["title"] == "scale a head 3 in layer 1 × 0"
    both = view(compare, quick="own", b_edit="head:1:3:0,neuron:2:5:0.5")
    assert both["sides"][1]["edit"] == ["head:1:3:0", "neuron:2:5:0.5"]
    assert both["sides"][1]["title"] == "scale a head 3 in layer 1 × 0, scale a neuron 5 in layer 2 × 0.5"
    alone = view(compare, quick="own", b_edit="neuron:2:5:0.5")
    assert both["starts"] == [["B", "blocks.1.attn.hook_z"]] and alone["starts"] == [["B", "blocks.2.mlp.hook_post"]]
    told = view(compare, quick="own", b_change="qk_norm=head", b_layers="0-1", b_edit="patch:1:-1:0:hook_resid_post")
    assert told["next"][1]["kl"] == "0" and "patched into layer 1" in told["sides"][1]["title"]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt": "x" * 101}, "101 tokens and the budget of this app is 100"),
        ({"quick": "own", "b_change": "qk_norm=head", "b_layers": "3-9"}, "layers 3–9 do not lie within 0–3"),
        ({"quick": "own", "b_change": "kv_heads=4"}, "not a multiple"),
        ({"quick": "own", "b_edit": "head:9:0"}, "B has no tensor 'blocks.9.attn.hook_z'"),
        ({"quick": "own", "b_edit": "head:0:77"}, "head 77 is outside 0..5"),
        ({"quick": "own", "b_edit": "melt:0"}, "no intervention 'melt'"),
        ({"quick": "own", "b_change": "eps=-1"}, "expected a number"),
        ({"quick": "nothing"}, "there is no comparison 'nothing'"),
        ({"quick": "own", "edit": "patch:0:-1:0:hook_attn_out"}, "A itself cannot be patched"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(compare, state, sentence):
    (answer,) = run(compare, **state)
    assert answer["kind"] == "error" and sentence in answer["sentence"] and "Traceback" not in answer["sentence"]


def test_positions_that_do_not_exist_are_moved_and_said(compare):
    run(compare)
    told = compare.look(ask(layer=99, head=99, tap="no.such", against="d", b_change="nothing=1"))
    assert told["kind"] == "run" or told["state"]["layer"] == 3
    told = view(compare, quick="qk_norm", layer=99, head=99, tap="no.such", against="d")
    assert (told["state"]["layer"], told["state"]["head"], told["state"]["against"]) == (3, 5, "b") and len(told["notes"]) == 3
    told = view(compare, quick="own", b_change="nothing=1,qk_norm=what,eps=0.1")
    assert told["sides"][1]["title"] == "norm eps 1e-05 → 0.1" and len(told["notes"]) == 2


def test_stages_follow_the_tensor(compare):
    for stage, tap in (("raw", "attn.hook_logits"), ("masked", "attn.hook_attn_scores"), ("pattern", "attn.hook_pattern")):
        assert view(compare, stage=stage, tap=tap)["state"]["stage"] == stage
    assert view(compare, stage="raw", tap="attn.hook_pattern")["state"]["stage"] == "pattern"
    assert "before the scale" in view(compare, stage="raw", tap="attn.hook_logits")["title"]


@pytest.mark.parametrize("other", ["normed", "gpt2", "latent"])
def test_any_tensor_of_any_pair_of_designs_is_drawn(compare, other):
    rows = view(compare, quick="own", b_model=other, rows="all")["rows"]
    for tap in [*rows, "logits", "hook_embed", "ln_final.hook_out"]:
        told = view(compare, quick="own", b_model=other, tap=tap, layer=1, diagrams=1)
        assert any(card["role"] == "tensor" for card in told["cards"]), tap


def test_every_fault_of_a_link_is_said(compare):
    state, notes = parse(
        {"b_change": "<b>,eps=0.1,=x,qk_norm=head", "layer": "NaN", "nothing": "1", "tokne": "2", "__theme": "dark"}
    )
    assert state.b_change == "eps=0.1,qk_norm=head"
    assert "no page knows the names 'nothing', 'tokne': left out" in notes
    assert "b_change: '<b>' and '=x' are not part=value: left out" in notes and any("layer must be" in note for note in notes)
    assert parse("node=gate&at_layer=3&together=4&zoom=")[1] == [], "names of the other pages are known"
    assert parse({"layre": 1})[1] == ["no page knows the name 'layre': left out"]
    assert "and 3 more" in parse({f"x{i}": 1 for i in range(8)})[1][0] and not parse({"_x": 1, 3: 4})[1][0].count("_x")
    wrong = {"b_change": "eps=-1", "c_change": "kv_heads=4", "sides": 3, "d_model": "nope", "what": 3}
    (told,) = run(compare, quick="own", layer="x", c_model="gone", **wrong)
    assert "Side B: " in told["sentence"] and ". Side C: " in told["sentence"]
    assert any("layer must be" in note for note in told["notes"]) and any("'what'" in note for note in told["notes"])
    assert any("side C: no model of that name" in note for note in told["notes"])
    (told,) = run(compare, quick="own", b_edit="head:9:0,head:8:0")
    assert "blocks.9" in told["sentence"] and "blocks.8" in told["sentence"]


def test_a_chosen_model_stays_in_a(compare):
    pair = {name: f"assets/checkpoints/{name}" for name in ("code-qknorm-off", "code-qknorm-on")}
    compare = Compare(Shelf({"tiny": "tiny-llama", **pair}, load), Store())
    for name in pair:
        told = view(compare, model=name, quick="trained")
        assert told["state"]["model"] == name and {side["model"] for side in told["sides"]} == set(pair)
        assert not any("no longer" in note for note in told["notes"])
    told = view(compare, model="tiny", quick="trained")
    assert "this compares code-qknorm-off and code-qknorm-on: A is no longer tiny" in told["notes"]


def test_new_parameters_are_called_what_they_are(compare):
    said = {
        "biases=on": "attn.k_proj.bias, attn.o_proj.bias, attn.q_proj.bias and 4 more (zero)",
        "norm=layernorm": "ln1.bias, ln2.bias (zero)",
        "sink=on": "attn.softmax (zero)",
        "qk_norm=head": "attn.k_norm, attn.q_norm (unit gain)",
        "d_mlp=64": "mlp.down_proj, mlp.gate_proj, mlp.up_proj (seeded by name)",
    }
    for change, words in said.items():
        note = view(compare, quick="own", b_change=change)["sides"][1]["note"]
        assert note == f"random weights; new: {words}", change
        lm = next(reversed(compare._done.values())).lms[1]
        value = {"zero": 0.0, "unit gain": 1.0}.get(words.rpartition("(")[2].rstrip(")"))
        shapes = {name: tuple(parameter.shape) for name, parameter in lm.net.named_parameters()}
        for name in lm.invented if value is not None else ():  # the words are held to the numbers
            assert (lm.store.get(name, shapes[name]) == value).all(), name


def test_random_weights_are_held_to_chance(compare):
    caption = run(compare, quick="own", b_change="eps=0.1")[1]["late"][0]["caption"]
    assert "A, B: random weights, chance gives ln 256 = 5.545" in caption


def test_any_value_is_answered(compare):
    for sent in (
        None,
        3,
        "x",
        [],
        {},
        {"state": 7},
        {"token": "x", "state": {"layer": float("nan"), "b_model": [], "prompt": 3}},
    ):
        assert compare.look(sent)["kind"] in ("run", "view")
    for name in ("../../etc", "/etc/passwd", "tiny-llama", "<b>"):
        told = view(compare, quick="own", b_model=name)
        assert told["sides"][1]["model"] == "tiny" and any("no model of that name" in note for note in told["notes"])
    state = {field(letter, part): value for letter in LETTERS for part in PARTS for value in ("\x00<script>",)}
    assert run(compare, **state)[0]["kind"] in ("view", "error")


def test_an_unforeseen_error_names_no_internals(compare, caplog):
    broken = Compare(Shelf({"bad": "x"}, lambda source: 1 / 0), Store())
    (answer,) = run(broken)
    assert "ZeroDivisionError" in answer["sentence"] and "Traceback" in caplog.text


# ---- figures and endpoint ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_strip_leaves_zeros_empty_and_marks_gaps(theme):
    kind = np.array([[EMPTY, MOVED, MOVED], [ONLY_B, MOVED, MOVED]], np.uint8)
    relative = np.array([[0, 0.1, math.inf], [math.nan, math.nan, 1e-9]], np.float32)
    figure = strip(Strip(relative, kind, ["q", "k"]), theme, letter="B", revision="x", selected=(0, 1))
    z = figure.data[0].z
    assert np.isnan(z[0, 0]) and z[0, 1] == pytest.approx(-1) and z[0, 2] == pytest.approx(0.3) and z[1, 2] == -3
    assert [len(trace.x) for trace in figure.data[1:]] == [1, 1] and figure.data[2].marker.color == theme.nan
    assert figure.data[0].customdata[1, 2] == 1002 and "only in B" in figure.data[0].text[1][0]
    assert len(json.loads(figure.to_json())["layout"]["shapes"]) == 2, "a ring that is seen on pale cells and on dark ones"
    for every in (MOVED, ONLY_B, SHAPE):  # every tensor of 126 layers, whatever became of them
        kinds = np.full((60, 126), every, np.uint8)
        wide = Strip(np.ones((60, 126), np.float32), kinds, [f"blocks.attn.{i}" for i in range(60)], np.ones((60, 126, 2)))
        assert len(strip(wide, theme, letter="B", revision="x").to_json()) < 300_000


def test_the_endpoint_says_what_the_page_says():
    with b.serving(app.build(MODELS, max_tokens=100)) as address:
        client = Client(f"{address}/compare/", verbose=False)
        told = client.predict(prompt="hello", quick="qk_norm", layer=1, api_name="/compare")
        assert told["starts"] == [["B", "blocks.0.attn.q_norm.hook_scale"]]
        assert told["cells"][0]["blocks.0.attn.hook_q"]["state"] == "same" and len(told["loss"][0]) == 4
        assert told["cells"][0]["blocks.3.hook_resid_post"]["relative"] > 0
        assert set(client.view_api(return_format="dict", print_info=False)["named_endpoints"]) == {"/compare"}
        with pytest.raises(Exception, match="The prompt is empty"):
            client.predict(prompt="", api_name="/compare")


def test_a_side_is_refused_by_name_before_anything_runs(compare):
    with pytest.raises(BlockscopeError, match="no comparison"):
        compare._compared(compare._asked(ask(quick="zz")), lambda step: None)
