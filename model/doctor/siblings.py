"""Matrices on another scale than the same ones of the layers around them: a scale forgotten, applied twice, or upside down."""

from model.checkpoints.checkpoint import Checkpoint
from model.doctor.finding import Check
from model.doctor.layers import FEWEST, layer_of, odd_ones, worst
from model.doctor.values import Values

INNER, OUTER = 6.0, 15.0  # trained models: at most 1.5 inside and 2.7 at the ends (SmolLM2 135M, Gemma 3 270M)


def judge(checkpoint: Checkpoint, found: dict[str, Values]) -> Check:
    layers = len(checkpoint.config.blocks)
    if layers < FEWEST:
        return Check.skipped("scale", f"a model of {layers} layer{'s' if layers > 1 else ''} has no layers to compare")
    sizes = {name: v.rms for name, v in found.items() if v.rows and v.finite and layer_of(name)}
    odd = odd_ones(sizes, INNER, OUTER)
    about = f"root mean square of {len(sizes):,} matrices against the same ones of the layers around"
    if not odd:
        return Check.of("scale", about)
    name, off = worst(odd)
    return Check.of("scale", about, [f"{name} has {off}; a scale was lost or applied twice: convert the model again"])
