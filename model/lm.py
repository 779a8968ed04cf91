"""A decoder-only language model: embed -> blocks -> final norm -> unembed."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.block import STREAM, PreNorm
from model.errors import BlockscopeError
from model.norms import NormConfig
from model.place import KVCache, Place
from model.taps import Tap


class Decoder(nn.Module):
    """tokens [batch, pos] -> logits [batch, pos, d_vocab]."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """`tied`: the unembedding is the embedding's own matrix. `context`: positions the model was made for."""

        d_vocab: int
        d_model: int
        blocks: tuple[PreNorm.Config, ...]
        ln_final: NormConfig
        tied: bool
        context: int

        def __post_init__(self):
            if not self.blocks:
                raise BlockscopeError("a model needs at least one block, got none")
            if self.d_vocab < 1 or self.context < 1:
                raise BlockscopeError(f"d_vocab and context must be at least 1, got {self.d_vocab} and {self.context}")
            for name, d in (("ln_final", self.ln_final.d), *((f"blocks.{i}", b.d_model) for i, b in enumerate(self.blocks))):
                if d != self.d_model:
                    raise BlockscopeError(f"{name} has width {d} but d_model is {self.d_model}")

        @property
        def n_layers(self) -> int:
            return len(self.blocks)

        def build(self) -> "Decoder":
            return Decoder(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        # drawn by the factory: normal_() on the meta device would first import torch's compiler, which takes seconds
        self.embed = nn.Embedding(config.d_vocab, config.d_model, _weight=torch.randn(config.d_vocab, config.d_model))
        self.hook_embed = Tap(STREAM, "signed", "token embeddings: the residual stream before block 0")
        self.blocks = nn.ModuleList(block.build() for block in config.blocks)
        self.ln_final = config.ln_final.build()
        self.unembed = nn.Linear(config.d_model, config.d_vocab, bias=False)
        self.logits = Tap("batch pos d_vocab", "signed", "next-token logits")
        if config.tied:
            self.unembed.weight = self.embed.weight

    def start(self, tokens: Tensor) -> Tensor:
        """tokens [batch, pos] -> the residual stream entering block 0 [batch, pos, d_model]."""
        return self.hook_embed(self.embed(tokens))

    def finish(self, x: Tensor) -> Tensor:
        """The residual stream leaving the last block [batch, pos, d_model] -> logits [batch, pos, d_vocab]."""
        return self.logits(self.unembed(self.ln_final(x)))

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """With a cache, `tokens` continue the text that it holds; the cache then holds them too."""
        place = Place.of(tokens, cache)
        x = self.start(tokens)
        for block in self.blocks:
            x = block(x, place)
        if cache is not None:
            cache.length = place.length
        return self.finish(x)
