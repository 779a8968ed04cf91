"""What may be said of the recorded runs, in numbers read from the records: the page and the model cards say the same."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from model.growth.record import Record

USUAL = 0.01  # learning rates up to here train these models well


def stress_caption(stress: Sequence[Record], sweep: Sequence[Record]) -> str:
    """`stress`: "off" and "on" at one high learning rate and several seeds; `sweep`: both at other learning rates, one seed."""
    off, on = ([r for r in stress if r.meta["arm"] == arm] for arm in ("off", "on"))
    recipe, seeds = off[0].meta["recipe"], len(off)
    every = [*sweep, *(r for r in stress if r.meta["recipe"]["seed"] == recipe["seed"])]
    best = min(every, key=end_loss).meta["recipe"]["lr"]
    better = sum(end_loss(a) > end_loss(b) for a, b in zip(off, on, strict=True))
    gaps, ratios = usual_gaps(sweep)
    either = ", in either direction" if min(gaps) < 0 < max(gaps) else ""
    model = f"{off[0].meta['parameters'] / 1e6:.2f}M-parameter byte models trained on {off[0].meta['corpus']['name']}"
    logits, losses, rows = ([span(map(of, arm), form) for arm in (off, on)] for of, form in SAID)
    return (
        f"Two {model}, same seed and batches, learning rate {recipe['lr']:g}: {recipe['lr'] / best:.0f} times the best of "
        f"those tried ({best:g}). Without QK-norm the largest attention logit reached {logits[0]} in {recipe['steps']} "
        f"steps ({seeds} seeds), with it {logits[1]}; in the most extreme head {rows[0]} of the rows ended one-hot, with it "
        f"{rows[1]}. Training did not diverge: the loss ended at {losses[0]} without and at {losses[1]} with QK-norm, lower "
        f"with it in {better} of {seeds} seeds. At learning rates of {USUAL:g} and below the logits still differ "
        f"{span(ratios, '.0f')} times, but the losses by {span(map(abs, gaps), '.2f')}{either}, one seed each. Reports of "
        "large models (ViT-22B: logits above 50,000, divergence) are another scale and are not reproduced here."
    )


def bound_caption(learned: Sequence[Record], fixed: Record) -> str:
    """`learned`: runs whose QK-norm has a learned gain; `fixed`: one whose gain stays 1."""
    limit = float(fixed.bound[-1].max())
    last = [float(np.fmax.reduce(r.bound[-1])) for r in learned]
    shares = [np.fmax.reduce(r.worst("max_logit") / r.bound, axis=1) for r in learned]  # of its own layer's limit
    steps = sorted({int(r.step[np.nanargmax(share)]) for r, share in zip(learned, shares, strict=True)})
    ends, nearest = [float(share[-1]) for share in shares], [float(np.nanmax(share)) for share in shares]
    met = f"step{'s' if len(steps) > 1 else ''} {', '.join(f'{step:,}' for step in steps)}"
    return (
        f"With gains fixed at 1 no logit can exceed sqrt(head width) = {limit:g}; the largest seen is {peak(fixed):.2f}. "
        f"Learned gains move that limit, max|g_q| max|g_k| sqrt(head width): at the end it is {span(last, '.0f')} in the "
        f"highest layer. A layer's largest logit came to {span(nearest, '.2f')} of its layer's limit, at {met}, and is at "
        f"{span(ends, '.2f')} at the end."
    )


def usual_gaps(sweep: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Difference of the losses and ratio of the largest logits at the end, off against on, at each usual learning rate."""
    usual = sorted((r for r in sweep if rate(r) <= USUAL), key=lambda r: (rate(r), r.meta["arm"]))
    pairs = [list(pair) for _, pair in groupby(usual, key=rate)]
    gaps = [end_loss(a) - end_loss(b) for a, b in pairs]
    return gaps, [float(a.worst("max_logit")[-1].max() / b.worst("max_logit")[-1].max()) for a, b in pairs]


def rate(record: Record) -> float:
    return record.meta["recipe"]["lr"]


def peak(record: Record) -> float:
    """The largest logit of the whole run."""
    return float(np.fmax.reduce(record.values["max_logit"], axis=None))


def end_loss(record: Record) -> float:
    return float(record.validation_loss[-1])


def one_hot(record: Record) -> float:
    """Share of one-hot rows of the most extreme head at the end."""
    return float(np.fmax.reduce(record.values["one_hot"][-1], axis=None))


SAID = ((peak, ",.0f"), (end_loss, ".2f"), (one_hot, ".0%"))


def span(values: Iterable[float], form: str) -> str:
    """ "5,930 to 12,777", or one number where all print alike."""
    values = list(values)
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"
