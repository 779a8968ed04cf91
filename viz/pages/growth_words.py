"""What the recorded runs show, in sentences: every number in them is read from the records."""

import math

import numpy as np

from model.growth.captions import USUAL, bound_caption, stress_caption, usual_gaps
from model.growth.record import Record
from viz.pages.growth_records import OFF, ON, Records, end, final_loss, peak
from viz.theme import number

FP16_LARGEST = 65_504
HELD = 20.0  # a fix that keeps the peak under this share of the free run's is said to hold the logits
FIXED_GAIN = "qk-norm-fixed"


def span(values: list[float], digits: int | None = None) -> str:
    """ "12,236–14,548", or one number where all agree as written."""
    write = number if digits is None else (lambda v: f"{v:.{digits}f}" if math.isfinite(v) else number(v))
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low}–{high}"


def stress(records: Records) -> list[str]:
    """The pair at a high learning rate over all its seeds, beside it what sensible rates do; then the bound."""
    own = [records.read(entry) for entry in records.own("stress")]
    sweep = [records.read(entry) for entry in records.own("sweep")]
    if {run.meta["arm"] for run in own} < {OFF, ON} or not sweep:
        return []
    fixed = [records.read(entry) for entry in records.entries if entry.arm == FIXED_GAIN]
    learned = [run for run in own if run.meta["arm"] == ON]
    return [stress_caption(own, sweep), *([bound_caption(learned, fixed[0])] if fixed else [])]


def sweep(records: Records) -> list[str]:
    found = records.sweep()
    if not all(found.values()):
        return []
    tops = {arm: [end(record) for _, record in runs] for arm, runs in found.items()}
    ends = {arm: f"from {number(top[0])} to {number(top[-1])}" for arm, top in tops.items()}
    said = [
        f"One seed for each learning rate and arm, {int(found[OFF][0][1].step[-1])} steps, nothing interpolated: the slider "
        f"moves between runs. From the lowest rate to the highest, the largest logit at the end goes {ends[OFF]} without "
        f"QK-norm and {ends[ON]} with it.",
        sensible(records),
    ]
    if max(tops[OFF]) > FP16_LARGEST:
        said.append(f"Logits above {FP16_LARGEST:,} do not fit fp16: these runs are fp32, an fp16 forward pass would overflow.")
    return [" ".join(filter(None, said))]


def sensible(records: Records) -> str:
    """What the arms do at learning rates that train these models well: shown beside the high one, so that it is no rule."""
    runs = [records.read(entry) for entry in records.members("sweep")]
    if not any(run.meta["recipe"]["lr"] <= USUAL for run in runs):
        return ""
    gaps, ratios = usual_gaps(runs)
    ways = ", in either direction" if min(gaps) < 0 < max(gaps) else ""
    return (
        f"At learning rates of {USUAL:g} and below the logits still differ {span(ratios, 1)} times, but the losses differ by "
        f"{max(map(abs, gaps)):.2f} or less{ways}, one seed each."
    )


def fixes(records: Records) -> list[str]:
    members = [(entry, records.read(entry)) for entry in records.members("fixes") if entry.arm != OFF]
    if not members:
        return []
    base = records.baseline(members[0][0])
    said = [f"Each run changes one thing of the run without QK-norm at learning rate {members[0][0].lr:g}; one seed each."]
    if base is None:
        return said
    top, loss = peak(records.read(base)), final_loss(records.read(base))
    held = [entry.label for entry, record in members if peak(record) < top / HELD]
    if held:
        said.append(f"Raw logits stay below a twentieth of that run's {number(top)} with: {'; '.join(held)}.")
    alone = [final_loss(records.read(entry)) for entry in records.own("stress") if entry.arm == OFF]
    if len(alone) > 1:
        said.append(
            f"Losses of one seed each do not rank the fixes: the run without one alone ends at {span(alone, 2)} over its "
            f"{len(alone)} seeds."
        )
    free = [final_loss(record) for _, record in members if peak(record) >= top / HELD]
    better = [value for value in free if value < loss - 0.02]
    if better:
        runs = "One of the others ends" if len(better) == 1 else f"{len(better)} of the others end"
        said.append(
            f"{runs} below the baseline's {loss:.2f} as well ({span(better, 2)}) although the "
            "logits grew, so the loss here is not a function of the logits alone."
        )
    return [" ".join(said)]


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
    met = np.unravel_index(np.argmax(np.nan_to_num(ratio, nan=-1.0)), ratio.shape)
    share = f"largest observed share of it {float(ratio[met]):.2f}, at step {int(record.step[met[0]]):,}"
    return (
        f"dashed: what QK-norm allows, max|g_q| · max|g_k| · √head_dim; {why} ({number(now)} in the worst layer at the end, "
        f"{share})"
    )
