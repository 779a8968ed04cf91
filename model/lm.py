"""A decoder-only language model: embed -> blocks -> final norm -> unembed."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.block import STREAM, BlockConfig
from model.embedding import LearnedPositions, NoPositions, ScaledEmbedding, Sinusoidal
from model.errors import BlockscopeError
from model.norms import NormConfig
from model.place import KVCache, Place
from model.softmax import SoftCap
from model.taps import Absent, Tap


class Decoder(nn.Module):
    """tokens [batch, pos] -> logits [batch, pos, d_vocab]."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """`tied`: the unembedding is the embedding's own matrix. `context`: positions the model was made for.

        `embed_scale` multiplies the embeddings; `positions` are added to them; `ln_final` None: no final norm.
        """

        d_vocab: int
        d_model: int
        blocks: tuple[BlockConfig, ...]
        ln_final: NormConfig | None
        tied: bool
        context: int
        embed_scale: float | None = None
        positions: LearnedPositions.Config | Sinusoidal.Config | None = None
        unembed_bias: bool = False
        softcap: float | None = None

        def __post_init__(self):
            if not self.blocks:
                raise BlockscopeError("a model needs at least one block, got none")
            if self.d_vocab < 1 or self.context < 1:
                raise BlockscopeError(f"d_vocab and context must be at least 1, got {self.d_vocab} and {self.context}")
            widths = {f"blocks.{i}": block.d_model for i, block in enumerate(self.blocks)}
            widths |= {"ln_final": self.ln_final.d} if self.ln_final else {}
            widths |= {"positions": self.positions.d_model} if self.positions else {}
            if wrong := {name: d for name, d in widths.items() if d != self.d_model}:
                name, d = next(iter(wrong.items()))
                raise BlockscopeError(f"{name} has width {d} but d_model is {self.d_model}")

        @property
        def n_layers(self) -> int:
            return len(self.blocks)

        def build(self) -> "Decoder":
            return Decoder(self)

        def build_empty(self) -> "Decoder":
            """The modules alone, on the meta device: shapes, but no memory for weights."""
            with torch.device("meta"):
                return self.build()

    def __init__(self, config: Config):
        super().__init__()
        self.config, c = config, config
        plain = c.embed_scale is None
        rows = torch.randn(c.d_vocab, c.d_model)  # given, since nn.Embedding's own normal_ imports torch's compiler on meta
        self.embed = nn.Embedding(c.d_vocab, c.d_model, _weight=rows) if plain else ScaledEmbedding(rows, c.embed_scale)
        scaled = "" if plain else f", times {c.embed_scale:.6g}"
        self.hook_embed = Tap(STREAM, "signed", f"token embeddings{scaled}: the residual stream before positions and block 0")
        self.positions = c.positions.build() if c.positions else NoPositions()
        self.blocks = nn.ModuleList(block.build() for block in c.blocks)
        self.ln_final = c.ln_final.build() if c.ln_final else nn.Identity()
        self.unembed = nn.Linear(c.d_model, c.d_vocab, bias=c.unembed_bias)
        raw, no_cap = "next-token logits before the soft-cap", "the output logits of this model have no soft-cap"
        self.hook_logits_raw = Tap("batch pos d_vocab", "signed", raw) if c.softcap else Absent(no_cap)
        self.softcap = SoftCap(c.softcap) if c.softcap is not None else nn.Identity()
        self.logits = Tap("batch pos d_vocab", "signed", "next-token logits")
        if c.tied:
            self.unembed.weight = self.embed.weight

    def start(self, tokens: Tensor, place: Place) -> Tensor:
        """tokens [batch, pos] -> the residual stream entering block 0 [batch, pos, d_model]."""
        return self.positions(self.hook_embed(self.embed(tokens)), place)

    def finish(self, x: Tensor) -> Tensor:
        """The residual stream leaving the last block [batch, pos, d_model] -> logits [batch, pos, d_vocab]."""
        return self.logits(self.softcap(self.hook_logits_raw(self.unembed(self.ln_final(x)))))

    def forward(self, tokens: Tensor, cache: KVCache | None = None, documents: Tensor | None = None) -> Tensor:
        """With a cache, `tokens` continue the text that it holds; the cache then holds them too.

        `documents` [pos of the whole text]: ids of packed texts that must not see each other.
        """
        place = Place.of(tokens, cache, documents)
        x = self.start(tokens, place)
        for block in self.blocks:
            x = block(x, place)
        if cache is not None:
            cache.length = place.length
        return self.finish(x)
