"""Every design's diagram on one page, with the numbers of a real run: to be looked at, and measured by a browser."""

from html import escape

from model import PRESETS, load
from viz.diagram import graph
from viz.drawing import draw
from viz.pages.answers import numbers
from viz.pages.shell import own_files

STYLE = """
html, body { margin: 0; } .bs { height: auto !important; display: block !important; padding: 18px; }
.sheet { display: flex; flex-wrap: wrap; gap: 26px 22px; align-items: flex-start; }
.sheet figure { margin: 0; width: 272px; } .sheet figcaption { font: 600 14px/1.6 var(--sans); }
.strips figure { width: auto; } .bs .strips .block-svg.lying { display: block; } .strips .block-svg.standing { display: none; }
"""


def kinds_of_block(name: str) -> list[int]:
    """The first layer of each kind of block."""
    blocks = PRESETS[name].blocks
    return sorted({blocks.index(block) for block in blocks})


def designs() -> list[tuple[str, int]]:
    """(preset, layer) of every block that a tiny preset has."""
    return [(name, layer) for name in PRESETS if name.startswith("tiny-") for layer in kinds_of_block(name)]


def figure(name: str, layer: int, lying: bool = False) -> str:
    """A diagram with its numbers filled in as the page's script does."""
    lm = load(name, device="cpu")
    told = numbers(lm, lm.encode("def area(w): return w"), layer)
    svg = draw(graph(lm.config.blocks[layer]), lying)
    for node, values in told.items():
        start = svg.index(f'data-node="{node}"')
        head, tail = svg[:start], svg[start:]
        for part, word in (("rms", "rms "), ("max", "max|x| ")):
            tail = _fill(tail, part, word + values[part])
        svg = head + tail
    return f"<figure><figcaption>{escape(name)} · layer {layer}</figcaption>{svg}</figure>"


def _fill(svg: str, part: str, text: str) -> str:
    at = svg.index("></text>", svg.index(f'<text class="{part}"')) + 1
    return svg[:at] + escape(text) + svg[at:]


def sheet(dark: bool) -> str:
    """A whole page: every block standing, then some of them lying as on a phone."""
    css = "".join(own_files()[name].decode() for name in ("theme.css", "page.css"))
    standing = "".join(figure(name, layer) for name, layer in designs())
    strips = "".join(figure(name, layer, lying=True) for name, layer in designs())
    body = f'<div class="bs"><div class="sheet">{standing}</div><div class="sheet strips">{strips}</div></div>'
    return f'<!doctype html><meta charset="utf-8"><style>{css}{STYLE}</style><body class="{"dark" if dark else ""}">{body}'
