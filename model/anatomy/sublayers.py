"""The equations of attention and MLP, each from its own Config."""

from model.anatomy.writing import Equation, first_sentence, norm_name, number, several
from model.attention import Attention, RotateThenNorm
from model.masks import Causal, Chunked, Mask, Sliding
from model.mla import MLA
from model.mlp import GLU, MLP, MLPConfig
from model.moe import MoE
from model.positions import Dynamic, Linear, Llama3, Rope, Yarn
from model.routing import BiasedGroupTopK, GroupMaxTopK, Routing, SigmoidTopK, SoftmaxTopK, TopKSoftmax

GLU_NAMES = {
    "silu": "SwiGLU", "gelu": "GEGLU", "gelu_tanh": "GEGLU", "relu": "ReGLU", "sigmoid": "GLU", "identity": "Bilinear",
}  # fmt: skip
ACTIVATION_NAMES = {"silu": "SiLU", "gelu": "GELU", "gelu_tanh": "GELU_{tanh}", "relu": "ReLU", "sigmoid": "σ", "identity": ""}
ROUTING_LINES: dict[type, str] = {  # how the weights w_e of the chosen experts follow from the router's logits r
    SoftmaxTopK: "softmax(r)_{e}, e among the {k} largest: they sum to less than 1",
    TopKSoftmax: "softmax over the {k} largest r: they sum to 1",
    SigmoidTopK: "σ(r_{e}), e among the {k} largest; it multiplies what the expert reads",
    GroupMaxTopK: "softmax(r)_{e}, the {k} largest of the best {kept} of {groups} groups",
    BiasedGroupTopK: "σ(r_{e}) / Σ σ(r), the {k} largest σ(r) + b of the best {kept} of {groups} groups",
}
MASK_LINES: dict[type, str] = {
    Causal: "j ≤ i",
    Sliding: "i − {window} < j ≤ i",
    Chunked: "j ≤ i, ⌊j / {chunk}⌋ = ⌊i / {chunk}⌋",
}
SCALING_LINES: dict[type, str] = {
    Linear: "θ / {factor}",
    Dynamic: "dynamic NTK: the base grows with the text beyond {original}",
    Llama3: "Llama 3: slow pairs / {factor}, fast ones kept (original {original})",
    Yarn: "YaRN: slow pairs / {factor}, fast ones kept (original {original})",
}


def heads_name(attn) -> str:
    """MHA, GQA, MQA or MLA."""
    if isinstance(attn, MLA.Config):
        return "MLA"
    return "MHA" if attn.n_kv_heads == attn.n_heads else "MQA" if attn.n_kv_heads == 1 else "GQA"


def mask_text(mask: Mask) -> str:
    return MASK_LINES.get(type(mask), type(mask).__name__).format(**{k: f"{v:,}" for k, v in vars(mask).items()})


def mask_name(mask: Mask) -> str:
    """ "" for a causal mask."""
    if isinstance(mask, Sliding):
        return f"window {mask.window:,}"
    if isinstance(mask, Chunked):
        return f"chunks of {mask.chunk:,}"
    return "" if isinstance(mask, Causal) else type(mask).__name__


def attention_name(attn) -> str:
    """Attn_{GQA, QK-norm, RoPE}: what distinguishes this attention, in the order in which it is applied."""
    normed = isinstance(attn, Attention.Config) and attn.q_norm is not None
    marks = [
        heads_name(attn),
        "QK-norm" if normed else "",
        "RoPE" if attn.rope is not None else "",
        mask_name(attn.mask),
        "soft-cap" if getattr(attn, "softcap", None) else "",
        "sink" if getattr(attn, "sink", False) else "",
    ]
    return f"Attn_{{{', '.join(filter(None, marks))}}}"


def scale_text(attn) -> str:
    usual = attn.d_head**-0.5
    if abs(attn.logit_scale - usual) < 1e-12:
        return f"q_{{i}} · k_{{j}} / √{attn.d_head}"
    return f"{number(attn.logit_scale)} · q_{{i}} · k_{{j}}"


def attention_equations(attn) -> list[Equation]:
    project = _latent_projections if isinstance(attn, MLA.Config) else _projections
    return [*project(attn), *_rotation(attn), *_scores(attn)]


def _projections(c: Attention.Config) -> list[Equation]:
    biased = " + b" if c.qkv_bias else ""
    group = "" if c.n_kv_heads == c.n_heads else f", query head h reads key head ⌊h / {c.n_heads // c.n_kv_heads}⌋"
    note = f"{c.n_heads} query and {several(c.n_kv_heads, 'key/value head')} of {c.d_head}{group}"
    lines = [Equation("q, k, v", f"W_{{q}} x{biased},  W_{{k}} x{biased},  W_{{v}} x{biased}", "attention", note)]
    turn = (lambda s: f"rot({s})") if c.rope else (lambda s: s)
    norm = (lambda s: f"{norm_name(c.q_norm)}({s})") if c.q_norm else (lambda s: s)
    if c.rope or c.q_norm:
        order = (lambda s: norm(turn(s))) if isinstance(c, RotateThenNorm.Config) else (lambda s: turn(norm(s)))
        over = "" if c.q_norm is None else "each head by itself" if c.qk_norm_over == "head" else "over all heads together"
        lines.append(Equation("q, k", f"{order('q')},  {order('k')}", "attention", over))
    if c.temperature:
        grow = f"q · (1 + {number(c.temperature.slope)} · ln(1 + ⌊(i + 1) / {c.temperature.every:,}⌋))"
        lines.append(Equation("q_{i}", grow, "attention", "sharper with distance from the start"))
    return lines


def _latent_projections(c: MLA.Config) -> list[Equation]:
    query = "W_{q} x" if c.q_latent is None else f"W_{{q}} {norm_name(c.q_norm)}(W_{{dq}} x)"
    note = "" if c.q_latent is None else f"; through a latent of {c.q_latent:,}"
    heads = f"{several(c.n_heads, 'head')} of {c.d_nope} plain + {c.rope.d} rotated coordinates{note}"
    kept = f"a latent of {c.kv_latent} and one rotary key of {c.rope.d} for all heads: all that is cached"
    each = f"per head {c.d_nope} for k and {c.d_value} for v"
    return [
        Equation("q", query, "attention", heads),
        Equation("c, k^{R}", "W_{dkv} x", "attention", kept),
        Equation("k, v", f"W_{{ukv}} {norm_name(c.kv_norm)}(c)", "attention", each),
        Equation("q, k", "[q^{C}, rot(q^{R})],  [k^{C}, rot(k^{R})]", "attention"),
    ]


def _rotation(c) -> list[Equation]:
    if c.rope is None:
        return []
    rope: Rope.Config = c.rope
    pairs = "half a head apart" if rope.pairing == "half" else "adjacent"
    note = f"p from 0 to {rope.d // 2 - 1}, i the position; pairs {pairs}"
    if isinstance(c, Attention.Config) and rope.d < c.d_head:
        note += f"; the other {c.d_head - rope.d} coordinates do not turn"
    if rope.scaling is not None:
        line = SCALING_LINES.get(type(rope.scaling), type(rope.scaling).__name__)
        values = {k: number(v) for k, v in vars(rope.scaling).items() if isinstance(v, int | float)}
        note += "; " + line.format(**values)
    return [Equation("rot(x)", f"each pair p turned by i · {number(rope.base)}^{{−2p/{rope.d}}}", "rotation", note)]


def _scores(c) -> list[Equation]:
    lines = [Equation("s_{ij}", scale_text(c), "attention", "logits")]
    if cap := getattr(c, "softcap", None):
        lines.append(Equation("s_{ij}", f"{number(cap)} · tanh(s_{{ij}} / {number(cap)})", "attention", "soft-cap"))
    seen = mask_text(c.mask)
    if getattr(c, "sink", False):
        right, note = "e^{s_{ij}} / (e^{sink_{h}} + Σ_{j} e^{s_{ij}})", "the sink takes its share of every row"
    else:
        right, note = "softmax_{j}(s_{ij})", "every row sums to 1"
    biased = " + b" if getattr(c, "o_bias", False) or getattr(c, "bias", False) else ""
    return [
        *lines,
        Equation("p_{ij}", f"{right},  {seen}", "attention", note),
        Equation("out_{i}", f"W_{{o}} concat_{{h}} Σ_{{j}} p_{{ij}} v_{{j}}{biased}", "attention"),
    ]


def mlp_name(mlp: MLPConfig | MoE.Config) -> str:
    if isinstance(mlp, MoE.Config):
        return f"MoE_{{{mlp.routing.topk} of {mlp.n_experts}}}"
    if isinstance(mlp, GLU.Config):
        return GLU_NAMES.get(mlp.activation, "GLU")
    return f"MLP_{{{ACTIVATION_NAMES.get(mlp.activation, mlp.activation).split('_')[0]}}}"


def mlp_equations(mlp: MLPConfig | MoE.Config) -> list[Equation]:
    return _moe(mlp) if isinstance(mlp, MoE.Config) else [_dense(mlp, "mlp")]


def _dense(mlp: MLPConfig, about: str) -> Equation:
    act = ACTIVATION_NAMES.get(mlp.activation, mlp.activation)
    bias = " + b" if mlp.bias else ""
    if isinstance(mlp, GLU.Config):
        gate = f"{act}(W_{{gate}} x{bias})" if act else f"(W_{{gate}} x{bias})"
        right = f"W_{{down}} ({gate} ⊙ (W_{{up}} x{bias})){bias}"
    elif isinstance(mlp, MLP.Config):
        right = f"W_{{down}} {act}(W_{{up}} x{bias}){bias}"
    else:
        right = first_sentence(mlp)
    size = f"{several(mlp.d_mlp, 'neuron')}, {mlp.d_mlp / mlp.d_model:.3g} of the width"
    return Equation(f"{mlp_name(mlp)}(x)", right, about, size)


def _moe(c: MoE.Config) -> list[Equation]:
    shared = f" + {mlp_name(c.shared)}(x)" if c.shared else ""
    chosen = f"Σ_{{e chosen}} w_{{e}} · E_{{e}}(x){shared}"
    if c.routing.scales_input:
        chosen = f"Σ_{{e chosen}} E_{{e}}(w_{{e}} x){shared}"
    weights = routing_text(c.routing)
    biases = " + b" if c.expert_bias else ""
    gate, up = f"W_{{gate}} x{biases}", f"W_{{up}} x{biases}"
    inside = f"SiLU({gate}) ⊙ ({up})" if biases else f"SiLU({gate}) ⊙ {up}"
    note, times = f"{several(c.d_mlp, 'neuron')} an expert", f"times {number(c.routing.scale)}" if c.routing.scale != 1 else ""
    if c.gate == "clamped-swiglu":
        inside, note = "g σ(1.702 g) ⊙ (u + 1)", f"{note}; g = min({gate}, 7), u = {up} cut to ±7"
    count = f"{several(c.n_experts, 'expert')}, {c.routing.topk} a token{', one shared' if c.shared else ''}"
    return [
        Equation(f"{mlp_name(c)}(x)", chosen, "mlp", count),
        Equation("r", f"W_{{r}} x{' + b' if c.router_bias else ''}", "router", "in fp32"),
        Equation("w_{e}", weights, "router", times),
        Equation("E_{e}(x)", f"W_{{down}} ({inside}){biases}", "mlp", note),
        *([_dense(c.shared, "mlp")] if c.shared else []),
    ]


def routing_text(routing: Routing) -> str:
    line = ROUTING_LINES.get(type(routing), type(routing).__name__)
    slots = {"k": str(routing.topk)} | {k: str(v) for k, v in vars(routing).items() if k in ("kept", "groups")}
    for name, value in slots.items():
        line = line.replace(f"{{{name}}}", value)
    return line
