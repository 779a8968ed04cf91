"""The pictures themselves: what is drawn where, in which finite range, under which literal label, and how large it is."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import browser as b
import numpy as np
import plotly
import pytest
from pictures import square
from playwright.sync_api import sync_playwright

from viz import theme as th
from viz.figures import colours, labels
from viz.figures.cloud import density
from viz.figures.distribution import overlay, shares
from viz.figures.heat import flags, matrix
from viz.figures.mosaic import mosaic
from viz.figures.ranking import ranking
from viz.figures.rotary import arrows
from viz.figures.stack import Panel, Series, stack
from viz.picture import Picture

LIGHT, DARK = th.LIGHT, th.DARK
LARGEST = 300_000


def strict(figure) -> dict:
    """The figure's JSON, read by a parser that knows no NaN."""
    return json.loads(figure.to_json(), parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))


def arrays(value):
    """Every array in a figure, wherever it hides."""
    if isinstance(value, dict):
        for item in value.values():
            yield from arrays(item)
    elif isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple):
        assert len(value) <= 64 or isinstance(value[0], str), f"a list of {len(value)} numbers: arrays are sent as bytes"
        for item in value:
            yield from arrays(item)


# ---- what is not a number ---------------------------------------------------------------------------------------------


def test_masked_nan_and_infinities_are_four_different_things():
    values = np.array([[1, np.nan], [np.inf, -np.inf], [np.nan, 2]], np.float32)
    masked = np.array([[False, True], [False, False], [False, False]])
    assert flags(values, masked).tolist() == [[0, 0], [2, 3], [1, 0]]
    figure = matrix(
        values,
        labels.index_axis("a", 3),
        labels.index_axis("b", 2),
        colours.signed(values, LIGHT),
        LIGHT,
        revision="r",
        masked=masked,
    )
    shown, apart = figure.data
    assert np.isnan(shown.z).tolist() == [[False, True], [True, True], [True, False]]
    assert (apart.zmin, apart.zmax) == (-0.5, 3.5)
    used = {apart.colorscale[2 * kind][1] for kind in (1, 2, 3)}
    assert len(used) == 3 and not used & {colour for _, colour in LIGHT.diverging}
    strict(figure)


def test_curves_and_bars_leave_gaps_for_what_is_not_a_number():
    values = np.array([1, np.nan, np.inf, -np.inf, 4], np.float32)
    for style in ("bar", "line", "area", "dash"):
        figure = stack(
            [Panel("p", [Series("s", values, LIGHT.a, style)])], labels.index_axis("i", 5), LIGHT, revision="r", height=200
        )
        assert np.isnan(figure.data[0].y).tolist() == [False, True, True, True, False]
        strict(figure)
    log = stack(
        [Panel("p", [Series("s", np.array([0, 1, 10]), LIGHT.a)], log=True)],
        labels.index_axis("i", 3),
        LIGHT,
        revision="r",
        height=200,
    )
    assert np.isnan(log.data[0].y).tolist() == [True, False, False]
    assert ranking(["a", "b"], np.array([np.nan, 1.0]), LIGHT, revision="r", name="n").data[0].text == ("NaN", "1.00")


# ---- single figures ---------------------------------------------------------------------------------------------------


def test_small_multiples_share_one_range_and_give_their_head():
    tiles = np.stack([np.full((3, 5), i, np.float32) for i in range(7)])
    masked = np.zeros(tiles.shape, bool)
    masked[:, 0, 1:] = True
    figure = mosaic(
        np.where(masked, np.nan, tiles),
        [f"head {i}" for i in range(7)],
        colours.signed(tiles, LIGHT),
        LIGHT,
        revision="r",
        selected=4,
        masked=masked,
    )
    (trace,) = figure.data  # masked cells are empty, not flagged
    assert trace.customdata.dtype == np.uint8 and figure.layout.meta == {"click": {"field": "head", "from": "customdata"}}
    assert len(trace.x) == trace.z.shape[1] + 1 and len(trace.y) == trace.z.shape[0] + 1
    assert (np.diff(trace.x) > 0).all() and (np.diff(trace.y) > 0).all()
    for i in range(7):  # each tile lies at unit distance and holds its own numbers
        column = (trace.x[:-1] >= i % 3) & (trace.x[:-1] < i % 3 + 1)
        row = (trace.y[:-1] >= i // 3) & (trace.y[:-1] < i // 3 + 1)
        assert (trace.customdata[np.ix_(row, column)] == i).all()
        held = trace.z[np.ix_(row, column)]
        assert np.isfinite(held).sum() == 11 and (held[np.isfinite(held)] == i).all()
    assert [a.text for a in figure.layout.annotations][4] == "<b>head 4</b>" and len(figure.layout.shapes) == 1


def test_a_tile_can_stand_for_another_head():
    figure = mosaic(
        np.ones((2, 2, 2), np.float32),
        ["kv 0", "kv 1"],
        colours.signed(np.ones(1), LIGHT),
        LIGHT,
        revision="r",
        heads=np.array([0, 300]),
    )
    assert set(np.unique(figure.data[0].customdata)) == {0, 300}


def test_histograms_share_bins_and_sum_to_1():
    a, c = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    edges = np.linspace(-10, 10, 41)
    assert shares(np.append(a, np.nan), edges).sum() == pytest.approx(1)
    figure = overlay([("with", a, LIGHT.a), ("without", 3 * c, LIGHT.b)], LIGHT, revision="r", title="logit", bound=4.0)
    first, ends, second, _ = figure.data
    assert np.array_equal(first.x, second.x) and ends.x.tolist() == [a.min(), a.max()]
    assert [shape.x0 for shape in figure.layout.shapes] == [-4, 4]
    far = overlay([("with", a, LIGHT.a)], LIGHT, revision="r", title="logit", bound=345.0)
    assert not far.layout.shapes and "345" in far.layout.annotations[0].text


def test_the_density_counts_every_pair():
    x, y = np.random.default_rng(1).normal(size=(2, 5000)).astype(np.float32)
    figure = density(x, y, ("curve", np.linspace(-1, 1, 9), np.zeros(9)), LIGHT, revision="r", names=("gate", "up"))
    assert figure.data[0].customdata.sum() == 5000 and np.isnan(figure.data[0].z[figure.data[0].customdata == 0]).all()


def test_arrows_point_where_the_vectors_do():
    q = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    figure = arrows({"q": q}, {"q": q[:, ::-1] * [-1, 1]}, ["a", "b", "c"], LIGHT, revision="r")
    shafts = [trace for trace in figure.data if trace.mode == "lines+markers"]
    for trace, vectors in zip(shafts, (q, q[:, ::-1] * [-1, 1]), strict=True):
        x, y = trace.x.reshape(3, 3), trace.y.reshape(3, 3)  # tail, tip, gap
        tip = np.stack([x[:, 1] - x[:, 0], y[:, 1] - y[:, 0]], axis=1)
        across = tip[:, 0] * vectors[:, 1] - tip[:, 1] * vectors[:, 0]
        assert np.allclose(across, 0, atol=1e-5) and (np.sum(tip * vectors, 1) >= 0).all()
        length = np.hypot(*tip.T)  # of the square root of the true length, on one scale
        assert length[1] / length[0] == pytest.approx((4 / 3) ** 0.5, rel=1e-5) and length[2] == 0
    assert figure.layout.yaxis.scaleanchor == "x"


def test_bars_mark_the_selected_entry():
    figure = stack(
        [Panel("", [Series("s", np.arange(5.0), LIGHT.faint, "bar")])],
        labels.index_axis("head", 5),
        LIGHT,
        revision="r",
        height=200,
        selected=3,
        click=("head", "x"),
    )
    assert figure.data[1].x.tolist() == [3] and figure.data[1].marker.color == LIGHT.accent
    assert figure.layout.meta == {"click": {"field": "head", "from": "x"}}


def big_matrix():
    values = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)
    values[:, 7] = np.nan
    return square(values, colour=colours.diverging(3000, LIGHT, True, 0.5), masked=np.triu(np.ones((128, 128), bool), 1))


def big_mosaic():
    tiles = np.random.default_rng(0).normal(size=(32, 24, 24)).astype(np.float32)
    tiles[3, 4, 4] = np.inf
    return mosaic(tiles, [str(i) for i in range(32)], colours.signed(tiles, LIGHT), LIGHT, revision="r")


def big_curve():
    side = labels.token_axis("token", [f"token {i}" for i in range(4096)])
    return stack(
        [Panel("p", [Series(f"s{i}", np.random.rand(4096), LIGHT.a, "bar") for i in range(3)])],
        side,
        LIGHT,
        revision="r",
        height=200,
        selected=2,
    )


@pytest.mark.parametrize("make", [big_matrix, big_mosaic, big_curve])
def test_figures_are_small_arrays_and_strict_json(make):
    figure = make()
    text = figure.to_json()
    assert len(text) < LARGEST and strict(figure)
    assert not figure.layout.title.text and figure.layout.uirevision == "r" and figure.layout.height > 100
    for array in arrays(figure.to_plotly_json()):
        assert array.dtype in (np.float32, np.int32, np.int16, np.uint8) or array.ndim == 1, array.dtype


def test_figures_need_neither_torch_nor_gradio():
    modules = ["cloud", "colours", "distribution", "heat", "labels", "mosaic", "ranking", "rotary", "series", "stack"]
    code = f"import sys\n{''.join(f'import viz.figures.{m}; ' for m in modules)}\nassert not {{'torch', 'gradio', 'model'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


# ---- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.browser
def test_the_browser_draws_what_was_sent():
    """Repeated tokens, literal labels, holes, bar heights and the head behind a click, read back from plotly.js."""
    path = b.chromium()
    if path is None:
        pytest.skip("no Chromium: name one in BLOCKSCOPE_CHROMIUM, or install Debian's chromium")
    values = np.arange(25, dtype=np.float32).reshape(5, 5)
    values[1, 3] = np.nan
    map_ = square(values, ["the", "<s>", "the", "<b>x</b>", "a&b"])
    bars = stack(
        [Panel("", [Series("s", np.array([5, 1, np.inf, 4]), LIGHT.a, "bar")])],
        labels.index_axis("i", 4),
        LIGHT,
        revision="r",
        height=200,
    )
    tiles = mosaic(
        np.random.rand(4, 6, 6).astype(np.float32), list("abcd"), colours.signed(np.ones(1), LIGHT), LIGHT, revision="r"
    )
    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=path, args=b.FLAGS)
        page = chrome.new_page(viewport={"width": 700, "height": 900})
        page.set_content("".join(f"<div id=g{i} style='width:600px'></div>" for i in range(3)))
        page.add_script_tag(path=f"{plotly.__path__[0]}/package_data/plotly.min.js")
        for i, figure in enumerate((map_, bars, tiles)):
            page.evaluate("([i, f]) => Plotly.newPlot('g' + i, f.data, f.layout)", [i, json.loads(figure.to_json())])
        page.evaluate("g2.on('plotly_click', (e) => (window.clicked = e.points[0].customdata))")
        drawn = page.evaluate("g0.calcdata[0][0].z.map((row) => [...row].map((v) => Number.isFinite(v) ? v : null))")
        ticks = page.evaluate("[...document.querySelectorAll('#g0 .ytick text')].map((e) => e.textContent)")
        heights = page.evaluate("g1.calcdata[0].map((bar) => bar.s)")
        kind = page.evaluate("[g0._fullLayout.xaxis.type, g0._fullLayout.yaxis.range[0] > g0._fullLayout.yaxis.range[1]]")
        page.locator("#g2").scroll_into_view_if_needed()
        box = page.locator("#g2 .nsewdrag").bounding_box()
        page.mouse.move(box["x"] + 0.85 * box["width"], box["y"] + 0.25 * box["height"])
        page.wait_for_timeout(250)
        page.mouse.click(box["x"] + 0.85 * box["width"], box["y"] + 0.25 * box["height"])
        page.wait_for_function("window.clicked !== undefined")
        clicked = page.evaluate("window.clicked")
        chrome.close()
    assert drawn == [[None if np.isnan(v) else v for v in row] for row in values.tolist()]
    assert sorted(ticks) == sorted(["the", "<s>", "the", "<b>x</b>", "a&b"]) and kind == ["linear", True]
    assert heights[:2] + heights[3:] == [5, 1, 4] and not np.isfinite(heights[2])
    assert clicked == 2


# ---- ticks and colour bars that stay where they are -------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 51, 109, 512])
def test_ticks_have_room_in_the_lowest_figure(n):
    pieces = [f"token {i}" for i in range(n)]
    figure = square(np.zeros((n, n), np.float32), pieces, height=550)
    assert len(figure.layout.yaxis.tickvals) * 14 <= 300 - 76 and len(figure.layout.xaxis.tickvals) <= labels.TICKS_ACROSS
    assert list(figure.layout.yaxis.ticktext) == [pieces[at] for at in figure.layout.yaxis.tickvals]


def test_the_colour_bar_of_a_causal_square_never_moves():
    bars = []
    for n in (1, 2, 3, 4, 30):
        layout = square(np.ones((n, n), np.float32), inset=True).layout
        bar = layout.coloraxis.colorbar
        bars.append((bar.orientation, bar.x, bar.y, bar.xanchor, bar.yanchor, bar.len))
        assert n >= 4 or layout.xaxis.range[1] > n - 0.5
    assert len(set(bars)) == 1


def test_a_picture_is_the_same_with_and_without_plotlys_own_object():
    values = {
        "z": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "x": np.arange(3), "y": np.array([0.5, np.nan]),
        "text": np.array(["a", "<b>"]), "customdata": np.array([2**40, 1]), "name": "n",
    }  # fmt: skip
    layout = {"height": 100, "xaxis": {"range": [np.float32(0.5), 2]}}
    quick, checked = (Picture([{"type": "heatmap"} | values], dict(layout)) for _ in range(2))
    assert checked.data[0].name == "n" and checked.layout.height == 100 == quick.height
    one, other = json.loads(quick.to_json()), json.loads(checked.to_json())
    own, theirs = one["data"][0], other["data"][0]
    for name, dtype in (("z", "f4"), ("x", "i4")):  # plotly.py takes the narrowest integer, we take 32 bits
        unpacked = np.frombuffer(base64.b64decode(own[name]["bdata"]), dtype).reshape(values[name].shape)
        assert own[name]["dtype"] == dtype and np.array_equal(unpacked, values[name])
    assert own["z"] == theirs["z"] and own["y"] == theirs["y"] and own["text"] == theirs["text"]
    assert own["customdata"] == [2**40, 1] and one["layout"] == {
        key: value for key, value in other["layout"].items() if key != "template"
    }
    late = Picture([dict(values, type="heatmap")], dict(layout))
    late.add_trace({"type": "scatter", "y": [1]})
    late.layout.margin.t = 7  # plotly's object was asked for: what is changed there is drawn
    late.add_trace({"type": "scatter", "y": [2]})
    drawn = json.loads(late.to_json())
    assert len(drawn["data"]) == 3 and drawn["layout"]["margin"]["t"] == 7
    with pytest.raises(TypeError):
        Picture([{"x": object()}], dict(layout)).to_json()
