"""How numbers become colours: the transform, the finite range, the stops, the ticks of the colour bar, and a sentence."""

from dataclasses import dataclass

import numpy as np

from viz.theme import Stops, Theme, scale

FLOOR = 1e-4  # smallest probability that the log scale tells apart
MASSIVE = 60  # times the median |x|: from there on a linear scale shows nothing but the peak


@dataclass(frozen=True)
class Colour:
    """`forward` maps values to what is drawn; `low` and `high` bound it and are always finite."""

    stops: Stops
    low: float
    high: float
    kind: str = "linear"  # linear | symlog | log10 | logp
    knee: float = 1.0  # symlog: where the scale turns from linear to logarithmic
    tickvals: tuple[float, ...] = ()
    ticktext: tuple[str, ...] = ()
    note: str = ""  # what a caption must say about the scale

    def forward(self, values: np.ndarray) -> np.ndarray:
        """float32 of the same shape; entries that are not finite become NaN (the picture marks them apart)."""
        values = np.where(np.isfinite(values), values, np.nan).astype(np.float32)
        return np.asarray(FORWARD[self.kind](values, self), np.float32)

    def axis(self, theme: Theme, bar: dict | None = None) -> dict:
        """As a plotly coloraxis; without `bar` no colour bar is drawn."""
        ticks = {"tickmode": "array", "tickvals": list(self.tickvals), "ticktext": list(self.ticktext)} if self.tickvals else {}
        base = {
            "thickness": 9,
            "outlinewidth": 0,
            "ticks": "outside",
            "ticklen": 3,
            "tickcolor": theme.line,
            "tickfont": {"size": 11, "color": theme.secondary},
            "nticks": 6,
        }
        shown = {"showscale": False} if bar is None else {"showscale": True, "colorbar": base | ticks | bar}
        return {"cmin": self.low, "cmax": self.high, "colorscale": scale(self.stops), **shown}


FORWARD = {
    "linear": lambda v, c: v,
    "symlog": lambda v, c: np.sign(v) * np.log10(1 + np.abs(v) / c.knee),
    "log10": lambda v, c: np.log10(np.maximum(v, 10**c.low)),
    "logp": lambda v, c: np.log10(np.maximum(v, FLOOR)),
}


def peak(*arrays: np.ndarray) -> float:
    """Largest finite |x| in all of them; 0 where there is none."""
    finite = [np.abs(a[np.isfinite(a)]) for a in (np.asarray(a, np.float32) for a in arrays)]
    return max((float(a.max()) for a in finite if a.size), default=0.0)


def typical(values: np.ndarray) -> float:
    """The median finite |x|: what most entries look like, whatever a few massive ones do."""
    size = np.abs(values[np.isfinite(values)])
    return float(np.median(size)) if size.size else 0.0


def signed(values: np.ndarray, theme: Theme, log: bool = False, limit: float | None = None) -> Colour:
    """Diverging around 0; turns to log by itself when the largest entry is so massive that all others would be one grey."""
    limit = peak(values) if limit is None else limit
    middle = typical(values)
    return diverging(limit, theme, log or limit > MASSIVE * middle > 0, middle)


def spans_decades(values: np.ndarray) -> bool:
    """Whether positive data spread so far (20 times) that a linear scale would hide most of them."""
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(positive.size) and float(positive.max() / positive.min()) > 20


def _plain(x: float) -> str:
    """A round number on a colour bar."""
    size = abs(x)
    text = (
        f"{size / 1000:,g}k"
        if 1000 <= size < 1e6
        else f"{size:g}"
        if 1e-3 <= size < 1e5 or size == 0
        else f"{size:.0e}".replace("e-0", "e-").replace("e+0", "e")
    )
    return f"−{text}" if x < 0 else text


def _round(x: float) -> float:
    return float(f"{x:.2g}")


def _nice(x: float) -> float:
    """The 1, 2 or 5 times a power of ten at or below x."""
    power = 10.0 ** np.floor(np.log10(x))
    return float(power * max(m for m in (1, 2, 5) if m * power <= x * (1 + 1e-9)))


def diverging(limit: float, theme: Theme, log: bool = False, middle: float = 0.0) -> Colour:
    """Signed data: symmetric about 0 up to `limit`. Log keeps the sign: sign(x) log10(1 + |x| / knee), knee near `middle`."""
    limit = limit if np.isfinite(limit) and limit > 0 else 1.0
    if not log:
        return Colour(theme.diverging, -limit, limit)
    knee = _nice(float(np.clip(middle, limit / 1e4, limit / 20)))
    high = float(np.log10(1 + limit / knee))
    marks = [10.0**k for k in range(int(np.ceil(np.log10(knee * 2))), int(np.floor(np.log10(limit))) + 1)] or [limit]
    marks = marks[:: -max(1, -(-len(marks) // 2))][::-1]
    values = [*(-m for m in reversed(marks)), 0.0, *marks]
    at = tuple(float(np.sign(v) * np.log10(1 + abs(v) / knee)) for v in values)
    note = f"log colour: sign(x)·log₁₀(1 + |x|/{_plain(knee)})"
    return Colour(theme.diverging, -high, high, "symlog", knee, at, tuple(_plain(v) for v in values), note)


def sequential(values: np.ndarray, theme: Theme, log: bool = False) -> Colour:
    """Positive data: from 0 to the largest finite entry, or over its decades."""
    high = peak(values) or 1.0
    if not log:
        return Colour(theme.sequential, 0.0, high)
    positive = values[np.isfinite(values) & (values > 0)]
    low = max(float(positive.min()) if positive.size else high / 10, high * 1e-6)
    if high / low < 1.01:
        low, high = low / 1.5, high * 1.5
    a, b = float(np.log10(low)), float(np.log10(high))
    steps = [m * 10.0**k for k in range(int(np.floor(a)), int(np.ceil(b)) + 1) for m in ((1,) if b - a > 2 else (1, 2, 5))]
    marks = [m for m in steps if low <= m <= high]
    marks = marks if len(marks) > 1 else [low, (low * high) ** 0.5, high]
    at, text = tuple(float(np.log10(m)) for m in marks), tuple(_plain(_round(m)) for m in marks)
    return Colour(theme.log, a, b, "log10", 1.0, at, text, "log colour")


def probability(theme: Theme, log: bool = False) -> Colour:
    """Always 0 to 1, so two heads or two models can be compared by eye."""
    if not log:
        return Colour(theme.probability, 0.0, 1.0, tickvals=(0, 0.5, 1), ticktext=("0", "0.5", "1"))
    at = (-4.0, -3.0, -2.0, -1.0, 0.0)
    note = f"log colour, everything under {FLOOR:g} drawn as {FLOOR:g}"
    return Colour(theme.probability, -4.0, 0.0, "logp", 1.0, at, ("≤1e-4", "0.001", "0.01", "0.1", "1"), note)


def angle(theme: Theme) -> Colour:
    """Radians modulo 2 pi on a cyclic scale."""
    turn = float(2 * np.pi)
    return Colour(theme.cyclic, 0.0, turn, tickvals=(0.0, turn / 2, turn), ticktext=("0", "π", "2π"))
