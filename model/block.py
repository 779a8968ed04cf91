"""Residual wirings: how attention and MLP are joined to the stream. Each is a short forward that reads as its equation."""

from dataclasses import dataclass

from torch import Tensor, nn

from model.attention import Attention
from model.errors import BlockscopeError
from model.mla import MLA
from model.mlp import MLPConfig
from model.moe import MoE
from model.norms import NormConfig
from model.place import Place
from model.taps import Absent, Tap

STREAM = "batch pos d_model"


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """The two sublayers; each wiring adds its norms."""

    attn: Attention.Config | MLA.Config
    mlp: MLPConfig | MoE.Config

    def __post_init__(self):
        widths = {"attn": self.attn.d_model, "mlp": self.mlp.d_model}
        widths |= {name: norm.d for name, norm in vars(self).items() if isinstance(norm, NormConfig)}
        if len(set(widths.values())) > 1:
            raise BlockscopeError(f"the parts of a block must have one width, got {widths}")

    @property
    def d_model(self) -> int:
        return self.attn.d_model


class Block(nn.Module):
    """Base: what every wiring taps. x [batch, pos, d_model] -> [batch, pos, d_model]."""

    def add_attention(self, config: BlockConfig, out_norm: NormConfig | None = None) -> None:
        self.attn = config.attn.build()
        if out_norm is not None:
            self.attn.hook_module_out = Tap(STREAM, "signed", "what attention gives, before the norm on its output")
            self.ln1_post = out_norm.build()
        self.hook_attn_out = Tap(STREAM, "signed", "what attention adds to the residual stream")

    def add_mlp(self, config: BlockConfig, out_norm: NormConfig | None = None) -> None:
        self.mlp = config.mlp.build()
        if out_norm is not None:
            self.mlp.hook_module_out = Tap(STREAM, "signed", "what the MLP gives, before the norm on its output")
            self.ln2_post = out_norm.build()
        self.hook_mlp_out = Tap(STREAM, "signed", "what the MLP adds to the residual stream")

    def resid(self, name: str) -> Tap:
        return Tap(STREAM, "signed", f"the residual stream {name}")


class PreNorm(Block):
    """h = x + attn(ln1(x)); y = h + mlp(ln2(h)): GPT-2, Llama (Xiong et al. 2020, arXiv 2002.04745)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        ln1: NormConfig
        ln2: NormConfig

        def build(self) -> "PreNorm":
            return PreNorm(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_resid_pre = self.resid("entering the block")
        self.ln1 = config.ln1.build()
        self.add_attention(config)
        self.hook_resid_mid = self.resid("after attention was added")
        self.ln2 = config.ln2.build()
        self.add_mlp(config)
        self.hook_resid_post = self.resid("leaving the block")

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        x = self.hook_resid_pre(x)
        h = self.hook_resid_mid(x + self.hook_attn_out(self.attn(self.ln1(x), place)))
        return self.hook_resid_post(h + self.hook_mlp_out(self.mlp(self.ln2(h))))


class PostNorm(Block):
    """h = ln1(x + attn(x)); y = ln2(h + mlp(h)): the Transformer of 2017 (arXiv 1706.03762)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        ln1: NormConfig
        ln2: NormConfig

        def build(self) -> "PostNorm":
            return PostNorm(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_resid_pre = self.resid("entering the block")
        self.add_attention(config)
        self.ln1 = config.ln1.build()
        self.hook_resid_mid = self.resid("after attention was added and the sum normalised")
        self.add_mlp(config)
        self.ln2 = config.ln2.build()
        self.hook_resid_post = self.resid("leaving the block: the normalised sum")

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        x = self.hook_resid_pre(x)
        h = self.hook_resid_mid(self.ln1(x + self.hook_attn_out(self.attn(x, place))))
        return self.hook_resid_post(self.ln2(h + self.hook_mlp_out(self.mlp(h))))


class OutputNorm(Block):
    """h = x + ln1_post(attn(x)); y = h + ln2_post(mlp(h)): OLMo 2 (arXiv 2501.00656)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        ln1_post: NormConfig
        ln2_post: NormConfig

        def build(self) -> "OutputNorm":
            return OutputNorm(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_resid_pre = self.resid("entering the block")
        self.add_attention(config, config.ln1_post)
        self.hook_resid_mid = self.resid("after attention was added")
        self.add_mlp(config, config.ln2_post)
        self.hook_resid_post = self.resid("leaving the block")

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        x = self.hook_resid_pre(x)
        h = self.hook_resid_mid(x + self.hook_attn_out(self.ln1_post(self.attn(x, place))))
        return self.hook_resid_post(h + self.hook_mlp_out(self.ln2_post(self.mlp(h))))


class Sandwich(Block):
    """h = x + ln1_post(attn(ln1(x))); y = h + ln2_post(mlp(ln2(h))): Gemma 2 and 3 (arXiv 2408.00118)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        ln1: NormConfig
        ln1_post: NormConfig
        ln2: NormConfig
        ln2_post: NormConfig

        def build(self) -> "Sandwich":
            return Sandwich(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_resid_pre = self.resid("entering the block")
        self.ln1 = config.ln1.build()
        self.add_attention(config, config.ln1_post)
        self.hook_resid_mid = self.resid("after attention was added")
        self.ln2 = config.ln2.build()
        self.add_mlp(config, config.ln2_post)
        self.hook_resid_post = self.resid("leaving the block")

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        x = self.hook_resid_pre(x)
        h = self.hook_resid_mid(x + self.hook_attn_out(self.ln1_post(self.attn(self.ln1(x), place))))
        return self.hook_resid_post(h + self.hook_mlp_out(self.ln2_post(self.mlp(self.ln2(h)))))


class Parallel(Block):
    """y = x + attn(ln1(x)) + mlp(ln1(x)): GPT-J, PaLM (arXiv 2204.02311). One norm, and no stream between the two."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        ln1: NormConfig

        def build(self) -> "Parallel":
            return Parallel(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_resid_pre = self.resid("entering the block")
        self.ln1 = config.ln1.build()
        self.add_attention(config)
        self.add_mlp(config)
        self.hook_resid_post = self.resid("leaving the block")
        self.hook_resid_mid = Absent("attention and MLP are parallel here: there is no stream between them")

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        x = self.hook_resid_pre(x)
        read = self.ln1(x)
        return self.hook_resid_post(x + self.hook_attn_out(self.attn(read, place)) + self.hook_mlp_out(self.mlp(read)))


WIRINGS = {"pre": PreNorm, "post": PostNorm, "output": OutputNorm, "sandwich": Sandwich, "parallel": Parallel}
