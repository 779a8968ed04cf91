"""Mixtral and Qwen 3 MoE: the Llama block with experts in place of its MLP, in all layers or in some."""

from model.checkpoints.families.common import Family, size, window
from model.checkpoints.families.llama import NAMES, decoder
from model.checkpoints.families.sparse import ALL_BUT_MLP, experts, layer_list, matrices, topk, with_mlps
from model.checkpoints.fields import Fields, shown
from model.checkpoints.recipes import Either, table
from model.lm import Decoder
from model.masks import Causal, Mask, Sliding
from model.moe import MoE
from model.routing import SoftmaxTopK, TopKSoftmax


def mixtral(fields: Fields) -> Decoder.Config:
    """Every layer has experts; the weights of the chosen ones sum to 1. A window, if any, is in every layer."""
    for name in ("attention_bias", "mlp_bias"):
        fields.only(name, (False,), "mixtral has no biases")
    n = experts(fields, "num_local_experts", "num_experts", absent=8)
    routing = TopKSoftmax(topk=topk(fields, n, 2))
    dense = decoder(
        fields,
        masks=_one_mask(fields, window(fields)),
        context=size(fields, "max_position_embeddings", 131_072),
        base=1e6,
        absent_eps=1e-5,
    )
    moe = MoE.Config(d_model=dense.d_model, d_mlp=size(fields, "intermediate_size"), n_experts=n, routing=routing)
    return with_mlps(dense, [moe] * dense.n_layers)


def qwen3_moe(fields: Fields) -> Decoder.Config:
    """QK-norm as in Qwen 3. Without norm_topk_prob the weights are those of a softmax over all experts and sum to less."""
    fields.only("mlp_bias", (False,), "qwen3_moe has no MLP biases")
    bias, slides = fields.flag("attention_bias"), fields.flag("use_sliding_window")
    fields.asked |= {"sliding_window", "max_window_layers"}
    if slides and fields.raw("max_window_layers") is not None:
        fields.note("max_window_layers is not read: the window of a qwen3_moe model is in every layer")
    n = experts(fields, "num_experts", "num_local_experts", absent=128)
    k = topk(fields, n, 8)
    routing = TopKSoftmax(topk=k) if fields.flag("norm_topk_prob") else SoftmaxTopK(topk=k)
    dense = decoder(
        fields,
        masks=_one_mask(fields, window(fields) if slides else None),
        context=size(fields, "max_position_embeddings", 32_768),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=True,
    )
    width = size(fields, "moe_intermediate_size", 768)
    moe = MoE.Config(d_model=dense.d_model, d_mlp=width, n_experts=n, routing=routing)
    plain = layer_list(fields, "mlp_only_layers", dense.n_layers) or []
    step = fields.whole("decoder_sparse_step", 1 << 10, 1, "every layer")
    sparse = [i not in plain and (i + 1) % step == 0 for i in range(dense.n_layers)]
    return with_mlps(dense, [moe if is_sparse else block.mlp for is_sparse, block in zip(sparse, dense.blocks, strict=True)])


def _one_mask(fields: Fields, width: int | None) -> tuple[Mask, ...]:
    """The same for every layer; layer_types may be there, if it says so too."""
    layers = size(fields, "num_hidden_layers")
    kind = "full_attention" if width is None else "sliding_attention"
    if (kinds := fields.raw("layer_types")) is not None and kinds != [kind] * layers:
        raise fields.fail(f"layer_types is {shown(kinds)}; in this model every layer is {kind!r}")
    return (Causal() if width is None else Sliding(window=width),) * layers


FUSED = "layers.{i}.mlp.experts"

MIXTRAL = table(
    ALL_BUT_MLP
    | {"blocks.{i}.mlp.router.weight": Either("layers.{i}.block_sparse_moe.gate.weight", "layers.{i}.mlp.gate.weight")}
    | matrices("layers.{i}.block_sparse_moe.experts", FUSED, gate="w1", up="w3", down="w2")
)
QWEN3_MOE = table(dict(NAMES) | {"blocks.{i}.mlp.router.weight": "layers.{i}.mlp.gate.weight"} | matrices(FUSED, FUSED))

FAMILIES = {"mixtral": Family(mixtral, MIXTRAL), "qwen3_moe": Family(qwen3_moe, QWEN3_MOE)}
