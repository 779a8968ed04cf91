"""RoPE base and eps against those of every published model of the same family: a fault that no shape gives away.

The table is that of the presets, whose sources stand above their lines: a family is what shares the size of the vocabulary, the
wiring, and the kinds of norm, attention and MLP.
"""

import math

from model.checkpoints.fields import listed
from model.doctor.finding import WARNING, Finding
from model.lm import Decoder
from model.presets import PRESETS
from model.presets.sources import sources


def judge(config: Decoder.Config) -> list[Finding]:
    peers = {name: preset for name, preset in PRESETS.items() if not name.startswith("tiny-") and kin(preset) == kin(config)}
    if not peers:
        return []
    names = listed(peers, 4)
    source = sources()[next(iter(peers))]
    findings = []
    for what, read in (("eps", epsilons), ("the RoPE base", bases)):
        known = set().union(*map(read, peers.values()))
        for odd in sorted(x for x in read(config) if not any(math.isclose(x, y, rel_tol=1e-4) for y in known)):
            usual = " or ".join(f"{x:g}" for x in sorted(known))
            findings.append(Finding(
                WARNING, "published",
                f"{what} is {odd:g} here and {usual} in every published model of this family ({names}; {source}); right only "
                "if these weights were trained so",
            ))  # fmt: skip
    return findings


def kin(config: Decoder.Config) -> tuple:
    """What the models of one family have in common, and hardly two families."""
    block = config.blocks[0]
    parts = [type(block).__qualname__, *(f"{name}:{type(part).__qualname__}" for name, part in sorted(vars(block).items()))]
    normed = vars(block.attn).get("q_norm") is not None
    biased = vars(block.attn).get("qkv_bias", False)
    return config.d_vocab, tuple(parts), normed, biased


def epsilons(config: Decoder.Config) -> set[float]:
    """eps of the norms on the stream."""
    return {part.eps for block in set(config.blocks) for part in vars(block).values() if hasattr(part, "eps")}


def bases(config: Decoder.Config) -> set[float]:
    return {block.attn.rope.base for block in set(config.blocks) if block.attn.rope is not None}
