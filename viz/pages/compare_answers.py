"""From a finished comparison and a view to what the browser is told: plain values, figures by key. No gradio here."""

from dataclasses import asdict, replace
from typing import Any

from model.interventions import EDITS
from viz.compare_state import LETTERS, NODES, CompareState
from viz.figures import divergence
from viz.nodes.attention import STAGES
from viz.nodes.card import short
from viz.pages import compare_words as words
from viz.pages.answers import describe, plain
from viz.pages.compare_done import Done, fit, tap_of
from viz.pages.compare_pictures import late_card, strip_card, strip_rows
from viz.pages.compare_sides import about
from viz.pages.compare_tensor import tensor_cards
from viz.store import Store
from viz.theme import Theme, count

AXES = {"head": "head", "kv_head": "KV head", "d_mlp": "neuron", "d_model": "dimension", "pos": "token"}
MENUS = {"edits": [[name, kind.title, AXES[kind.axis]] for name, kind in EDITS.items()]}


def explore(state: CompareState) -> dict:
    """What Explore calls the side that A is compared with: its model, its changes, and the node of the tensor."""
    side = state.side(state.against)
    node = next((node for node, tap in NODES.items() if tap == state.tap), "")
    return {"model": side["model"] or state.model, "change": side["change"]} | ({"node": node} if node else {})


def view(done: Done, state: CompareState, store: Store, theme: Theme, shelf: Any) -> dict:
    """Everything the page shows of a comparison."""
    state, notes = fit(done, state)
    title, caption, tensors = tensor_cards(done, state, theme)
    strips = [strip_card(done, n, state, theme) for n in range(1, len(done.specs))]
    tap = tap_of(done, state)
    a, here = done.lms[0], f"blocks.{state.layer}."
    late = [] if done.losses is None else [describe(late_card(done, theme), store)]
    sides = zip(LETTERS, done.specs, done.lms, done.built, strict=False)
    told = {
        "kind": "view",
        "state": asdict(state),
        "query": state.query(),
        "notes": [*done.notes, *notes],
        "sides": [about(letter, spec, lm, built) for letter, spec, lm, built in sides],
        "quick": words.quick_list(shelf, done.specs[0].model),
        "tokens": {"pieces": done.pieces[0], "said": f"{count(len(done.pieces[0]), 'token')} · {done.seconds:.2f} s"},
        "explore": explore(state),
        "rows": strip_rows(done, state),
        "taps": list(strip_rows(done, replace(state, rows="all"))),
        "wide": divergence.WIDE,
        "depth": done.lock.depth,
        "heads": done.heads,
        "headed": any({"head", "kv_head"} & set(lm.tap_modules[tap].dims) for lm in done.lms if tap in lm.tap_modules),
        "stages": {
            name: stage.tap for name, stage in STAGES.items() if any(here + stage.tap in lm.tap_modules for lm in done.lms)
        },
        "title": title,
        "caption": caption,
        "cards": [describe(one, store) for one in (*strips, *tensors)],
        "late": late,
        "next": words.nexts(done),
        "table": words.table(done),
        "starts": words.starts(done),
        "identities": words.identities(done, state, theme),
        "diagrams": words.diagrams(done, state) if state.diagrams else [],
        "device": f"{a.store.homes} · {short(str(a.dtype).removeprefix('torch.'))}",
    }
    return plain(told)
