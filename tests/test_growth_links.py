"""The view of the Growth page as a link: what is hostile, mistaken or gone is a sentence and nothing else is lost."""

import json

import pytest
from browser import HOSTILE
from growth_page import look

from model.growth.quantities import QUANTITIES
from viz.growth_state import PROMPT_IN_LINK, GrowthState, parse


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


@pytest.mark.parametrize(
    "field, value, words, settled",
    [
        ("b_fixes", "qk-norm,softcap", "there is no fix 'softcap' for the right arm: left out", "qk-norm"),
        ("a_arch", "gpt9", "there is no small architecture 'gpt9' for the left arm", ""),
        ("size", "XXL", "there is no size 'XXL': M2 is chosen", "M2"),
        ("text", "/etc/passwd", "the text '/etc/passwd' is not here, or no longer kept", ""),
        ("models", "gemma,nobody", "no model named 'nobody' is open here", "gemma"),
        ("model", "nobody", "no model named 'nobody' is open here", ""),
        ("seen", "raw2", "there is no stage or quantity 'raw2'", "masked"),
        ("factor", 40, "there is no factor number 40 among 7", 100),
        ("run_step", 90, "nothing is stored of step 90: showing step 100, the nearest that is", 100),
        ("run_step", 9999, "nothing is stored of step 9,999: showing step 200", -1),
        ("at_layer", 2, "one of them is missing: showing the worst heads", -1),
        ("fix", "unheard-of", "there is no run with the fix 'unheard-of' here", "on"),
    ],
)  # fmt: skip
def test_what_a_link_names_and_is_not_here_is_told_and_nothing_else_is_lost(growth, field, value, words, settled):
    answer = look(growth, **{field: value, "live_seed": 7, "details": 1})
    assert [words in note for note in answer["notes"]] == [True], answer["notes"]
    assert answer["state"][field] == settled and (answer["state"]["live_seed"], answer["state"]["details"]) == (7, 1)
    assert answer["sections"]["form"]["wrong"] == "" and len(answer["sections"]["panels"]["cards"]) == 4
    assert not look(growth)["notes"]
