"""Residual wirings: how attention and MLP are joined to the stream. Each is a short forward that reads as its equation."""

from dataclasses import dataclass

from torch import Tensor, nn

from model.attention import Attention
from model.errors import BlockscopeError
from model.mlp import SwiGLU
from model.norms import NormConfig
from model.place import Place
from model.taps import Tap

STREAM = "batch pos d_model"


class PreNorm(nn.Module):
    """h = x + attn(ln1(x)); y = h + mlp(ln2(h)), with x, h, y [batch, pos, d_model].

    The wiring of GPT-2 and Llama; Xiong et al. 2020, arXiv 2002.04745.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        ln1: NormConfig
        attn: Attention.Config
        ln2: NormConfig
        mlp: SwiGLU.Config

        def __post_init__(self):
            widths = {"ln1": self.ln1.d, "attn": self.attn.d_model, "ln2": self.ln2.d, "mlp": self.mlp.d_model}
            if len(set(widths.values())) > 1:
                raise BlockscopeError(f"the parts of a block must have one width, got {widths}")

        @property
        def d_model(self) -> int:
            return self.attn.d_model

        def build(self) -> "PreNorm":
            return PreNorm(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_resid_pre = Tap(STREAM, "signed", "the residual stream entering the block")
        self.ln1 = config.ln1.build()
        self.attn = config.attn.build()
        self.hook_attn_out = Tap(STREAM, "signed", "what attention adds to the residual stream")
        self.hook_resid_mid = Tap(STREAM, "signed", "the residual stream after attention was added")
        self.ln2 = config.ln2.build()
        self.mlp = config.mlp.build()
        self.hook_mlp_out = Tap(STREAM, "signed", "what the MLP adds to the residual stream")
        self.hook_resid_post = Tap(STREAM, "signed", "the residual stream leaving the block")

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        x = self.hook_resid_pre(x)
        h = self.hook_resid_mid(x + self.hook_attn_out(self.attn(self.ln1(x), place)))
        return self.hook_resid_post(h + self.hook_mlp_out(self.mlp(self.ln2(h))))


WIRINGS = {"pre": PreNorm}
