"""What a tap or a slot is called on the diagram, and where it stands: by its name, which means the same in every architecture.

Lanes are twelfths of the width: q, k and v run side by side, a gate beside its up. A name that is not in PARTS is drawn all
the same, over the full width and under its own name.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from torch import nn

from model.mlp import SYMBOLS

Lanes = tuple[int, int]  # the first lane, past the last
LANES = 12
ALL, LEFT, MIDDLE, RIGHT, QK, HALF, OTHER_HALF = (0, 12), (0, 4), (4, 8), (8, 12), (0, 8), (0, 6), (6, 12)


@dataclass(frozen=True)
class Part:
    """A node's id, its label, its lanes, what kind of node it is, whether its numbers count, whose row it shares."""

    id: str
    label: str
    lanes: Lanes = ALL
    kind: str = "attention"
    shown: bool = True
    beside: str = ""


@dataclass(frozen=True)
class Around:
    """The tap or slot itself, its parent module, the parent's own names, and every tap of the block by its path."""

    module: nn.Module
    parent: nn.Module
    siblings: Collection[str]
    taps: Collection[str]

    @property
    def experts(self) -> bool:
        return "mlp.hook_router_logits" in self.taps

    @property
    def shared(self) -> bool:
        """Whether the experts stand beside one that every token passes."""
        return any(path.startswith("mlp.shared.") for path in self.taps)

    @property
    def activation(self) -> str:
        """Its usual name; "" for none."""
        name = self.parent.config.activation
        return "" if name == "identity" else SYMBOLS[name].partition(" ")[0]


FOLLOWS = Part("", "")  # belongs to the node that it reads: a cache keeps what another node made


def _qk_norm(around: Around) -> Part:
    """A norm of q and k; in latent attention the same name is a norm of the query's latent."""
    if hasattr(around.module, "hook_out") and "d_latent" in around.module.hook_out.dims:
        return Part("attn.q_norm", "", LEFT, "norm")
    return Part("qk_norm", "QK-norm", QK, "norm")


def _softmax(around: Around) -> Part:
    return Part("pattern", "softmax", LEFT if "hook_sink" in around.siblings else QK)


def _attn_out(around: Around) -> Part:
    normed = "attn.hook_module_out" in around.taps
    return Part("attn_out", "attention → add" if normed else "W_o → add", kind="residual")


def _mlp_projection(around: Around) -> Part:
    label = "W_down" if not around.experts else "Σ experts + shared" if around.shared else "Σ experts"
    return Part("mlp_module_out", label, kind="residual")


def _mlp_out(around: Around) -> Part:
    label = "MLP" if "mlp.hook_module_out" in around.taps else _mlp_projection(around).label
    return Part("mlp_out", f"{label} → add", kind="residual")


def _places(around: Around) -> tuple[Lanes, Lanes, Lanes]:
    """Gate, up and both together; a shared expert leaves the left third to the router."""
    return (MIDDLE, RIGHT, (4, 12)) if around.shared else (HALF, OTHER_HALF, ALL)


def _pre(around: Around) -> Part:
    gate, _, both = _places(around)
    gated = "hook_act" in around.siblings
    return Part("gate", "gate", gate, "mlp") if gated else Part("gate", "W_up x", both, "mlp")


def _act(around: Around) -> Part:
    name = around.activation
    return Part("act", f"{name}(gate)" if name else "no activation", _places(around)[0], "mlp")


def _up(around: Around) -> Part:
    return Part("up", "up", _places(around)[1], "mlp")


def _post(around: Around) -> Part:
    name, gated = around.activation, "hook_act" in around.siblings
    label = (f"{name}(gate) × up" if name else "gate × up") if gated else name or "no activation"
    return Part("post", label, _places(around)[2], "mlp")


def _router(around: Around) -> Part:
    return Part("router", "router", LEFT if around.shared else (0, 6), "mlp")


def _chosen(around: Around) -> Part:
    topk = around.parent.config.routing.topk
    return replace(_router(around), id="chosen", label=f"best {topk}" if topk > 1 else "best one")


def _experts(around: Around) -> Part:
    return Part("experts", "experts", LEFT if around.shared else ALL, "mlp")


PARTS: dict[str, Part | Callable[[Around], Part]] = {  # by the last word of a path, or its last two
    "hook_resid_pre": Part("resid_pre", "resid_pre", kind="residual"),
    "hook_resid_mid": Part("resid_mid", "resid_mid", kind="residual"),
    "hook_resid_post": Part("resid_post", "resid_post", kind="residual"),
    "hook_attn_out": _attn_out,
    "hook_mlp_out": _mlp_out,
    "attn.hook_module_out": Part("attn_module_out", "W_o", kind="residual"),
    "mlp.hook_module_out": _mlp_projection,
    # projections, what happens to q and k, and latent attention
    "hook_q": Part("q", "q", LEFT),
    "hook_k": Part("k", "k", MIDDLE),
    "hook_v": Part("v", "v", RIGHT),
    "q_norm": _qk_norm,
    "k_norm": _qk_norm,
    "hook_angle": Part("rope", "RoPE", QK, "rope", shown=False),
    "hook_rot_q": Part("rope", "RoPE", QK, "rope"),
    "hook_rot_k": Part("rope", "RoPE", QK, "rope"),
    "hook_rot_k_rope": Part("rope", "RoPE", QK, "rope"),
    "temperature": Part("temperature", "× temp.", LEFT),
    "hook_cache_k": FOLLOWS,
    "hook_cache_v": FOLLOWS,
    "hook_cache_latent": FOLLOWS,
    "hook_cache_k_rope": FOLLOWS,
    "hook_q_latent": Part("q_latent", "q latent", LEFT),
    "hook_kv_latent": Part("kv_latent", "kv latent", RIGHT),
    "hook_k_rope": Part("k_rope", "rotary k", MIDDLE),
    "kv_norm": Part("attn.kv_norm", "", RIGHT, "norm"),
    "hook_keys": Part("keys", "keys", MIDDLE),
    "hook_values": Part("values", "values", RIGHT, beside="keys"),
    # scores
    "hook_logits": Part("logits", "q · k, scaled", QK),
    "hook_capped": Part("capped", "soft-cap", QK),
    "hook_attn_scores": lambda around: replace(_softmax(around), shown=False),
    "hook_pattern": _softmax,
    "hook_sink": Part("sink", "sink", MIDDLE, beside="pattern"),
    "hook_z": Part("z", "pattern · v"),
    # the MLP, and experts
    "hook_pre": _pre,
    "hook_act": _act,
    "hook_pre_linear": _up,
    "hook_post": _post,
    "hook_router_logits": _router,
    "hook_expert_weights": _chosen,
    "hook_expert_indices": lambda around: replace(_chosen(around), shown=False),
    "experts.hook_post": _experts,
}


def part_of(path: str, around: Around) -> Part | None:
    """The part of a tap or slot at `path`; None for one that nothing is known of."""
    words = path.split(".")
    rule = PARTS.get(".".join(words[-2:])) or PARTS.get(words[-1])
    return rule(around) if callable(rule) else rule
