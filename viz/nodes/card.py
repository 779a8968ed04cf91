"""A card is one picture or table with its title and the line that says what it is; a scene is what cards are drawn from."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from model.view import Request, Stats, View
from viz.picture import Picture
from viz.theme import Theme

Rows = list[tuple[str, str]]
WHOLE = 1 << 20  # entries of one tensor that are read without pooling, to be counted or sorted here and never sent on


@dataclass(frozen=True)
class Card:
    """`role`: the one large picture ("main"), those under it ("more"), those beside it ("side"). Texts are plain, not HTML."""

    id: str
    title: str
    caption: str
    figure: Picture | None = None
    table: Rows | None = None
    height: int = 0  # px of the figure
    role: str = "more"


def card(
    id: str, title: str, caption: str, figure: Picture | None = None, table: Rows | None = None, role: str = "more"
) -> Card:
    """A card whose height is its figure's."""
    return Card(id, title, caption, figure, table, figure.height if figure is not None else 0, role)


@dataclass(frozen=True)
class Scene:
    """One model, one prompt, one selection. `lm` is the model shown, with the QK-norm that the state asks for, `built` the one
    that was opened. Whatever the state says, `layer`, `head` and `pos` exist."""

    lm: Any
    built: Any
    tokens: tuple[int, ...]
    state: Any
    theme: Theme

    @classmethod
    def of(cls, lm: Any, tokens: Sequence[int], state: Any, theme: Theme, built: Any | None = None) -> "Scene":
        shown = lm if state.qk in ("as-built", lm.qk_norm) else lm.variant(qk_norm=state.qk)
        tokens = tuple(int(t) for t in tokens)
        return cls(shown, built or lm, tokens, state, theme)

    @cached_property
    def pieces(self) -> list[str]:
        """One short display string a token."""
        return list(self.lm.pieces(list(self.tokens)))

    @property
    def layer(self) -> int:
        return min(max(self.state.layer, 0), self.lm.config.n_layers - 1)

    @property
    def block(self) -> Any:
        return self.lm.config.blocks[self.layer]

    @property
    def attn(self) -> Any:
        return self.block.attn

    @property
    def head(self) -> int:
        return min(max(self.state.head, 0), self.attn.n_heads - 1)

    @property
    def group(self) -> int:
        """Query heads that read one KV head."""
        return self.attn.n_heads // self.attn.n_kv_heads

    @property
    def kv_head(self) -> int:
        return self.head // self.group

    @property
    def pos(self) -> int:
        last = len(self.tokens) - 1
        return self.state.token if 0 <= self.state.token <= last else last

    @property
    def window(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The stretches of queries and keys that are looked at; key 0 is outside where it is hidden."""
        if self.state.window is None:
            return None
        queries, (low, high) = self.state.window
        return queries, (1 if self.state.hide_first and not low and high > 1 else low, high)

    @property
    def log(self) -> bool:
        return bool(self.state.log)

    @property
    def token(self) -> str:
        """The chosen token in words."""
        return f"token {self.pos} “{self.pieces[self.pos]}”"

    def tap(self, name: str, layer: int | None = None) -> str:
        return f"blocks.{self.layer if layer is None else layer}.{name}"

    def key(self, what: str) -> str:
        """Zoom is kept while the picture has the same axes."""
        return f"{what}:{self.lm.name}:{len(self.tokens)}"

    @cached_property
    def taps(self) -> dict[str, Any]:
        """Every tap of the model shown, by name."""
        return {tap.name: tap for tap in self.lm.taps()}

    @cached_property
    def block_taps(self) -> dict[str, Any]:
        """Those of the chosen block, by their path in it."""
        start = self.tap("")
        return {name.removeprefix(start): tap for name, tap in self.taps.items() if name.startswith(start)}

    def sizes(self, view: View) -> dict[str, int]:
        """axis -> its whole length in the model."""
        return dict(zip(self.taps[view.tap].dims, view.shape, strict=True))

    def ask(self, **requests: Request) -> dict[str, View]:
        """Every request of a node in one go, so that at most one block runs."""
        return dict(zip(requests, self.lm.views(list(self.tokens), list(requests.values())), strict=True))

    def caption(self, view: View, *more: str, how: str = "") -> str:
        """Tensor, meaning, dtype, the selected part's own shape, what was reduced, what is not a number, what a card adds."""
        sizes = self.sizes(view)
        shape = " × ".join(str(sizes[axis]) for axis in view.dims)
        what = f"{view.tap} ({self.taps[view.tap].meaning}), {short(view.dtype)}"
        return line(what, f"{shape}, {how or view.how}", *odd(view.stats, self.theme), *more)


def line(*parts: str) -> str:
    """The parts of a caption that say something, set apart."""
    return " · ".join(filter(None, parts))


def short(dtype: str) -> str:
    return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}.get(dtype, dtype)


def odd(stats: Stats, theme: Theme) -> list[str]:
    """What a picture cannot colour by value: counted, with the colour that stands for it."""
    found = [
        (stats.nan, "NaN", "magenta"),
        (stats.posinf, "+inf", "white" if theme.name == "dark" else "black"),
        (stats.neginf, "−inf", "yellow"),
    ]
    return [f"{n:,} {name} (drawn {colour})" for n, name, colour in found if n]


def odd_values(values: np.ndarray) -> list[str]:
    """The same for curves and bars, which leave a gap there."""
    found = [(np.isnan(values), "NaN"), (np.isposinf(values), "+inf"), (np.isneginf(values), "−inf")]
    return [f"{int(at.sum()):,} {name} (left out)" for at, name in found if at.any()]


def heads_word(scene: Scene, kv: int) -> str:
    """Which query heads read a KV head."""
    first, last = kv * scene.group, (kv + 1) * scene.group - 1
    return f"read by head {first}" if first == last else f"read by heads {first}–{last}"


Asking = Generator[dict[str, Request], dict[str, View], list[Card]]  # yields requests, is sent their views, returns cards
Node = Callable[[Scene, str], Asking]
