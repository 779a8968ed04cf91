"""The view and the query string: a round trip, and nothing a browser sends gets past parse."""

from dataclasses import replace

import pytest
from hostile import VALUES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from viz.state import CHOICES, DEFAULT_PROMPT, LONGEST_PROMPT, RANGES, UiState, fit, parse

calmly = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)  # a loaded machine is no failure


def test_defaults_need_no_query():
    assert UiState().query() == ""
    assert parse("") == (UiState(), [])


def test_query_restores_a_view():
    state = UiState(
        model="a b",
        prompt="x = '&=?#'\n\t<b>ü🙂",
        layer=3,
        head=2,
        token=0,
        node="gate",
        stage="raw",
        qk="off",
        log=1,
        theme="dark",
    )
    assert parse(state.query()) == (state, [])
    assert parse("?" + state.query()) == (state, [])


def test_empty_prompt_is_not_the_default_prompt():
    assert parse("prompt=")[0].prompt == ""
    assert parse("prompt=" + "")[0].query() == "prompt="
    assert parse({})[0].prompt == DEFAULT_PROMPT


@calmly
@given(
    st.builds(
        UiState,
        prompt=st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=60),
        model=st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=20),
        layer=st.integers(0, 10**6), head=st.integers(0, 10**6), token=st.integers(-1, 10**6),
        stage=st.sampled_from(CHOICES["stage"]), qk=st.sampled_from(CHOICES["qk"]), log=st.integers(0, 1),
    )
)  # fmt: skip
def test_every_view_survives_the_address_bar(state):
    assert parse(state.query()) == (state, [])


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_only_whole_numbers_are_taken(name, value):
    state, notes = parse({name: value})
    assert getattr(state, name) == getattr(UiState(), name)
    assert len(notes) == 1 and name in notes[0] and len(notes[0]) < 200


@pytest.mark.parametrize(("value", "taken"), [(2, 2), (2.0, 2), ("2", 2), ("2.0", 2), (" 7 ", 7)])
def test_the_ways_to_spell_a_whole_number(value, taken):
    assert parse({"layer": value}) == (UiState(layer=taken), [])


@pytest.mark.parametrize(("value", "taken"), [(-1, 0), (10**9, 10**6), ("-5", 0), (1e300, 10**6)])
def test_far_numbers_move_to_the_nearest_end_and_say_so(value, taken):
    state, notes = parse({"layer": value})
    assert state.layer == taken and len(notes) == 1


@calmly
@given(
    st.dictionaries(
        st.sampled_from([*UiState.__dataclass_fields__, "else"]),
        st.none() | st.floats() | st.integers() | st.text() | st.binary(),
    )
)
def test_parse_never_raises_and_always_gives_a_valid_view(raw):
    state, _ = parse(raw)
    assert parse(state.query())[0] == state
    for name, choices in CHOICES.items():
        assert getattr(state, name) in choices


@pytest.mark.parametrize("raw", [None, 3, [], "a=b", b"x", object()])
def test_parse_takes_anything(raw):
    assert parse(raw)[0] == UiState()


def test_a_long_or_broken_prompt_is_said():
    state, notes = parse({"prompt": "x" * (LONGEST_PROMPT + 1)})
    assert len(state.prompt) == LONGEST_PROMPT and "only the first" in notes[0]
    state, notes = parse({"prompt": "a\ud83db"})
    assert state.prompt == "a?b" and len(notes) == 1


def test_a_hostile_choice_is_shown_short():
    state, notes = parse({"stage": "<img src=x onerror=alert(1)>" * 50})
    assert state.stage == "scaled" and len(notes[0]) < 150


def test_fit_moves_a_view_into_a_smaller_model():
    big = UiState(layer=20, head=30, token=99, node="router")
    state, notes = fit(big, layers=2, heads=4, tokens=5, nodes=["resid_pre", "logits"])
    assert state == replace(big, layer=1, head=3, token=4, node="logits") and len(notes) == 4
    assert fit(state, layers=2, heads=4, tokens=5, nodes=["resid_pre", "logits"]) == (state, [])


def test_the_pattern_is_a_node_and_a_stage():
    many = {"layers": 1, "heads": 1, "tokens": 1, "nodes": ["logits", "pattern", "z"]}
    assert fit(UiState(node="pattern", stage="raw"), **many)[0] == UiState(node="pattern", stage="pattern")
    assert fit(UiState(stage="pattern"), **many)[0] == UiState(node="pattern", stage="pattern")
    assert fit(UiState(node="z", stage="pattern"), **many)[0] == UiState(node="z", stage="pattern")


def test_fit_keeps_last_token_and_takes_the_first_node_where_there_is_no_attention():
    state, notes = fit(UiState(), layers=1, heads=1, tokens=1, nodes=["resid_pre"])
    assert state.token == -1 and state.node == "resid_pre" and len(notes) == 1
