"""QK-norm in numpy, written out: the bound that its gains set on a logit, and one head's logits with and without it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from model.errors import BlockscopeError
from model.view import Request
from viz.nodes.card import WHOLE, Scene
from viz.theme import number

# the gain of each norm that divides by a root mean square and adds nothing, from its parameter; None: it has none
GAINS = {
    "RMSNorm": ("weight", lambda w: w),
    "FullPrecisionRMSNorm": ("weight", lambda w: w),
    "OffsetRMSNorm": ("offset", lambda w: 1 + w),
    "UnitRMSNorm": None,
}


@dataclass(frozen=True)
class Gains:
    """QK-norm over each "head" (g_q, g_k: [d_head]) or the whole "projection" (g_q [head * d_head], g_k [kv_head * d_head])."""

    over: str
    q: np.ndarray
    k: np.ndarray
    learned: bool  # False: ones, put there to see what the norm alone does
    eps: tuple[float, float]  # of the norms of q and k


def kind_of(config: Any) -> str:
    """The class that a part's config builds."""
    return type(config).__qualname__.partition(".")[0]


def norm_over(scene: Scene) -> str:
    """ "off", or what the QK-norm of this layer spans; a norm inside a latent attention is none."""
    per_head = "head" in getattr(scene.block_taps.get("attn.q_norm.hook_normalized"), "dims", ())
    return scene.attn.qk_norm_over if per_head else "off"


def plain(scene: Scene) -> bool:
    """Whether `visible_logits` holds here: q and k projected, perhaps normed by their RMS, then rotated, then multiplied."""
    attn = scene.attn
    if kind_of(attn) != "Attention" or attn.rope is None or attn.temperature is not None:
        return False
    return all(norm is None or kind_of(norm) in GAINS for norm in (attn.q_norm, attn.k_norm))


def bounded(scene: Scene) -> bool:
    """Whether `bounds` holds for the QK-norm of this layer."""
    return norm_over(scene) != "off" and scene.attn.temperature is None and kind_of(scene.attn.q_norm) in GAINS


def gains(scene: Scene, over: str) -> Gains:
    """Those of the model shown, else of the model as opened, else ones."""
    for lm in (scene.lm, scene.built):
        attn = lm.config.blocks[scene.layer].attn
        if over == configured(attn):
            found = [_gain(lm, scene.tap(f"attn.{part}_norm"), norm) for part, norm in (("q", attn.q_norm), ("k", attn.k_norm))]
            if None not in [gain if gain is None else 0 for gain, _ in found]:
                learned = all(learned for _, learned in found)
                return Gains(over, *(gain for gain, _ in found), learned, (attn.q_norm.eps, attn.k_norm.eps))
    return ones(scene, over)


def usual(scene: Scene) -> Gains:
    """Those of the QK-norm that runs; where it is off, of the one that the model was opened with, else ones over each head."""
    if norm_over(scene) != "off":
        return gains(scene, scene.attn.qk_norm_over)
    opened = configured(scene.built.config.blocks[scene.layer].attn)
    return ones(scene, "head") if opened == "off" else gains(scene, opened)


def configured(attn: Any) -> str:
    """ "off", or what the QK-norm of a config spans; a norm inside a latent attention is none."""
    return vars(attn).get("qk_norm_over", "off") if vars(attn).get("q_norm") is not None else "off"


def ones(scene: Scene, over: str) -> Gains:
    eps = next(part.eps for part in vars(scene.block).values() if "eps" in vars(part))  # what a norm switched on here would get
    widths = [scene.attn.d_head * (1 if over == "head" else heads) for heads in (scene.attn.n_heads, scene.attn.n_kv_heads)]
    return Gains(over, *(np.ones(width, np.float32) for width in widths), learned=False, eps=(eps, eps))


def _gain(lm: Any, path: str, norm: Any) -> tuple[np.ndarray | None, bool]:
    """A norm's gain and whether it is the model's own; None where it cannot be told."""
    rule = GAINS.get(kind_of(norm), "unknown")
    if rule is None:
        return np.ones(norm.d, np.float32), True
    if rule == "unknown":
        return None, False
    leaf, gain = rule
    try:
        return gain(lm.parameter(f"{path}.{leaf}")), f"{path}.{leaf}" not in lm.invented
    except BlockscopeError:
        return None, False


def seen(scene: Scene, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The mask of this layer -> bool [queries, keys], True where visible."""
    limits = vars(scene.attn.mask)
    distance = queries[:, None] - keys
    visible = (distance >= 0) & (distance < limits.get("window", np.inf))
    chunk = limits.get("chunk")
    return visible if chunk is None else visible & (queries[:, None] // chunk == keys // chunk)


def count_seen(scene: Scene, queries: np.ndarray) -> np.ndarray:
    """How many keys each of these queries sees: the rows of `seen` summed, without the square."""
    limits = vars(scene.attn.mask)
    counts = np.minimum(queries + 1, limits.get("window", np.inf)).astype(np.int64)
    return np.minimum(counts, queries % limits["chunk"] + 1) if "chunk" in limits else counts


def unseen(scene: Scene) -> str:
    """Which keys that leaves out, in words."""
    limits = vars(scene.attn.mask)
    if "window" in limits:
        return f"keys in the future or {limits['window']} and more back"
    return f"keys in the future or in another chunk of {limits['chunk']}" if "chunk" in limits else "future keys"


def magnitude(scene: Scene) -> float:
    """The factor that RoPE's scaling puts on cos and sin (YaRN); 1 elsewhere."""
    return float(scene.attn.rope.frequencies(len(scene.tokens))[1]) if scene.attn.rope is not None else 1.0


def bounds(scene: Scene, g: Gains) -> tuple[np.ndarray, str]:
    """The largest |logit| that each head can reach whatever the prompt [head], and the formula for the chosen head.

    A normalised vector of n entries has length at most sqrt(n); its gain stretches it by at most max|g|, and the rotation
    keeps lengths. Over each head n = d_head for q and k. Over the whole projection one head can hold all of the length:
    |q_h| <= sqrt(n_heads d_head) max|g_q| over that head's part, and k likewise with n_kv_heads.
    """
    attn = scene.attn
    factor = 1.0 if kind_of(attn) == "RotateThenNorm" else magnitude(scene)  # a norm after the rotation undoes its factor
    heads = np.arange(attn.n_heads)
    if g.over == "head":
        q, k = np.full(attn.n_heads, np.abs(g.q).max()), np.full(attn.n_heads, np.abs(g.k).max())
        length, words = attn.d_head, f"√{attn.d_head}"
    else:
        q = np.abs(g.q).reshape(attn.n_heads, attn.d_head).max(1)
        k = np.abs(g.k).reshape(attn.n_kv_heads, attn.d_head).max(1)[heads // scene.group]
        length = attn.d_head * np.sqrt(attn.n_heads * attn.n_kv_heads)
        words = f"√({attn.n_heads}·{attn.n_kv_heads}·{attn.d_head})"
    bound = q * k * length * attn.logit_scale * factor**2
    if attn.scale is not None:
        words = f"{number(float(length))}·{number(attn.logit_scale)}"
    stretch = f"·{number(factor)}²" if factor != 1 else ""
    constant = length * attn.logit_scale * factor**2
    parts = (float(x) for x in (q[scene.head], k[scene.head], constant))
    total = number(float(bound[scene.head]))
    formula = f"max|g_q|·max|g_k|·{words}{stretch} = {' × '.join(number(x) for x in parts)} = {total}"
    return bound.astype(np.float32), formula


def projected(scene: Scene) -> dict[str, Request]:
    """What `visible_logits` needs: the chosen head's q and k as projected, and the RMS of the whole projections."""
    q, k, every = scene.tap("attn.hook_q"), scene.tap("attn.hook_k"), max(WHOLE, len(scene.tokens) * scene.attn.d_head)
    return {
        "q": Request(q, select=(("head", scene.head),), budget=every),
        "k": Request(k, select=(("kv_head", scene.kv_head),), budget=every),
        "q_rms": Request(q, "rms", ("head", "d_head")),
        "k_rms": Request(k, "rms", ("kv_head", "d_head")),
    }


def visible_logits(scene: Scene, views: dict, g: Gains | None) -> np.ndarray:
    """This head's scaled q . k from the same residual stream, with QK-norm of gains `g` or without -> [entries].

    Of very long prompts only every n-th query, so that the square stays small.
    """
    q, k = (rotate(scene, _normed(scene, views, name, g)) for name in "qk")
    n = len(scene.tokens)
    queries = np.arange(0, n, -(-n * n // (4 * WHOLE)))
    logits = scene.attn.logit_scale * q[queries] @ k.T
    return logits[seen(scene, queries, np.arange(n))].astype(np.float32)


def _normed(scene: Scene, views: dict, name: str, g: Gains | None) -> np.ndarray:
    """q or k of the chosen head as projected, over its (or its whole projection's) RMS, times the gain -> [pos, d_head]."""
    x = views[name].values.astype(np.float64)
    if g is None:
        return x
    gain, head, eps = (g.q, scene.head, g.eps[0]) if name == "q" else (g.k, scene.kv_head, g.eps[1])
    if g.over == "head":
        return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps) * gain
    squares = views[f"{name}_rms"].values[:, None].astype(np.float64) ** 2
    return x / np.sqrt(squares + eps) * gain.reshape(-1, scene.attn.d_head)[head]


def pairs(scene: Scene, x: np.ndarray) -> np.ndarray:
    """x [..., d_head] -> its rotated pairs as complex numbers [..., pair]; "half" pairs p with p + d/2, else 2p with 2p + 1."""
    d = scene.attn.rope.d
    a, b = (x[..., : d // 2], x[..., d // 2 : d]) if scene.attn.rope.pairing == "half" else (x[..., 0:d:2], x[..., 1:d:2])
    return a + 1j * b


def rotate(scene: Scene, x: np.ndarray) -> np.ndarray:
    """x [pos, d_head] turned by its positions: each pair times e^(i position frequency), the rest as it is."""
    d, angle = scene.attn.rope.d, np.arange(len(x))[:, None] * frequencies(scene)
    z = pairs(scene, x) * np.exp(1j * angle) * magnitude(scene)
    return np.concatenate([z.real, z.imag, x[:, d:]], axis=1)  # in "half" order on both sides: q . k does not see the order


def frequencies(scene: Scene, scaled: bool = True) -> np.ndarray:
    """Radians per position of each pair, for a text of this prompt's length, float64 [pair]."""
    return scene.lm.rope_frequencies(scene.layer, scaled=scaled, length=len(scene.tokens)).astype(np.float64)
