"""Labels, axes and colour scales: what a picture says a number is."""

import numpy as np
import pytest
from pictures import square

from viz import theme as th
from viz.figures import colours, labels
from viz.figures.stack import slant

LIGHT, DARK = th.LIGHT, th.DARK
HOSTILE = ["<s>", "</s>", "<b>x</b>", "<|im_start|>", "a&b", "%{x}", "", "\x00\n", "x" * 50]


# ---- axes and labels ----------------------------------------------------------------------------------------------------


def test_repeated_tokens_stay_different_cells():
    figure = square(np.arange(9, dtype=np.float32).reshape(3, 3), ["the", "cat", "the"])
    trace, layout = figure.data[0], figure.layout
    assert trace.z.shape == (3, 3) and np.issubdtype(trace.x.dtype, np.number) and np.issubdtype(trace.y.dtype, np.number)
    assert list(layout.xaxis.tickvals) == [0, 1, 2] and list(layout.xaxis.ticktext) == ["the", "cat", "the"]


def test_query_0_is_at_the_top():
    assert tuple(square(np.eye(4, dtype=np.float32)).layout.yaxis.range) == (3.5, -0.5)


def test_labels_are_shown_literally():
    shown = [labels.label(piece, i) for i, piece in enumerate(HOSTILE)]
    assert shown[:5] == ["&lt;s&gt;", "&lt;/s&gt;", "&lt;b&gt;x&lt;/b&gt;", "&lt;|im_start|&gt;", "a&amp;b"]
    assert shown[6] == "#6" and "\x00" not in shown[7] and len(shown[8]) == 14
    figure = square(np.zeros((9, 9), np.float32), HOSTILE)
    assert list(figure.layout.xaxis.ticktext) == shown
    assert "<s>" not in str(figure.data[0].hovertemplate)


@pytest.mark.parametrize("n", [1, 39, 40, 41, 512, 4096])
def test_ticks_are_thinned(n):
    axis = labels.token_axis("token", [f"t{i}" for i in range(n)])
    assert len(axis.ticktext) <= labels.TICKS and axis.tickvals[0] == 0 and axis.ticktext[0] == "t0"
    assert all(text == f"t{at}" for at, text in zip(axis.tickvals, axis.ticktext, strict=True))


def test_pooled_cells_stand_at_the_middle_of_their_block():
    axis = labels.token_axis("token", [str(i) for i in range(10)], np.array([0, 4, 8]))
    assert axis.centres.tolist() == [1.5, 5.5, 8.5] and axis.ends == (-0.5, 9.5)
    axis = labels.token_axis("token", [str(i) for i in range(4)], np.array([1, 2, 3]), start=1)
    assert axis.ends == (0.5, 3.5) and axis.ticktext == ["1", "2", "3"]


def test_only_words_are_slanted():
    assert slant(labels.token_axis("token", ["a", "<", "b"])) == 0
    assert slant(labels.token_axis("token", ["def", "a"])) == -45
    assert slant(labels.index_axis("layer", 12)) == 0 == slant(labels.index_axis("neuron", 5000))


@pytest.mark.parametrize(
    ("x", "text"),
    [(15.84, "15.8"), (0.0123, "0.0123"), (1234.0, "1,234"), (1.2e-7, "1.2e-7"), (-3.21, "−3.21"), (0.0, "0"), (8.0, "8.00"),
     (float("nan"), "NaN"), (float("inf"), "+inf"), (float("-inf"), "−inf"), (344000.0, "3.4e5"), (0.23, "0.230")],
)  # fmt: skip
def test_numbers_are_short(x, text):
    assert th.number(x) == text


# ---- colour -------------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    linear = [
        (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_scales_can_be_read_without_colour_vision(theme):
    for stops in (theme.sequential, theme.probability, theme.log):
        steps = np.diff([luminance(colour) for _, colour in stops])
        assert (np.sign(steps) == np.sign(steps[0])).all(), stops
    assert theme.cyclic[0][1] == theme.cyclic[-1][1]
    assert [at for at, _ in theme.diverging] == [0, 0.25, 0.5, 0.75, 1]


def test_signed_data_are_centred_on_0_and_finite():
    values = np.array([[1, -3], [np.nan, np.inf]], np.float32)
    for log in (False, True):
        colour = colours.signed(values, LIGHT, log)
        assert colour.low == -colour.high and np.isfinite(colour.high)
        drawn = colour.forward(values)
        assert drawn.dtype == np.float32 and np.isnan(drawn[1]).all() and np.sign(drawn[0]).tolist() == [1, -1]
        assert np.abs(drawn[0]).max() == pytest.approx(colour.high, rel=1e-6)


@pytest.mark.parametrize(
    "make", [colours.signed, lambda v, t: colours.sequential(v, t, True), lambda v, t: colours.sequential(v, t)]
)
@pytest.mark.parametrize("values", [[0.0], [5.0], [np.nan, np.inf], [1e-30, 1e30], [3.0, 3.0]])
def test_ranges_are_never_empty_or_infinite(make, values):
    colour = make(np.array(values, np.float32), LIGHT)
    assert np.isfinite([colour.low, colour.high]).all() and colour.low < colour.high
    assert all(colour.low - 1e-6 <= at <= colour.high + 1e-6 for at in colour.tickvals)


def test_probabilities_always_run_from_0_to_1():
    colour = colours.probability(LIGHT)
    assert (colour.low, colour.high) == (0, 1)
    log = colours.probability(LIGHT, log=True)
    assert (
        log.forward(np.array([0, 1e-4, 0.01, 1], np.float32)).tolist() == pytest.approx([-4, -4, -2, 0])
        and "drawn as" in log.note
    )


def test_one_massive_entry_does_not_hide_the_others():
    values = np.full((8, 8), 0.5, np.float32)
    values[0, 3] = 2000
    colour = colours.signed(values, LIGHT)
    assert colour.kind == "symlog" and colour.note and colour.forward(values)[4, 4] > 0.08 * colour.high
    assert colours.signed(np.linspace(-3, 3, 50, dtype=np.float32), LIGHT).kind == "linear"


def test_log_colour_keeps_the_number_in_the_hover():
    values = np.array([[1, 2000], [0.1, -0.2]], np.float32)
    trace = square(values, colour=colours.diverging(2000, LIGHT, True, 0.2)).data[0]
    assert np.array_equal(trace.customdata, values) and "customdata" in trace.hovertemplate and trace.z.max() < 10


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colour_scales_are_explicit(theme):
    figure = square(np.eye(3, dtype=np.float32), theme=theme)
    assert all(isinstance(stop, tuple) and stop[1].startswith("#") for stop in figure.layout.coloraxis.colorscale)
    assert not figure.layout.template.layout.to_plotly_json()
