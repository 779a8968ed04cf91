"""A real checkpoint, or several: every layer and head at each stage of attention, over one text."""

import re
from collections.abc import Sequence

import numpy as np

from model.growth.quantities import QUANTITIES
from model.growth.survey import STAGES, Survey
from viz.figures.growth import Line, Panel, Points, against, panel
from viz.figures.growth_heads import heads
from viz.nodes.card import Card, card, line
from viz.pages.growth_recorded import LOGS, SHARES, TITLES
from viz.pages.growth_records import over_heads
from viz.theme import Theme, number

MOST = 4  # checkpoints in one chart; a directory of steps has its own
SEEN = {**dict.fromkeys(STAGES, ""), **{q: "" for q in QUANTITIES if q not in ("max_logit", "max_capped", "overflow")}}
STEP = re.compile(r"(\d+)\D*$")  # the number that a checkpoint's name ends in


def menu() -> list[list[str]]:
    """[value, words] of what can be drawn of a checkpoint."""
    return [[name, f"largest |logit|, {name}" if name in STAGES else TITLES[name].lower()] for name in SEEN]


def values(survey: Survey, seen: str) -> np.ndarray | None:
    """float32 [layer, head]; None where no layer of this model has such a stage."""
    return survey.stages.get(seen) if seen in STAGES else survey.values[seen]


def cards(surveys: Sequence[Survey], seen: str, theme: Theme) -> list[Card]:
    """One map a checkpoint, all in one colour range, and their layers as curves."""
    have = [s for s in surveys if values(s, seen) is not None]
    meaning = STAGES.get(seen) or QUANTITIES[seen]
    if not have:
        return [Card("survey-none", TITLES.get(seen, seen), f"none of these models has this stage ({meaning})")]
    every = np.concatenate([values(s, seen).ravel() for s in have])
    found = []
    for i, survey in enumerate(surveys[:MOST]):
        mine = values(survey, seen)
        if mine is None:
            found.append(Card(f"survey-{i}", survey.name, "this model has no such stage"))
            continue
        figure = heads([mine], [survey.name], every, theme, revision=f"survey:{survey.name}", unit=seen, share=seen in SHARES)
        found.append(card(f"survey-{i}", survey.name, line(_most(mine, seen), facts(survey)), figure))
    return [_curves([(i, s) for i, s in enumerate(surveys[:MOST]) if s in have], seen, theme, meaning), *found]


def _curves(surveys: Sequence[tuple[int, Survey]], seen: str, theme: Theme, meaning: str) -> Card:
    """[(colour, survey)]: layers along the axis; the bound that gains set where logits are drawn."""
    lines = []
    for i, survey in surveys:
        worst = over_heads(values(survey, seen), seen)
        layers = np.arange(len(worst))
        lines.append(Line(survey.name, layers, worst, i, width=2.25))
        if seen in ("masked", "scaled", "capped") and np.isfinite(survey.bound).any():
            lines.append(Line(f"{survey.name}: bound of its gains", layers, survey.bound, i, 0.8, "bound", "dash", 1.25))
    drawn = Panel(
        lines, log=seen in STAGES or seen in LOGS, span=(-0.02, 1.02) if seen in SHARES else None, unit=seen, across="layer"
    )
    words = f"{meaning}; of each layer the {'lowest' if seen == 'entropy' else 'largest'} head"
    bounds = "; dashed: the bound that its gains set" if any("bound" in x.name for x in lines) else ""
    return card("survey-layers", "Layer by layer", words + bounds, panel(drawn, theme, revision="survey:layers", height=280))


def growth(surveys: Sequence[tuple[int, Survey]], seen: str, theme: Theme) -> Card | None:
    """A directory of training steps as a growth curve: one point a checkpoint, for the layers that are largest at the end."""
    have = sorted(((step, s) for step, s in surveys if values(s, seen) is not None), key=lambda pair: pair[0])
    if len(have) < 2:
        return None
    steps = np.array([step for step, _ in have], float)
    by_layer = np.stack([over_heads(values(s, seen), seen) for _, s in have])
    worst = (np.fmin if seen == "entropy" else np.fmax).reduce(by_layer, axis=1)
    middle = np.nanmedian(by_layer, axis=1)
    groups = [Points("worst layer", steps, worst, 0, "worst layer"), Points("median layer", steps, middle, 1, "median layer")]
    log = seen in STAGES or seen in LOGS
    figure = against(
        groups, theme, x="training step", y=seen, log_y=log, revision="survey:growth", log_x=False, ticks=_some(steps)
    )
    words = f"{len(have)} checkpoints of one directory, each measured on this text; lines only join the points"
    return card("survey-growth", "Growth over the checkpoints", words, figure)


def step_of(name: str) -> int | None:
    found = STEP.search(name)
    return int(found[1]) if found and len(found[1]) <= 12 else None


def table(surveys: Sequence[Survey]) -> dict:
    """What was measured of each model, in one row."""
    rows = []
    for survey in surveys:
        gains = [float(np.nanmax(g)) for g in survey.gains.values() if np.isfinite(g).any()]
        bound = float(np.nanmax(survey.bound)) if np.isfinite(survey.bound).any() else None
        v = survey.values
        rows.append(
            [
                survey.name, number(_top(survey.stages["raw"])), number(_top(survey.stages["scaled"])),
                number(_top(survey.stages["capped"])) if "capped" in survey.stages else "–",
                number(_top(survey.stages["masked"])),
                number(_top(survey.stages["with sink"])) if "with sink" in survey.stages else "–",
                number(_top(v["q_norm"])), number(_top(v["k_norm"])), number(_top(v["cosine"])),
                " · ".join(map(number, gains)) or "no QK-norm", "–" if bound is None else number(bound),
                f"{_top(v['overflow']):,.0f}",
            ]
        )  # fmt: skip
    columns = [
        "model",
        "raw",
        "scaled",
        "capped",
        "masked",
        "with sink",
        "|q|",
        "|k|",
        "cos(q, k)",
        "gain q · k",
        "bound",
        "not finite",
    ]
    return {"columns": columns, "rows": rows}


def facts(survey: Survey) -> str:
    texts, tokens = survey.tokens
    return f"{tokens:,} tokens{f' of {texts} texts' if texts > 1 else ''}, model in {survey.dtype}, measured in fp32"


def _most(mine: np.ndarray, seen: str) -> str:
    sign = 1.0 if seen == "entropy" else -1.0
    layer, head = np.unravel_index(np.argmin(np.where(np.isnan(mine), np.inf, sign * mine)), mine.shape)
    return f"{'lowest' if seen == 'entropy' else 'largest'} {number(float(mine[layer, head]))} in layer {layer} head {head}"


def _top(values_: np.ndarray) -> float:
    return float(np.fmax.reduce(values_, axis=None))


def _some(steps: np.ndarray) -> np.ndarray:
    return steps[:: max(1, -(-len(steps) // 8))]
