"""The small sums of a block, worked by hand: plain floats, every intermediate returned in the order in which one writes it.

Each function gives a list of Steps; the last one is the result. Nothing here uses torch: tests hold it to the parts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model.errors import BlockscopeError

LONGEST, LARGEST = 16, 1e6  # entries of a typed vector, and their size
Vector = Sequence[float]
Matrix = Sequence[Vector]


@dataclass(frozen=True)
class Step:
    """One line: a quantity, the formula that gives it, and its value(s); `rows` where it is a small table."""

    name: str
    formula: str
    values: tuple[float, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[float, ...], ...] = ()


def checked(values: Vector, name: str = "x", size: int | None = None) -> tuple[float, ...]:
    """A vector of finite numbers, of `size` entries where that is given."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise BlockscopeError(f"{name} must be a list of numbers such as [2, 4, 6, 8]")
    if len(values) > LONGEST or (size is not None and len(values) != size):
        expected = f"exactly {size}" if size else f"1 to {LONGEST}"
        raise BlockscopeError(f"{name} has {len(values)} entries; expected {expected}")
    for value in values:
        real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) <= LARGEST
        if not real:
            raise BlockscopeError(f"{name} must hold finite numbers up to {LARGEST:,.0f}, got {str(value)[:20]!r}")
    return tuple(float(value) for value in values)


def _rms_of(x: Vector) -> str:
    """ "1", or what an ε that is not small beside the mean square makes of it; vectors of equal numbers have 0."""
    found = math.sqrt(mean([v * v for v in x]))
    if abs(found - 1) < 5e-4:
        return "1"
    return f"{found:.3g}: ε is not small beside the mean square" if found else "0: there is no length to divide by"


def mean(x: Vector) -> float:
    return math.fsum(x) / len(x)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def softmax(scores: Vector) -> tuple[float, ...]:
    top = max(scores)
    e = [math.exp(s - top) for s in scores]
    return tuple(v / sum(e) for v in e)


def rmsnorm(x: Vector, gain: Vector | None = None, eps: float = 1e-5) -> list[Step]:
    """y = x / sqrt(mean(x^2) + eps) * g; `gain` None: ones."""
    x = checked(x)
    g = (1.0,) * len(x) if gain is None else checked(gain, "gain", len(x))
    squares = tuple(v * v for v in x)
    scale = math.sqrt(mean(squares) + eps)
    normalized = tuple(v / _positive(scale) for v in x)
    return [
        Step("x", "what is typed", x),
        Step("x²", "x · x", squares),
        Step("mean(x²)", "Σ x² / d", (mean(squares),)),
        Step("rms", "√(mean(x²) + ε)", (scale,)),
        Step("x / rms", f"its RMS is {_rms_of(normalized)}", normalized),
        Step("y", "(x / rms) ⊙ g", tuple(a * b for a, b in zip(normalized, g, strict=True))),
    ]


def layernorm(x: Vector, gain: Vector | None = None, bias: Vector | None = None, eps: float = 1e-5) -> list[Step]:
    """y = (x - mean(x)) / sqrt(var(x) + eps) * g + b; `gain` None: ones, `bias` None: zeros."""
    x = checked(x)
    g = (1.0,) * len(x) if gain is None else checked(gain, "gain", len(x))
    b = (0.0,) * len(x) if bias is None else checked(bias, "bias", len(x))
    centred = tuple(v - mean(x) for v in x)
    variance = mean([v * v for v in centred])
    scale = math.sqrt(variance + eps)
    normalized = tuple(v / _positive(scale) for v in centred)
    return [
        Step("x", "what is typed", x),
        Step("mean(x)", "Σ x / d", (mean(x),)),
        Step("x − mean", "mean 0", centred),
        Step("var(x)", "Σ (x − mean)² / d", (variance,)),
        Step("σ", "√(var(x) + ε)", (scale,)),
        Step("(x − mean) / σ", f"mean 0, RMS {_rms_of(normalized)}", normalized),
        Step("y", "… ⊙ g + b", tuple(n * a + c for n, a, c in zip(normalized, g, b, strict=True))),
    ]


X, W_GATE, W_UP = (1.0, 2.0), ((2.0, 0.0), (1.0, -1.0)), ((1.0, 1.0), (-1.0, 1.0))  # gate [2, -1], up [3, 1]
W_DOWN = ((1.0, 0.0), (0.0, 1.0))  # the identity: the output is then the product itself


def swiglu(x: Vector = X, w_gate: Matrix = W_GATE, w_up: Matrix = W_UP, w_down: Matrix = W_DOWN) -> list[Step]:
    """W_down (SiLU(W_gate x) * W_up x) with two inputs, two hidden units and two outputs; matrices as rows."""
    x = checked(x, "x", 2)
    gate, up = (_times(w, x, name) for w, name in ((w_gate, "W_gate"), (w_up, "W_up")))
    opened = tuple(sigmoid(v) for v in gate)
    act = tuple(a * b for a, b in zip(gate, opened, strict=True))
    post = tuple(a * b for a, b in zip(act, up, strict=True))
    return [
        Step("x", "what is typed", x),
        Step("gate", "W_{gate} x", gate),
        Step("up", "W_{up} x", up),
        Step("σ(gate)", "1 / (1 + e^{−gate})", opened),
        Step("SiLU(gate)", "gate · σ(gate)", act),
        Step("SiLU(gate) ⊙ up", "unit by unit", post),
        Step("y", "W_{down} (SiLU(gate) ⊙ up)", _times(w_down, post, "W_down")),
    ]


def rotation(x: Vector = (1.0, 0.0), position: float = 3, frequency: float = 0.5) -> list[Step]:
    """One rotary pair: x turned by position * frequency radians. The length stays."""
    a, b = checked(x, "x", 2)
    (position,), (frequency,) = checked([position], "position"), checked([frequency], "frequency")
    angle = position * frequency
    cos, sin = math.cos(angle), math.sin(angle)
    turned = (a * cos - b * sin, b * cos + a * sin)
    return [
        Step("(a, b)", "one pair of coordinates", (a, b)),
        Step("φ", "position · θ, in radians", (angle,)),
        Step("φ in degrees", "φ · 180 / π", (math.degrees(angle),)),
        Step("cos φ, sin φ", "", (cos, sin)),
        Step("‖(a, b)‖", "√(a² + b²), the same before and after", (math.hypot(a, b),)),
        Step("(a′, b′)", "(a cos φ − b sin φ, b cos φ + a sin φ)", turned),
    ]


GROWTH = (1.0, 2.0, 4.0, 8.0, 16.0)


def two_scores(
    q: Vector = (2.0, 1.0), k1: Vector = (1.0, 0.0), k2: Vector = (0.0, 1.0), scales: Vector = GROWTH, eps: float = 1e-6
) -> list[Step]:
    """Softmax of q.k1 and q.k2 while q grows, without and with a unit-gain RMSNorm on q and k (QK-norm).

    The last step is a table: factor on q; both weights and the entropy without; the same with QK-norm.
    """
    q, k1, k2 = (checked(v, name, 2) for v, name in ((q, "q"), (k1, "k1"), (k2, "k2")))
    scales = checked(scales, "scales")
    root = math.sqrt(2)
    plain = (dot(q, k1) / root, dot(q, k2) / root)
    unit, n1, n2 = (rmsnorm(v, eps=eps)[-1].values for v in (q, k1, k2))

    def normed(c: float) -> tuple[float, float]:
        grown = [c * v for v in q]
        size = _positive(math.sqrt(mean([v * v for v in grown]) + eps))
        return dot(grown, n1) / (size * root), dot(grown, n2) / (size * root)

    rows = []
    for c in scales:
        without, held = softmax([c * s for s in plain]), softmax(normed(c))
        rows.append((c, c * plain[0], c * plain[1], without[0], entropy(without), *normed(c), held[0], entropy(held)))
    return [
        Step("q · k₁, q · k₂", "", (dot(q, k1), dot(q, k2))),
        Step("s", "q · k / √2: two coordinates per head", plain),
        Step("softmax(s)", "e^{s} / Σ e^{s}", softmax(plain)),
        Step("RMSNorm(q)", "of unit gain: its length is √2 however long q is" if any(q) else "q has no length", unit),
        Step("s with QK-norm", "RMSNorm(q) · RMSNorm(k) / √2, never beyond √2", normed(1.0)),
        Step(
            "q grows", "c · q", columns=(
                "c", "s₁", "s₂", "p₁", "entropy", "s₁ normed", "s₂ normed", "p₁ normed", "entropy normed",
            ), rows=tuple(rows),
        ),
    ]  # fmt: skip


def entropy(p: Vector) -> float:
    """In nats."""
    return -math.fsum(v * math.log(v) for v in p if v > 0)


CALCULATORS: dict[str, Callable[..., list[Step]]] = {
    "rmsnorm": rmsnorm,
    "layernorm": layernorm,
    "swiglu": swiglu,
    "rotation": rotation,
    "softmax": two_scores,
}


def _positive(scale: float) -> float:
    if scale == 0:
        raise BlockscopeError("with eps 0 a vector without any length cannot be normalised")
    return scale


def _times(matrix: Matrix, x: Vector, name: str) -> tuple[float, ...]:
    if not isinstance(matrix, Sequence) or len(matrix) != 2:
        raise BlockscopeError(f"{name} must be two rows of two numbers")
    return tuple(dot(checked(row, name, 2), x) for row in matrix)
