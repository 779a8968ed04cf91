"""What runs ended at: against the learning rate, in a table of fixes, and one line on each run."""

import numpy as np

from model.growth.record import Record
from viz.figures.growth import Points, against
from viz.nodes.card import Card, card, line
from viz.pages.growth_records import OFF, ON, end, final_loss, peak
from viz.theme import Theme, count, number


def sweep_cards(found: dict[str, list], chosen: str, theme: Theme) -> list[Card]:
    """Largest logit and loss at the end against the learning rate: real runs only."""
    if not all(found.values()):
        return []
    side, cards = {OFF: 0, ON: 1}, []
    units = " and ".join(dict.fromkeys(record.loss_unit for runs in found.values() for _, record in runs))
    unsettled = f"{units}; one seed each: differences of about 0.05 are not settled"
    for key, title, of, log, words in (
        ("logit", "Largest |logit| at the end", end, True, "over all layers and heads at the last step; both axes logarithmic"),
        ("loss", "Validation loss at the end", final_loss, False, unsettled),
    ):
        groups = []
        for arm, runs in found.items():
            x, y = np.array([e.lr for e, _ in runs]), np.array([of(record) for _, record in runs])
            groups.append(Points(_arm_word(arm), x, y, side[arm], label={OFF: "off", ON: "on"}[arm]))
        figure = against(
            groups, theme, x="learning rate", y=title, log_y=log, revision=f"sweep:{key}", at=float(chosen) if chosen else None,
            click=("lr_index", "customdata"),
        )  # fmt: skip
        cards.append(card(f"growth-sweep-{key}", title, words, figure))
    return cards


def _arm_word(arm: str) -> str:
    return {OFF: "QK-norm off", ON: "QK-norm on"}.get(arm, arm)


def fix_rows(runs: list[Record]) -> dict:
    """The table of fixes: what each run ended at. `arms` are the values a click chooses."""
    rows = []
    for record in runs:
        rows.append(
            [
                record.meta["label"], number(final_loss(record)), number(end(record)), number(peak(record)),
                number(end(record, "max_capped")) if "max_capped" in record.values else "–", number(end(record, "entropy")),
                number(end(record, "one_hot")), record.meta["ended"],
            ]
        )  # fmt: skip
    heads_ = [
        "run",
        f"validation loss, {' or '.join(dict.fromkeys(record.loss_unit for record in runs))}",
        "largest |logit|, end",
        "its peak",
        "after soft-cap, end",
        "lowest entropy",
        "one-hot, most",
        "ended",
    ]
    return {"columns": heads_, "rows": rows, "arms": [record.meta["arm"] for record in runs]}


def about(record: Record) -> str:
    """One line on a run: what it is and what it was made with."""
    meta = record.meta
    recipe = meta.get("recipe") or {}
    parts = [
        f"{meta['parameters']:,} parameters" if isinstance(meta.get("parameters"), int) else "",
        count(int(record.step[-1]), "step"),
        f"learning rate {recipe['lr']:g}" if isinstance(recipe.get("lr"), int | float) else "",
        f"seed {meta['seed']}" if isinstance(meta.get("seed"), int) else "",
        f"{meta['seconds']:.0f} s" if isinstance(meta.get("seconds"), int | float) else "",
        f"torch {str(meta['torch'])[:20]}" if isinstance(meta.get("torch"), str) else "",
        meta["ended"],
    ]
    return line(*parts)
