"""Growth that needs no training: one thing about a model varied, everything else held, and the logits measured.

Each of these is artificial, and its `label` says how. None of them is what happens to a model while it learns.
Every function is a generator: it yields Progress and returns a Sweep; closing it stops the work (`finish` runs it through).
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from model.block import Block, BlockConfig
from model.errors import BlockscopeError
from model.growth.sweeps import Row, Sweep, Walk, finish, passed, swept
from model.lm import Decoder
from model.place import Place
from model.presets.llama import llama
from model.run import LM
from model.taps import Editor, taps_of
from model.weights import seeded

__all__ = ["Row", "Sweep", "context_sweep", "depth_sweep", "finish", "scale_sweep", "width_sweep"]

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
CONTEXTS = (16, 32, 64, 128, 256, 512, 1024, 2048)
WIDTHS = (16, 32, 64, 128)
ARMS = {"QK-norm off": False, "QK-norm on": True}
PROJECTED = {"hook_q", "hook_k", "hook_keys"}  # queries and keys before QK-norm; a latent attention's as they are
RANDOM = "Random weights, nobody trained them, on random tokens"
ARTIFICIAL = "This is an artificial scaling, not training."
SMALL_STD = 0.02  # GPT-2's


def scale_sweep(lm: LM, tokens: Sequence[int] | Tensor, factors: Iterable[float] = FACTORS) -> Walk[Sweep]:
    """W_q and W_k of every layer (and their biases) times s, by scaling what they give; the weights stay as they are.

    Without QK-norm the logits of layer 0 grow as s^2 exactly; deeper layers see other inputs. With it they stay as they are,
    as far as s^2 mean(q^2) is large against the norm's eps.
    """
    ids, factors = lm.checked(tokens), [float(s) for s in factors]
    for s in factors:
        if not 0 < s < 1e6:
            raise BlockscopeError(f"a factor on W_q and W_k must lie between 0 and 1,000,000, got {s:g}")
    what = "random weights" if lm.random else "trained weights"
    label = f"{lm.name}: W_q and W_k of every layer times s, on {what} and the same text. {ARTIFICIAL}"
    taps = [tap for block in lm.net.blocks for name, tap in taps_of(block.attn).items() if name in PROJECTED]
    passes = [partial(passed, lm, ids, lm.name, s, editors=dict.fromkeys(taps, _times(s)), loss=True) for s in factors]
    return (yield from swept(label, "factor s on W_q and W_k", passes, lm.config.n_layers))


def _times(s: float) -> Editor:
    return lambda x, tile: x * s


@dataclass(frozen=True)
class Stack:
    """How the stack of a depth sweep is made."""

    normed: bool = True
    scaled: bool = False  # o_proj and down_proj further times 1/sqrt(2 layers)
    std: float | None = None  # None: 1/sqrt(fan_in)


STACKS = {
    "pre-norm": Stack(),
    "pre-norm, residual scaled by 1/√(2·layers)": Stack(scaled=True),
    f"pre-norm, init std {SMALL_STD:g}": Stack(std=SMALL_STD),
    "no norm": Stack(normed=False),
}


def depth_sweep(layers: int = 48, context: int = 64, seed: int = 0) -> Walk[Sweep]:
    """Stacks of `layers` random blocks of width 64, with and without pre-norm and QK-norm: one Row each, by layer."""
    _whole("layers", layers, 1, 256)
    label = f"{RANDOM}: {layers} blocks of width 64, 4 heads, one line per kind of stack, read along the layers."
    passes = []
    for kind, stack in STACKS.items():
        for arm, qk_norm in ARMS.items():
            config = llama(layers, 64, 4, 2, 176, 256, context, eps=1e-6, qk_norm=qk_norm)
            if not stack.normed:
                blocks = tuple(NoNorm.Config(attn=block.attn, mlp=block.mlp) for block in config.blocks)
                config = replace(config, blocks=blocks)
            passes.append(_random(config, context, f"{kind}, {arm}", layers, seed, stack))
    return (yield from swept(label, "layers", passes, layers))


def context_sweep(contexts: Iterable[int] = CONTEXTS, seed: int = 0) -> Walk[Sweep]:
    """Two random blocks of width 64 on longer and longer texts: the largest of more products is larger, no more than that."""
    contexts = list(contexts)
    for n in contexts:
        _whole("a context", n, 2, 8192)
    label = (
        f"{RANDOM}: two blocks of width 64, 4 heads. More pairs have a larger largest one; attention gets flatter, not sharper."
    )
    passes = [
        _random(llama(2, 64, 4, 2, 176, 256, n, eps=1e-6, qk_norm=qk_norm), n, arm, n, seed)
        for arm, qk_norm in ARMS.items()
        for n in contexts
    ]
    return (yield from swept(label, "tokens", passes, 2))


def width_sweep(widths: Iterable[int] = WIDTHS, context: int = 128, seed: int = 0) -> Walk[Sweep]:
    """Two random blocks of 4 heads, wider and wider: with QK-norm of gain 1 the bound is sqrt(d_head)."""
    widths = list(widths)
    for d_head in widths:
        _whole("a head width", d_head, 2, 512)
    label = f"{RANDOM}: two blocks of 4 heads, d_model = 4·d_head. With QK-norm of gain 1 no logit can pass √d_head."
    passes = [
        _random(llama(2, 4 * d, 4, 2, 8 * d, 256, context, eps=1e-6, qk_norm=qk_norm), context, arm, d, seed)
        for arm, qk_norm in ARMS.items()
        for d in widths
    ]
    return (yield from swept(label, "d_head", passes, 2))


def _random(
    config: Decoder.Config,
    context: int,
    series: str,
    x: float,
    seed: int,
    stack: Stack = Stack(),
) -> Callable[[], Generator[str, None, Row]]:
    """A pass over random tokens; the weights are drawn when it starts."""

    def start() -> Generator[str, None, Row]:
        tokens = torch.randint(256, (1, context), generator=torch.Generator().manual_seed(seed))
        row = yield from passed(random_net(config, seed, stack), tokens, series, x)
        return row

    return start


def random_net(config: Decoder.Config, seed: int, stack: Stack) -> Decoder:
    """Parameters drawn by name: two arms share every weight that both have."""
    net, residual = config.build().eval(), (2 * config.n_layers) ** -0.5 if stack.scaled else 1.0
    with torch.no_grad():
        for name, p in net.named_parameters():
            value = seeded(name, tuple(p.shape), seed, residual)
            if stack.std is not None and value.ndim > 1:
                value *= stack.std * (1.0 if name == "embed.weight" else p.shape[-1] ** 0.5)
            p.copy_(value)
    return net


class NoNorm(Block):
    """h = x + attn(x); y = h + mlp(h): what is left of a block without its norms. Nobody trains this."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        def build(self) -> "NoNorm":
            return NoNorm(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.add_attention(config)
        self.add_mlp(config)

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        h = x + self.hook_attn_out(self.attn(x, place))
        return h + self.hook_mlp_out(self.mlp(h))


def _whole(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BlockscopeError(f"{name} must be a whole number from {least} to {most:,}, got {value!r}")
