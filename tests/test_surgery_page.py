"""Changing parts on the page: what a link says, what a model can have of it, what is said about it, which runs are kept."""

import pytest
from test_app import ask, run

from model import PRESETS, load
from model.surgery import CHANGES
from viz.change import changes, spelled
from viz.pages import surgery
from viz.pages.explore import Explore
from viz.shelf import Shelf
from viz.state import UiState, parse
from viz.store import Store

OFF = "assets/checkpoints/code-qknorm-off"
MODELS = {"trained": OFF, "tiny": "tiny-llama", "latent": "tiny-deepseek-v3", "gpt2": "tiny-gpt2"}


@pytest.fixture(scope="module")
def opened() -> dict:
    return {}


@pytest.fixture
def explore(opened) -> Explore:
    """A fresh shelf over models that are opened once."""

    def opener(source):
        return opened.setdefault(source, load(source, device="cpu"))

    return Explore(Shelf(MODELS, opener, max_tokens=100), Store())


def view(explore: Explore, **state) -> dict:
    answers = run(explore, **state)
    assert [answer["kind"] for answer in answers] == ["view", "strip"], answers
    return answers[0]


# ---- the link ------------------------------------------------------------------------------------------------------


def test_a_change_has_one_spelling():
    state, notes = parse("change=window=8;norm:layernorm,window=16")
    assert state.change == "norm=layernorm,window=16" and notes == []
    assert parse(state.query()) == (state, []) and state.changes == {"norm": "layernorm", "window": "16"}
    assert spelled(changes(state.change)) == state.change


def test_old_links_and_new_ones_say_qk_norm_alike():
    assert parse("qk=head")[0] == parse("change=qk_norm=head")[0] == UiState(qk="head")
    assert parse("qk=off&change=qk_norm=head,window=8")[0] == UiState(qk="off", change="window=8")
    assert UiState(qk="head", change="window=8").changes == {"window": "8", "qk_norm": "head"}


@pytest.mark.parametrize(
    "text", ["=", "a", "a=b=c", "<script>=1", "x" * 500, "norm=layernorm,=;=,,", "norm=" + "y" * 60, "норма=1", "a=1\nb=2"]
)
def test_what_is_not_part_equals_value_is_left_out(text):
    state, notes = parse({"change": text})
    assert notes and len(notes[0]) < 150 and parse(state.query())[0] == state
    assert state.change in ("", "norm=layernorm")


# ---- what a model can have -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith("tiny-")])
def test_every_part_of_every_design_can_be_changed_or_says_why_not(preset):
    lm = load(preset, device="cpu")
    tokens = list(b"def area(w, h):")
    menu = surgery.menu(lm, UiState())
    assert [entry["name"] for entry in menu] == list(CHANGES) and all(entry["built"] for entry in menu)
    for entry in menu:
        assert entry["why"] or entry["choices"] or entry["free"], entry
        for value, _ in entry["choices"]:
            _state, which, notes = surgery.settled(lm, UiState(change=f"{entry['name']}={value}"))
            if entry["why"]:
                assert notes and which == "", (entry["name"], value)
            elif not notes and which:  # a number of KV heads, say, may not fit this one
                other = lm.variant(**changes(which))
                assert surgery.differs(lm, other), (entry["name"], value)
                if [value] == entry["choices"][0][:1]:
                    assert other.forward(tokens).isfinite().all()


def test_a_change_that_cannot_be_made_is_a_sentence_and_the_page_goes_on(explore):
    told = view(explore, model="latent", change="softcap=50,window=8,zzz=1,norm=banana", qk="head")
    notes = " ".join(told["notes"])
    assert "logit soft-cap was left as built: latent attention has no such slot" in notes
    assert "QK-norm was left as built" in notes and "no part 'zzz'" in notes and "norm must be one of" in notes
    assert told["state"]["change"] == "window=8" and told["state"]["qk"] == "as-built"
    assert explore.look(ask(model="latent", change="window=8"))["kind"] == "view"


def test_no_two_spellings_of_nothing(explore):
    view(explore, model="tiny")
    for nothing in ({"change": "rope_base=500000"}, {"qk": "off"}, {"change": "norm=rmsnorm,window=off"}):
        told = explore.look(ask(model="tiny", **nothing))
        assert told["kind"] == "view" and told["model"]["differs"] == "" and told["notes"] == [], nothing


# ---- what is said ---------------------------------------------------------------------------------------------------


def test_trained_weights_are_a_counterfactual_and_new_ones_are_named(explore):
    told = view(explore, model="trained", qk="head")
    assert told["model"]["differs"] == (
        "QK-norm off → per head · counterfactual: these weights were trained without it; "
        "new: 8 unit gains, e.g. blocks.0.attn.k_norm.weight"
    )
    told = view(explore, model="trained", change="rope_base=10001,biases=on")
    assert "RoPE base 10,000 → 10,001, biases off → on" in told["model"]["differs"]
    assert "trained without these changes; new: 28 zero biases" in told["model"]["differs"]
    assert view(explore, model="trained")["model"]["differs"] == ""


def test_random_weights_are_no_counterfactual_and_some_layers_may_keep_their_part(explore):
    told = view(explore, model="gpt2", change="mlp=swiglu,sink=on")
    assert (
        "MLP GELU (tanh), plain → SwiGLU" in told["model"]["differs"]
        and "random weights; drawn anew" in told["model"]["differs"]
    )
    assert "4 random matrices" in told["model"]["differs"] and "4 sinks at 0" in told["model"]["differs"]
    assert "RoPE base" in [part["title"] for part in told["parts"] if "does not rotate" in part["why"]]
    told = view(explore, model="latent", change="mlp=relu")
    assert "MLP SwiGLU → ReLU, plain in 1 of 4 layers" in told["model"]["differs"]


def test_diagram_numbers_and_pictures_are_the_variants(explore):
    told = view(explore, model="tiny", change="wiring=parallel,softcap=5,sink=on", node="sink", layer=1)
    assert told["state"]["node"] == "sink" and told["notes"] == []
    assert 'data-node="capped"' in told["block"]["standing"] and 'data-node="resid_mid"' not in told["block"]["standing"]
    lm = explore.shelf.model("tiny").variant(wiring="parallel", softcap="5", sink="on")
    assert told["numbers"]["resid_post"]["size"] == pytest.approx(
        lm.capture(lm.encode("hello"), ["blocks.1.hook_resid_post"])["blocks.1.hook_resid_post"].abs().max().item(), rel=1e-5
    )


def test_the_strip_lays_the_model_as_loaded_beside_a_changed_one(explore):
    plain = run(explore, model="trained")[0]["strip"]["peaks"]
    changed, strip = run(explore, model="trained", change="norm=layernorm")
    assert changed["strip"]["label"] == "as changed, QK-norm off" and strip["strip"]["other_label"] == "as loaded, QK-norm off"
    assert strip["strip"]["other"] == plain != strip["strip"]["peaks"]
    assert strip["strip"]["run"] == changed["strip"]["run"]
    latent = run(explore, model="latent")[1]["strip"]
    assert latent["other"] is None and latent["label"] == "as run"


# ---- what is kept ---------------------------------------------------------------------------------------------------


def test_a_handful_of_variants_is_kept_and_their_runs_go_with_them(explore):
    view(explore, model="tiny")
    for n in range(2, 12):
        view(explore, model="tiny", change=f"window={n}")
    shelf, lm = explore.shelf, explore.shelf.model("tiny")
    assert len(shelf._variants) == 6 and shelf.model("tiny") is lm
    assert explore.look(ask(model="tiny", change="window=11"))["kind"] == "view"
    assert explore.look(ask(model="tiny", change="window=2"))["kind"] == "run"  # gone, with its run
    assert explore.look(ask(model="tiny"))["kind"] == "view"  # the model as loaded stays
    assert all(variant.remembered is lm.remembered for variant in shelf._variants.values())
    assert {key[:2] for key in shelf._runs if key[1]} <= set(shelf._variants)
