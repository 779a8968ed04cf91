"""DeepSeek-V2 and V3: latent attention, fine-grained experts beside shared ones, YaRN that also sharpens the logits."""

from model.block import PreNorm
from model.lm import Decoder
from model.mla import MLA
from model.mlp import SwiGLU
from model.moe import MoE
from model.norms import RMSNorm
from model.positions import Rope, Yarn
from model.routing import BiasedGroupTopK, GroupMaxTopK, Routing


def deepseek(
    layers: int, d: int, heads: int, mlp: int, vocab: int, context: int, *, dense: int, n_experts: int, d_expert: int,
    shared: int, routing: Routing, scaling: Yarn, q_latent: int = 1536, kv_latent: int = 512, d_nope: int = 128,
    d_rope: int = 64, d_value: int = 128,
) -> Decoder.Config:  # fmt: skip
    """The first `dense` layers have an MLP of width `mlp`, the others experts and `shared` ones of width `d_expert`."""
    norm, q_norm, kv_norm = (RMSNorm.Config(d=width, eps=1e-6) for width in (d, q_latent, kv_latent))
    attn = MLA.Config(
        d_model=d, n_heads=heads, d_nope=d_nope, d_value=d_value, kv_latent=kv_latent, kv_norm=kv_norm,
        q_latent=q_latent, q_norm=q_norm, scale=(d_nope + d_rope) ** -0.5 * scaling.logit_factor,
        rope=Rope.Config(d=d_rope, base=10_000.0, pairing="interleaved", scaling=scaling),
    )  # fmt: skip
    moe = MoE.Config(
        d_model=d, d_mlp=d_expert, n_experts=n_experts, routing=routing,
        shared=SwiGLU.Config(d_model=d, d_mlp=shared * d_expert),
    )  # fmt: skip
    first, later = (PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=m) for m in (SwiGLU.Config(d_model=d, d_mlp=mlp), moe))
    blocks = (first,) * dense + (later,) * (layers - dense)
    return Decoder.Config(d_vocab=vocab, d_model=d, blocks=blocks, ln_final=norm, tied=False, context=context)


LONG40 = Yarn(factor=40.0, original=4096, mscale=1.0, mscale_all_dim=1.0)
TINY = {"q_latent": 36, "kv_latent": 20, "d_nope": 16, "d_rope": 8, "d_value": 12}
TINY_YARN = Yarn(factor=40.0, original=64, mscale=1.0, mscale_all_dim=1.0)

DEEPSEEK: dict[str, Decoder.Config] = {
    # DeepSeek-AI 2024, arXiv 2405.04434, section 3.1.2; config.json of deepseek-ai/DeepSeek-V2
    "deepseek-v2": deepseek(
        60, 5120, 128, 12_288, 102_400, 163_840, dense=1, n_experts=160, d_expert=1536, shared=2, scaling=LONG40,
        routing=GroupMaxTopK(topk=6, groups=8, kept=3, scale=16.0),
    ),
    # DeepSeek-AI 2024, arXiv 2412.19437, section 4.2; config.json of deepseek-ai/DeepSeek-V3
    "deepseek-v3": deepseek(
        61, 7168, 128, 18_432, 129_280, 163_840, dense=3, n_experts=256, d_expert=2048, shared=1, scaling=LONG40,
        routing=BiasedGroupTopK(topk=8, groups=8, kept=4, scale=2.5),
    ),
    "tiny-deepseek-v2": deepseek(
        4, 96, 6, 264, 256, 512, dense=1, n_experts=12, d_expert=66, shared=2, scaling=TINY_YARN, **TINY,
        routing=GroupMaxTopK(topk=3, groups=4, kept=2, scale=16.0),
    ),
    "tiny-deepseek-v3": deepseek(
        4, 96, 6, 264, 256, 512, dense=1, n_experts=16, d_expert=66, shared=1, scaling=TINY_YARN, **TINY,
        routing=BiasedGroupTopK(topk=4, groups=4, kept=2, scale=2.5),
    ),
}  # fmt: skip
