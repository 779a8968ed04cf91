"""An equation as it is written, numbers in it, and the norms, which stand in every other equation.

Plain Unicode; _{...} and ^{...} are sub- and superscripts.
"""

from dataclasses import dataclass

import torch

from model import norms
from model.norms import NormConfig


@dataclass(frozen=True)
class Equation:
    """`about`: what part it belongs to; `note`: what stands behind a symbol."""

    left: str
    right: str
    about: str
    note: str = ""

    @property
    def text(self) -> str:
        return f"{self.left} = {self.right}"


def several(n: int, one: str, many: str = "") -> str:
    """1, "layer" -> "1 layer"; 1024, "token" -> "1,024 tokens"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


NORM_LINES: dict[type, tuple[str, str]] = {  # Config -> name in equations, right-hand side with its eps
    norms.RMSNorm.Config: ("RMSNorm", "x / √(mean(x²) + {eps}) ⊙ g"),
    norms.FullPrecisionRMSNorm.Config: ("RMSNorm", "x / √(mean(x²) + {eps}) ⊙ g, the gain in fp32"),
    norms.OffsetRMSNorm.Config: ("RMSNorm", "x / √(mean(x²) + {eps}) ⊙ (1 + w)"),
    norms.UnitRMSNorm.Config: ("RMSNorm", "x / √(mean(x²) + {eps})"),
    norms.LayerNorm.Config: ("LayerNorm", "(x − mean(x)) / √(var(x) + {eps}) ⊙ g + b"),
    norms.BiaslessLayerNorm.Config: ("LayerNorm", "(x − mean(x)) / √(var(x) + {eps}) ⊙ g"),
}


def number(x: float) -> str:
    """0.0883883 -> "0.0884"; 1e-05 -> "10⁻⁵"; 500000 -> "500,000"."""
    if x and abs(x) < 1e-3:
        mantissa, exponent = f"{x:e}".split("e")
        power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{power}" if float(mantissa) == 1 else f"{float(mantissa):g}·10{power}"
    return f"{x:,.0f}" if x == int(x) else f"{x:.4g}"


def first_sentence(config) -> str:
    """What the part says of itself: for one that no table here knows."""
    with torch.device("meta"):
        part = type(config.build())
    said = (part.__doc__ or part.__name__).strip().splitlines()[0]
    return said.partition("   (")[0].rstrip(".")


def norm_name(norm: NormConfig) -> str:
    known = NORM_LINES.get(type(norm))
    return known[0] if known else type(norm).__qualname__.partition(".")[0]


def norm_equation(norm: NormConfig) -> Equation:
    name, line = norm_name(norm), NORM_LINES.get(type(norm), ("", first_sentence(norm)))[1]
    over = f"over {several(norm.d, 'entry', 'entries')}"
    return Equation(f"{name}(x)", line.replace("{eps}", number(norm.eps)), "norm", over)
