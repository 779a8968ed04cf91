"""Equations between taps that must hold in a right block, with the residual that was measured."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from model.block import Parallel, PostNorm
from model.softmax import SinkSoftmax, Softmax
from model.taps import Collect, Recorder, Tap, Tile, Watcher, recording, taps_of

CHECKED = 2048  # tokens, the first ones, on which equations are measured: they keep whole tensors


@dataclass(frozen=True)
class Identity:
    """`residual` = max |left - right| / max |right| over the whole tensor; `exact` ones must be 0, bit for bit."""

    name: str
    formula: str
    residual: float
    holds: bool
    note: str


@dataclass(frozen=True)
class Equation:
    """`sides(taps, block)` gives left and right hand side from the taps it names (paths below the block)."""

    name: str
    formula: str
    taps: tuple[str, ...]
    sides: Callable[[list[Tensor], nn.Module], tuple[Tensor, Tensor]]
    exact: bool = False
    only: Callable[[nn.Module], bool] = lambda block: True  # which blocks it speaks of


def _rotation(taps: list[Tensor], block: nn.Module) -> tuple[Tensor, Tensor]:
    before, after = (torch.hypot(*block.attn.rope.pairs(block.attn.rotated(t).float())) for t in taps)
    return after, before * block.attn.rope.config.frequencies(taps[0].shape[1])[1]


def _unit_rms(name: str) -> Callable[[list[Tensor], nn.Module], tuple[Tensor, Tensor]]:
    def sides(taps: list[Tensor], block: nn.Module) -> tuple[Tensor, Tensor]:
        normalized, scale = (t.float() for t in taps)
        eps = getattr(block, name).config.eps
        return normalized.square().mean(-1, keepdim=True).sqrt(), (1 - eps / scale.square()).clamp_min(0).sqrt()

    return sides


UNIT_RMS = "rms(normalized) = √(1 − ε/scale²)"  # exactly 1 but for the eps under the root

EQUATIONS = (
    Equation("attention adds", "resid_mid = resid_pre + attn_out", ("hook_resid_mid", "hook_resid_pre", "hook_attn_out"),
             lambda t, b: (t[0], t[1] + t[2]), True, lambda b: not isinstance(b, PostNorm)),
    Equation("MLP adds", "resid_post = resid_mid + mlp_out", ("hook_resid_post", "hook_resid_mid", "hook_mlp_out"),
             lambda t, b: (t[0], t[1] + t[2]), True, lambda b: not isinstance(b, PostNorm)),
    Equation("attention adds", "resid_mid = ln1(resid_pre + attn_out)", ("hook_resid_mid", "hook_resid_pre", "hook_attn_out"),
             lambda t, b: (t[0], b.ln1(t[1] + t[2])), True, lambda b: isinstance(b, PostNorm)),
    Equation("MLP adds", "resid_post = ln2(resid_mid + mlp_out)", ("hook_resid_post", "hook_resid_mid", "hook_mlp_out"),
             lambda t, b: (t[0], b.ln2(t[1] + t[2])), True, lambda b: isinstance(b, PostNorm)),
    Equation("both add", "resid_post = resid_pre + attn_out + mlp_out",
             ("hook_resid_post", "hook_resid_pre", "hook_attn_out", "hook_mlp_out"),
             lambda t, b: (t[0], t[1] + t[2] + t[3]), True, lambda b: isinstance(b, Parallel)),
    Equation("gate times up", "post = act · pre_linear", ("mlp.hook_post", "mlp.hook_act", "mlp.hook_pre_linear"),
             lambda t, b: (t[0], t[1] * t[2]), exact=True),
    Equation("pattern sums to 1", "Σ_key pattern = 1", ("row sums",), lambda t, b: (t[0], torch.ones_like(t[0])),
             only=lambda b: isinstance(b.attn.softmax, Softmax)),
    Equation("pattern and sink sum to 1", "Σ_key pattern = 1 − sink", ("row sums", "attn.hook_sink"),
             lambda t, b: (t[0], 1 - t[1]), only=lambda b: isinstance(b.attn.softmax, SinkSoftmax)),
    Equation("rotation keeps lengths", "|rot(q)| = |q| per pair", ("q", "attn.hook_rot_q"), _rotation),
    Equation("ln1 has unit RMS", UNIT_RMS, ("ln1.hook_normalized", "ln1.hook_scale"), _unit_rms("ln1")),
    Equation("ln2 has unit RMS", UNIT_RMS, ("ln2.hook_normalized", "ln2.hook_scale"), _unit_rms("ln2")),
)  # fmt: skip


class Checking:
    """Watches one block while it runs for whatever reason: afterwards `results` measures every identity whose taps it has."""

    def __init__(self, block: nn.Module):
        have, self.block = taps_of(block), block
        self.aliases = {"q": f"attn.{block.attn.before_rotation}"}
        self.equations = [e for e in EQUATIONS if e.only(block)]
        self.total = 0
        wanted = {self.aliases.get(t, t) for e in self.equations for t in e.taps} & set(have)
        self.keep = {name: Collect(have[name], CHECKED) for name in wanted}
        self.sums: list[Tensor] = []  # row sums are taken tile by tile: the pattern itself may be too large to keep
        watchers = {have[name]: [collect] for name, collect in self.keep.items()}
        self.watchers: dict[Tap, list[Watcher]] = watchers | {have["attn.hook_pattern"]: [self._sum]}

    def _sum(self, pattern: Tensor, tile: Tile) -> None:
        self.total = tile.total
        if tile.rows.start < CHECKED:
            self.sums.append(pattern[..., : CHECKED - tile.rows.start, :].float().sum(-1))

    def results(self, dtype: torch.dtype) -> list[Identity]:
        found = {name: collect.value for name, collect in self.keep.items()} | {"row sums": torch.cat(self.sums, dim=-1)}
        results = []
        for equation in self.equations:
            names = [self.aliases.get(t, t) for t in equation.taps]
            if all(name in found for name in names):
                with torch.no_grad():
                    left, right = equation.sides([found[name] for name in names], self.block)
                results.append(_measure(equation, left, right, dtype))
        if self.total > CHECKED:
            results = [replace(one, note=f"{one.note}; the first {CHECKED:,} of {self.total:,} tokens") for one in results]
        return results


def check(block: nn.Module, x: Tensor, place=None) -> list[Identity]:
    """Run one block on x [batch, pos, d_model] and measure every identity whose taps it has."""
    checking = Checking(block)
    with torch.no_grad(), recording(Recorder(checking.watchers)):
        block(x, place)
    return checking.results(x.dtype)


def _measure(equation: Equation, left: Tensor, right: Tensor, dtype: torch.dtype) -> Identity:
    if not bool(torch.isfinite(left.sum() + right.sum())):
        return Identity(equation.name, equation.formula, float("nan"), False, "cannot be checked: not every value is finite")
    size = float(right.float().abs().max()) or 1.0
    residual = float((left.float() - right.float()).abs().max()) / size
    bound = 0.0 if equation.exact else 16 * torch.finfo(dtype).eps
    note = "bit for bit" if equation.exact else f"within {bound:.1e}"
    return Identity(equation.name, equation.formula, residual, residual <= bound, note)
