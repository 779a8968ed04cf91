"""QK-norm in numpy, written out: the bound that its gains set on a logit, and one head's logits with and without it."""

from dataclasses import dataclass

import numpy as np

from model.errors import BlockscopeError
from model.view import Request
from viz.nodes.card import WHOLE, Scene
from viz.theme import number


@dataclass(frozen=True)
class Gains:
    """QK-norm over each "head" (g_q, g_k: [d_head]) or the whole "projection" (g_q [head * d_head], g_k [kv_head * d_head])."""

    over: str
    q: np.ndarray
    k: np.ndarray
    learned: bool  # False: unit gains, put there to see what the norm alone does


def gains(scene: Scene, over: str) -> Gains:
    """The gains of the model shown, else of the model as opened, else ones."""
    attn = scene.attn
    names = [scene.tap(f"attn.{part}_norm.weight") for part in "qk"]
    for lm in (scene.lm, scene.built):
        if lm.qk_norm == over:
            try:
                invented = set(getattr(lm, "invented", ()))
                return Gains(over, *(lm.parameter(name) for name in names), learned=not invented & set(names))
            except BlockscopeError:
                continue  # this layer has no QK-norm although others do
    widths = [attn.d_head * (1 if over == "head" else heads) for heads in (attn.n_heads, attn.n_kv_heads)]
    return Gains(over, *(np.ones(width, np.float32) for width in widths), learned=False)


def magnitude(scene: Scene) -> float:
    """The factor that RoPE's scaling puts on cos and sin (YaRN); 1 elsewhere."""
    return float(scene.attn.rope.frequencies(len(scene.tokens))[1])


def bounds(scene: Scene, g: Gains) -> tuple[np.ndarray, str]:
    """The largest |logit| that each head can reach whatever the prompt [head], and the formula for the chosen head.

    A normalised vector of n entries has length at most sqrt(n); its gain stretches it by at most max|g|, and the rotation
    keeps lengths. Over each head n = d_head for q and k. Over the whole projection one head can hold all of the length:
    |q_h| <= sqrt(n_heads d_head) max|g_q| over that head's part, and k likewise with n_kv_heads.
    """
    attn, factor = scene.attn, magnitude(scene)
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
    q, k = scene.tap("attn.hook_q"), scene.tap("attn.hook_k")
    return {
        "q": Request(q, select=(("head", scene.head),), budget=WHOLE),
        "k": Request(k, select=(("kv_head", scene.kv_head),), budget=WHOLE),
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
    distance = queries[:, None] - np.arange(n)
    return logits[(distance >= 0) & (distance < (scene.window or n))].astype(np.float32)


def _normed(scene: Scene, views: dict, name: str, g: Gains | None) -> np.ndarray:
    """q or k of the chosen head as projected, over its (or its whole projection's) RMS, times the gain -> [pos, d_head]."""
    x = views[name].values.astype(np.float64)
    if g is None:
        return x
    gain, head, norm = (g.q, scene.head, scene.attn.q_norm) if name == "q" else (g.k, scene.kv_head, scene.attn.k_norm)
    eps = norm.eps if norm is not None else scene.block.ln1.eps  # what a QK-norm that is switched on here would get
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
