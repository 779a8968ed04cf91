"""A link may name what is not here: each such name is told in a sentence, left out, and nothing else of the view is lost."""

from collections.abc import Collection
from dataclasses import replace

from model.growth.fixes import FIXES
from model.growth.record import Record
from model.growth.sizes import SIZES
from model.growth.untrained import FACTORS
from viz.growth_state import GrowthState, shown
from viz.pages import growth_survey
from viz.pages.growth_live import ARCHITECTURES
from viz.pages.growth_recorded import TITLES, has
from viz.pages.growth_texts import STANDARD, Texts
from viz.shelf import Shelf

NO_FACTOR = 100  # the slider stands at 1


def arms_of(state: GrowthState, texts: Texts) -> tuple[GrowthState, list[str]]:
    """What is to be trained, of what there is."""
    found, notes = {}, []
    for side, word in (("a", "left"), ("b", "right")):
        names = state.names(f"{side}_fixes")
        if unknown := [name for name in names if name not in FIXES]:
            found[f"{side}_fixes"] = ",".join(name for name in names if name in FIXES)
            notes.append(f"there is no fix {_all(unknown)} for the {word} arm: left out")
        if (name := getattr(state, f"{side}_arch")) and name not in ARCHITECTURES:
            found[f"{side}_arch"] = ""
            notes.append(f"there is no small architecture {shown(name)} for the {word} arm: the Llama block is trained")
    if state.size not in SIZES:
        found["size"] = GrowthState.size
        notes.append(f"there is no size {shown(state.size)}: {GrowthState.size} is chosen")
    if not texts.knows(state.text):
        found["text"] = ""
        notes.append(f"the text {shown(state.text)} is not here, or no longer kept: {STANDARD} is read")
    return replace(state, **found), notes


def models_of(state: GrowthState, shelf: Shelf, headings: Collection[str]) -> tuple[GrowthState, list[str]]:
    """The checkpoints that are to be measured. `headings`: those of whole directories of steps."""

    def known(name: str) -> bool:
        return name in headings or not shelf.name(name)[1]

    names = state.names("models")
    unknown = [name for name in (*((state.model,) if state.model else ()), *names) if not known(name)]
    if not unknown:
        return state, []
    models, model = ",".join(name for name in names if known(name)), "" if state.model in unknown else state.model
    return replace(state, models=models, model=model), [
        f"no model named {_all(unknown)} is open here: left out of what is measured"
    ]


def measures_of(state: GrowthState) -> tuple[GrowthState, list[str]]:
    """What is drawn of them, and where the slider of the scales stands."""
    found, notes = {}, []
    if state.seen not in growth_survey.SEEN:
        found["seen"] = GrowthState.seen
        notes.append(f"there is no stage or quantity {shown(state.seen)} of a checkpoint: {GrowthState.seen} is shown")
    if state.factor != NO_FACTOR and state.factor >= len(FACTORS):
        found["factor"] = NO_FACTOR
        notes.append(f"there is no factor number {state.factor} among {len(FACTORS)}: the slider stands at s = 1")
    return replace(state, **found), notes


def runs_of(state: GrowthState, records: list[Record], steps: list[int]) -> tuple[GrowthState, list[str]]:
    """What is looked at of recorded runs whose slider has these steps."""
    found, notes = {}, []
    layers, heads = records[0].values["max_logit"].shape[1:]
    if not (-1 <= state.at_layer < layers and -1 <= state.at_head < heads):
        found |= {"at_layer": -1, "at_head": -1}
        notes.append(f"these runs have no layer {state.at_layer} head {state.at_head}: showing the worst heads")
    elif (state.at_layer < 0) != (state.at_head < 0):
        found |= {"at_layer": -1, "at_head": -1}
        notes.append("a head is named by its layer and its number, and one of them is missing: showing the worst heads")
    if not any(has(record, state.quantity) for record in records):
        found["quantity"] = GrowthState.quantity
        what = TITLES.get(state.quantity, state.quantity).lower()
        notes.append(f"these runs did not record {what}: the map shows the largest |logit|")
    if state.run_step >= 0 and state.run_step not in steps:
        nearest = min(steps, key=lambda step: abs(step - state.run_step))
        found["run_step"] = -1 if nearest == steps[-1] else nearest
        notes.append(f"nothing is stored of step {state.run_step:,}: showing step {nearest:,}, the nearest that is")
    return replace(state, **found), notes


def _all(names: list[str]) -> str:
    return " or ".join(map(shown, names[:4])) + (f" or {len(names) - 4} more" if len(names) > 4 else "")
