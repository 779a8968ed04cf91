"""DeepSeek-V2 and V3: latent attention, dense layers first, then fine-grained experts beside shared ones.

Queries may be projected directly (q_lora_rank null: V2-Lite) or through a latent. The norms of the latents have an eps of
their own, 1e-6, whatever rms_norm_eps says.
"""

from dataclasses import replace

from model.block import PreNorm
from model.checkpoints.families.common import Family, full_attention_only, norm_eps, size
from model.checkpoints.families.sparse import experts, matrices, topk
from model.checkpoints.fields import Fields
from model.checkpoints.recipes import Either, table
from model.checkpoints.rope import read_rope
from model.lm import Decoder
from model.mla import MLA
from model.mlp import SwiGLU
from model.moe import MoE
from model.norms import RMSNorm
from model.positions import Yarn
from model.routing import BiasedGroupTopK, GroupMaxTopK, Routing, SoftmaxTopK

LATENT_EPS = 1e-6


def deepseek_v2(fields: Fields) -> Decoder.Config:
    """Softmax over all experts; the choice may be limited to the groups of the best experts."""
    n = experts(fields, "n_routed_experts", absent=64)
    k, scale = topk(fields, n, None), fields.number("routed_scaling_factor", 1.0, "no factor")
    fields.only("scoring_func", ("softmax",), "deepseek_v2 scores experts with a softmax")
    fields.only("rope_interleave", (True,), "deepseek_v2 turns adjacent coordinates")
    fields.only("norm_topk_prob", (False,), "the weights of deepseek_v2's experts are not renormalised")
    fields.only("topk_method", ("greedy", "group_limited_greedy"), "these are the ways in which deepseek_v2 chooses experts")
    if fields.raw("topk_method") == "group_limited_greedy":
        groups, kept = _groups(fields, n, k, None, None)
        routing: Routing = GroupMaxTopK(topk=k, scale=scale, groups=groups, kept=kept)
    else:
        fields.asked |= {"n_group", "topk_group"}  # without the limit they have no effect
        routing = SoftmaxTopK(topk=k, scale=scale)
    return _decoder(fields, n, routing, shared=2, dense=0, bias=fields.flag("mlp_bias"), width=1407, context=2048)


def deepseek_v3(fields: Fields) -> Decoder.Config:
    """A sigmoid for each expert; the choice adds a learned bias and keeps the groups whose two best sum highest."""
    n = experts(fields, "n_routed_experts", "num_local_experts", absent=256)
    k, scale = topk(fields, n, 8), fields.number("routed_scaling_factor", 2.5, "what deepseek_v3 defaults to")
    fields.only("scoring_func", ("sigmoid",), "deepseek_v3 scores experts with a sigmoid")
    fields.only("topk_method", ("noaux_tc",), "deepseek_v3 chooses experts with a bias and no auxiliary loss")
    groups, kept = _groups(fields, n, k, 8, 4)
    if n // groups < 2:
        raise fields.fail(f"n_group is {groups} for {n} experts; groups are ranked by the sum of two, so each needs as many")
    normalise = fields.flag("norm_topk_prob", True)
    routing = BiasedGroupTopK(topk=k, scale=scale, groups=groups, kept=kept, normalise=normalise)
    fields.asked |= {"num_nextn_predict_layers", "num_mtp_layers"}  # layers after the last one, not part of the decoder
    interleaved = fields.flag("rope_interleave", True)
    return _decoder(fields, n, routing, shared=1, dense=3, width=2048, context=4096, interleaved=interleaved)


def _groups(fields: Fields, n_experts: int, chosen: int, groups: int | None, kept: int | None) -> tuple[int, int]:
    """(groups of experts, groups kept); given are what absent fields mean."""
    groups, kept = size(fields, "n_group", groups), size(fields, "topk_group", kept)
    if n_experts % groups:
        raise fields.fail(f"n_group is {groups}, which does not divide the {n_experts} experts")
    if kept > groups:
        raise fields.fail(f"topk_group is {kept} but n_group is {groups}")
    if chosen > (open_ := n_experts // groups * kept):
        raise fields.fail(f"num_experts_per_tok is {chosen} but topk_group {kept} of n_group {groups} leaves {open_} experts")
    return groups, kept


def _decoder(
    fields: Fields, n_experts: int, routing: Routing, *, shared: int, dense: int, width: int, context: int,
    bias: bool = False, interleaved: bool = True,
) -> Decoder.Config:  # fmt: skip
    """`shared`, `dense`, `width` and `context` are what absent fields mean."""
    d_model, layers = size(fields, "hidden_size"), size(fields, "num_hidden_layers")
    fields.only("hidden_act", ("silu", "swish"), "the gate of this model_type is SiLU")
    fields.only("moe_layer_freq", (1,), "every layer after the dense ones has experts")
    full_attention_only(fields, layers, "deepseek")
    context = size(fields, "max_position_embeddings", context)
    norm = RMSNorm.Config(d=d_model, eps=norm_eps(fields))
    attn = _attention(fields, d_model, context, interleaved)
    d_expert = size(fields, "moe_intermediate_size", width)
    if "n_shared_experts" in fields.values and fields.raw("n_shared_experts") is None:
        raise fields.fail("n_shared_experts is null; expected at least one: blocks of this model_type have a shared expert")
    d_shared = d_expert * size(fields, "n_shared_experts", shared)
    moe = MoE.Config(
        d_model=d_model, d_mlp=d_expert, n_experts=n_experts, routing=routing,
        shared=SwiGLU.Config(d_model=d_model, d_mlp=d_shared, bias=bias),
    )  # fmt: skip
    mlp = SwiGLU.Config(d_model=d_model, d_mlp=size(fields, "intermediate_size"), bias=bias)
    plain, sparse = (PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=m) for m in (mlp, moe))
    first = _first_dense(fields, dense, layers)
    return Decoder.Config(
        d_vocab=size(fields, "vocab_size"), d_model=d_model, blocks=(plain,) * first + (sparse,) * (layers - first),
        ln_final=norm, tied=fields.flag("tie_word_embeddings"), context=context,
    )  # fmt: skip


def _first_dense(fields: Fields, absent: int, layers: int) -> int:
    """How many of the first layers have an MLP; 0 is allowed, and more than there are means all."""
    if fields.raw("first_k_dense_replace") == 0 and type(fields.values["first_k_dense_replace"]) is int:
        return 0
    if fields.raw("first_k_dense_replace") is None and absent == 0:
        fields.default("first_k_dense_replace", 0, "what this model_type defaults to")
        return 0
    return min(fields.whole("first_k_dense_replace", 1 << 10, absent, "what this model_type defaults to"), layers)


def _attention(fields: Fields, d_model: int, context: int, interleaved: bool) -> MLA.Config:
    """YaRN with mscale_all_dim sharpens the logits as well as stretching the rotation."""
    heads = size(fields, "num_attention_heads")
    if (kv := fields.raw("num_key_value_heads")) is not None and kv != heads:
        raise fields.fail(f"num_key_value_heads is {kv} but num_attention_heads is {heads}; here they are as many")
    nope, rotary = size(fields, "qk_nope_head_dim", 128), size(fields, "qk_rope_head_dim", 64)
    if rotary % 2:
        raise fields.fail(f"qk_rope_head_dim is {rotary}; a rotary width must be even, because coordinates turn in pairs")
    if (whole := fields.raw("qk_head_dim")) is not None and whole != nope + rotary:
        raise fields.fail(f"qk_head_dim is {whole} but qk_nope_head_dim + qk_rope_head_dim is {nope + rotary}")
    fields.asked.add("head_dim")  # files give the rotary width here, or another, and nothing is sized by it
    rope = replace(read_rope(fields, rotary, context), pairing="interleaved" if interleaved else "half")
    sharper = rope.scaling.logit_factor if isinstance(rope.scaling, Yarn) else 1.0
    direct = "q_lora_rank" in fields.values and fields.raw("q_lora_rank") is None
    q_latent, kv_latent = None if direct else size(fields, "q_lora_rank", 1536), size(fields, "kv_lora_rank", 512)
    return MLA.Config(
        d_model=d_model,
        n_heads=heads,
        d_nope=nope,
        d_value=size(fields, "v_head_dim", 128),
        kv_latent=kv_latent,
        kv_norm=RMSNorm.Config(d=kv_latent, eps=LATENT_EPS),
        q_latent=q_latent,
        q_norm=q_latent and RMSNorm.Config(d=q_latent, eps=LATENT_EPS),
        rope=rope,
        scale=(nope + rotary) ** -0.5 * sharper,
        bias=fields.flag("attention_bias"),
    )


ATTN, MLP = "layers.{i}.self_attn", "layers.{i}.mlp"

NAMES = table(
    {
        "embed.weight": "embed_tokens.weight",
        "blocks.{i}.ln1.weight": "layers.{i}.input_layernorm.weight",
        "blocks.{i}.attn.q_down.{leaf}": f"{ATTN}.q_a_proj.{{leaf}}",
        "blocks.{i}.attn.q_norm.weight": f"{ATTN}.q_a_layernorm.weight",
        "blocks.{i}.attn.q_proj.weight": Either(f"{ATTN}.q_b_proj.weight", f"{ATTN}.q_proj.weight"),
        "blocks.{i}.attn.kv_down.{leaf}": f"{ATTN}.kv_a_proj_with_mqa.{{leaf}}",
        "blocks.{i}.attn.kv_norm.weight": f"{ATTN}.kv_a_layernorm.weight",
        "blocks.{i}.attn.kv_up.weight": f"{ATTN}.kv_b_proj.weight",
        "blocks.{i}.attn.o_proj.{leaf}": f"{ATTN}.o_proj.{{leaf}}",
        "blocks.{i}.ln2.weight": "layers.{i}.post_attention_layernorm.weight",
        "blocks.{i}.mlp.gate_proj.{leaf}": f"{MLP}.gate_proj.{{leaf}}",
        "blocks.{i}.mlp.up_proj.{leaf}": f"{MLP}.up_proj.{{leaf}}",
        "blocks.{i}.mlp.down_proj.{leaf}": f"{MLP}.down_proj.{{leaf}}",
        "blocks.{i}.mlp.router.weight": f"{MLP}.gate.weight",
        "blocks.{i}.mlp.correction": f"{MLP}.gate.e_score_correction_bias",
        "blocks.{i}.mlp.shared.gate_proj.{leaf}": f"{MLP}.shared_experts.gate_proj.{{leaf}}",
        "blocks.{i}.mlp.shared.up_proj.{leaf}": f"{MLP}.shared_experts.up_proj.{{leaf}}",
        "blocks.{i}.mlp.shared.down_proj.{leaf}": f"{MLP}.shared_experts.down_proj.{{leaf}}",
        "ln_final.weight": "norm.weight",
    }
    | matrices(f"{MLP}.experts", f"{MLP}.experts")
)
MORE_PREDICTIONS = (r"layers\.(?P<beyond>\d+)\..*",)  # each predicts one token further ahead

FAMILIES = {"deepseek_v2": Family(deepseek_v2, NAMES), "deepseek_v3": Family(deepseek_v3, NAMES, ignored=MORE_PREDICTIONS)}
