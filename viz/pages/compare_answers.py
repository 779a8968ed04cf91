"""From a finished comparison and a view to what the browser is told: plain values, figures by key. No gradio here."""

from dataclasses import asdict
from typing import Any

from model.interventions import EDITS
from model.surgery import CHANGES
from viz.compare_state import LETTERS, CompareState
from viz.figures import divergence
from viz.nodes.attention import STAGES
from viz.nodes.card import short
from viz.pages import compare_words as words
from viz.pages.answers import describe, plain
from viz.pages.compare_done import Done, fit
from viz.pages.compare_pictures import late_card, strip_card, strip_rows
from viz.pages.compare_sides import about
from viz.pages.compare_tensor import tensor_cards
from viz.store import Store
from viz.theme import Theme

MENUS = {
    "parts": [[name, change.title, list(change.choices), change.free] for name, change in CHANGES.items()],
    "edits": [[name, kind.title] for name, kind in EDITS.items()],
}


def view(done: Done, state: CompareState, store: Store, theme: Theme, shelf: Any) -> dict:
    """Everything the page shows of a comparison."""
    state, notes = fit(done, state)
    title, caption, tensors = tensor_cards(done, state, theme)
    strips = [strip_card(done, n, state, theme) for n in range(1, len(done.specs))]
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
        "tokens": {"pieces": done.pieces[0], "said": f"{len(done.pieces[0])} tokens · {done.seconds:.2f} s"},
        "rows": strip_rows(done, state),
        "wide": divergence.WIDE,
        "depth": done.lock.depth,
        "heads": done.heads,
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
        "device": f"{a.device} · {short(str(a.dtype).removeprefix('torch.'))}",
    }
    return plain(told)
