"""Gains of norms: far from 1, far from those of the layers around, negative, or with the 1 of Gemma's convention misplaced.

A norm multiplies by its gain g; Gemma's files hold g - 1. What is trained from 1 keeps its sign: few gains of a good file are
negative, while of offsets many are, and none is far below -1.
"""

import torch
from torch import Tensor

from model.checkpoints.checkpoint import Checkpoint
from model.doctor.finding import Check
from model.doctor.layers import FEWEST, odd_ones, worst
from model.doctor.values import Values, norms

SMALL, LARGE = 0.02, 1000.0  # medians of |gain|; Gemma 3's norms on outputs reach 150
INNER, OUTER = 8.0, 15.0  # trained models: at most 2.7 inside, 6 at the ends (SmolLM2 135M), 9.5 (four layers, stressed)
NEGATIVE = 0.9  # of one norm; in layer 0 of SmolLM2 half of the gains are
ENOUGH = 100  # gains below 1 that say something of the convention
FEW, MANY = 0.02, 0.2  # negative ones, as a share of the positive ones below 1


def judge(checkpoint: Checkpoint, found: dict[str, Values]) -> list[Check]:
    stored, offset = {}, {}
    for name, is_offset in norms(checkpoint):
        if not name.endswith(".bias") and found[name].finite:
            stored[name], offset[name] = checkpoint.tensors.read(name).float(), is_offset
    if not stored:
        return [Check.skipped("gains", "no norm of this model has gains")]
    gains = {name: x + float(offset[name]) for name, x in stored.items()}
    return [_sizes(gains), _signs(gains), _convention(stored, offset), _odd(gains, len(checkpoint.config.blocks))]


def _sizes(gains: dict[str, Tensor]) -> Check:
    middles = {name: float(gain.abs().median()) for name, gain in gains.items()}
    far = [name for name, middle in middles.items() if not SMALL <= middle <= LARGE and gains[name].any()]
    about = f"medians of |gain| of {len(gains):,} norms, {min(middles.values()):.3g} to {max(middles.values()):.3g}"
    if not far:
        return Check.of("gains", about)
    hint = "they may be offsets from 1, as Gemma stores them" if middles[far[0]] < SMALL else "a scale was lost"
    sentence = f"the gains of {_and_more(far)} are far from 1: median |gain| {middles[far[0]]:.3g}"
    return Check.of("gains", about, [f"{sentence}; {hint}: convert the model again"])


def _signs(gains: dict[str, Tensor]) -> Check:
    shares = {name: float((gain < 0).float().mean()) for name, gain in gains.items()}
    wrong = [name for name, share in shares.items() if share > NEGATIVE]
    about = f"signs of gains: at most {max(shares.values()):.0%} of one norm are negative"
    if not wrong:
        return Check.of("signs", about)
    name = wrong[0]
    inside = bool(((gains[name] > -1) & (gains[name] < 0)).float().mean() > NEGATIVE)
    hint = "they may be offsets from 1, as Gemma stores them" if inside else "training from 1 does not lead there"
    sentence = f"{shares[name]:.0%} of the gains of {_and_more(wrong)} are negative, median {float(gains[name].median()):.3g}"
    return Check.of("signs", "signs of gains", [f"{sentence}; {hint}: convert the model again"])


def _convention(stored: dict[str, Tensor], offset: dict[str, bool]) -> Check:
    """Whether the 1 is where this family has it, from all norms together."""
    x = torch.cat([stored[name].flatten() for name in stored])
    below, above, beyond = (int(mask.sum()) for mask in ((x > -1) & (x < 0), (x > 0) & (x <= 1.5), x < -1))
    if below + above < ENOUGH:
        return Check.skipped("convention", "too few gains near 1 to tell whether they are stored as gains or as offsets from 1")
    about = f"{below:,} of the stored gains lie between -1 and 0 and {above:,} between 0 and 1.5"
    if all(offset.values()) and below < FEW * above:
        sentence = f"{about}: this family stores offsets from 1, and these look like whole gains"
        return Check.of("convention", about, [f"{sentence}; subtract 1 from every norm, or convert the model again"])
    if not any(offset.values()) and below > MANY * above and beyond < FEW * below:
        sentence = f"{about}: this family stores whole gains, and these look like offsets from 1, as Gemma stores them"
        return Check.of("convention", about, [f"{sentence}; add 1 to every norm, or convert the model again"])
    kind = "offsets from 1" if all(offset.values()) else "whole gains"
    return Check.of("convention", f"gains are stored as {kind}, as in this family")


def _odd(gains: dict[str, Tensor], layers: int) -> Check:
    if layers < FEWEST:
        return Check.skipped("gain scale", f"a model of {layers} layer{'s' if layers > 1 else ''} has no layers to compare")
    sizes = {name: float(gain.square().mean().sqrt()) for name, gain in gains.items()}
    odd = odd_ones(sizes, INNER, OUTER)
    about = f"root mean square of the gains of {len(sizes):,} norms against the same ones of the layers around"
    if not odd:
        return Check.of("gain scale", about)
    name, off = worst(odd)
    return Check.of("gain scale", about, [f"the gains of {name} have {off}; fetch or convert the file again"])


def _and_more(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
