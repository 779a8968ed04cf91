"""What the recorded runs show, in sentences: every number in them is read from the records."""

import math

import numpy as np

from model.growth.record import Record
from viz.pages.growth_records import OFF, ON, Records, end, final_loss, peak
from viz.theme import number

FP16_LARGEST = 65_504
ONE_HOT = 0.9  # share of rows from which on attention is called one-hot
ELSEWHERE = (
    "Reports of large models (ViT-22B: logits above 50,000 and divergence) are of another scale and are not reproduced here."
)


def span(values: list[float], digits: int | None = None) -> str:
    """ "12,236–14,548", or one number where all agree as written."""
    write = number if digits is None else (lambda v: f"{v:.{digits}f}" if math.isfinite(v) else number(v))
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low}–{high}"


def parameters(record: Record) -> str:
    n = record.meta.get("parameters")
    return f"{n / 1e6:.2f}M-parameter " if isinstance(n, int) else ""


def text_name(record: Record) -> str:
    return str((record.meta.get("corpus") or {}).get("name", "a text"))[:60]


def diverged(record: Record) -> bool:
    return record.meta["ended"].startswith("not finite") or not np.isfinite(record.values["max_logit"]).any()


def stress(records: Records) -> str:
    """The story of the pair at a high learning rate, over all its seeds."""
    runs = {arm: [records.read(e) for e in records.members("stress") if e.arm == arm] for arm in (OFF, ON)}
    if not all(runs.values()):
        return ""
    one = runs[OFF][0]
    lr, steps, seeds = one.meta["recipe"]["lr"], int(one.step[-1]), len(runs[OFF])
    tops = {arm: [peak(run) for run in found] for arm, found in runs.items()}
    losses = {arm: [final_loss(run) for run in found] for arm, found in runs.items()}
    hot = [end(run, "one_hot") for run in runs[OFF]]
    said = [
        f"Two {parameters(one)}byte models trained on {text_name(one)}, same seed, initial weights and batches, "
        f"learning rate {lr:g}{_above_best(records, lr)}.",
        f"Without QK-norm the largest attention logit reached {span(tops[OFF])} in {steps} steps "
        f"{'in all ' + str(seeds) + ' seeds' if seeds > 1 else '(one seed)'}"
        f"{' and attention became one-hot' if min(hot) > ONE_HOT else ''}; with it, {span(tops[ON])}.",
    ]
    if not any(diverged(run) for found in runs.values() for run in found):
        slower = min(losses[OFF]) > max(losses[ON])
        word = "the loss only fell more slowly" if slower else "the final losses were"
        said.append(f"Training did not diverge: {word} ({span(losses[OFF], 2)} against {span(losses[ON], 2)}).")
    return " ".join([*said, sensible(records), ELSEWHERE]).replace("  ", " ")


def _above_best(records: Records, lr: float) -> str:
    best = best_rate(records)
    if best is None or not lr > best[0] * 1.5:
        return ""
    return f", about {number(lr / best[0])} times the best of the {best[1]} that were run"


def best_rate(records: Records) -> tuple[float, int] | None:
    """The learning rate of the lowest loss in the sweep, whichever arm reached it, and how many were run."""
    runs = [(final_loss(record), entry.lr) for found in records.sweep().values() for entry, record in found]
    known = [pair for pair in runs if math.isfinite(pair[0])]
    return (min(known)[1], len({lr for _, lr in known})) if known else None


def sensible(records: Records) -> str:
    """What the two arms do at and below the best rate: shown beside the high one, so that nobody takes it for the rule."""
    best, sweep = best_rate(records), records.sweep()
    if best is None or not all(sweep.values()):
        return ""
    on = {entry.lr: record for entry, record in sweep[ON]}
    pairs = [(record, on[entry.lr]) for entry, record in sweep[OFF] if entry.lr <= best[0] * 1.001 and entry.lr in on]
    if not pairs:
        return ""
    ratios = [end(a) / end(b) for a, b in pairs]
    gaps = [final_loss(a) - final_loss(b) for a, b in pairs]
    ways = ", in either direction" if min(gaps) < 0 < max(gaps) else ""
    return (
        f"At learning rates of {best[0]:g} and below the logits still differ {span(ratios, 1)} times, but the losses differ by "
        f"{max(map(abs, gaps)):.2f} or less{ways}, one seed each."
    )


def sweep(records: Records) -> str:
    found = records.sweep()
    if not all(found.values()):
        return ""
    tops = {arm: [end(record) for _, record in runs] for arm, runs in found.items()}
    ends = {arm: f"from {number(found[0])} to {number(found[-1])}" for arm, found in tops.items()}
    said = [
        f"One seed for each learning rate and arm, {int(found[OFF][0][1].step[-1])} steps, nothing interpolated: the slider "
        f"moves between runs. From the lowest rate to the highest, the largest logit at the end goes {ends[OFF]} without "
        f"QK-norm and {ends[ON]} with it.",
        sensible(records),
    ]
    if max(tops[OFF]) > FP16_LARGEST:
        said.append(f"Logits above {FP16_LARGEST:,} do not fit fp16: these runs are fp32, an fp16 forward pass would overflow.")
    return " ".join(filter(None, said))


def fixes(records: Records) -> str:
    members = [(e, records.read(e)) for e in records.members("fixes") if e.arm != OFF]
    if not members:
        return ""
    base = records.baseline(members[0][0])
    said = [f"Each run changes one thing of the run without QK-norm at learning rate {members[0][0].lr:g}; one seed each."]
    if base is not None:
        top = peak(records.read(base))
        held = [e.label for e, record in members if peak(record) < top / 20]
        if held:
            said.append(f"Raw logits stay below a twentieth of that run's {number(top)} with: {'; '.join(held)}.")
        free = [record for e, record in members if peak(record) >= top / 20]
        loss = final_loss(records.read(base))
        better = [final_loss(r) for r in free if final_loss(r) < loss - 0.02]
        if better:
            said.append(
                f"Do not rank the others by loss: {len(better)} of them also end below the baseline's {loss:.2f} "
                f"({span(better, 2)}) with logits that grew, so the loss here is not a function of the logits alone."
            )
    return " ".join(said)


STORIES = {"stress": stress, "sweep": sweep, "fixes": fixes}


def bound(record: Record) -> str:
    """The dashed line in words; nothing where no gain bounds the logits."""
    known = np.isfinite(record.bound)
    if not known.any():
        return ""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(known, record.worst("max_logit") / record.bound, np.nan)
    now = float(np.nanmax(record.bound[-1])) if known[-1].any() else math.nan
    learned = float(np.nanmax(record.bound)) > float(np.nanmin(record.bound)) * 1.001
    why = "the gains are learned, so the limit moves" if learned else "its gains do not move"
    return (
        f"Dashed: what QK-norm allows, max|g_q| · max|g_k| · √head_dim; {why} ({number(now)} in the worst layer at the end; "
        f"largest observed share of it {float(np.nanmax(ratio)):.2f})."
    )
