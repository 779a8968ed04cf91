"""Blockscope in a browser: python app.py [--model SOURCE]. The same file starts it as a Hugging Face Space."""

import argparse
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

SHIPPED = Path(__file__).parent / "assets" / "checkpoints"
RANDOM = "random weights"  # the heading of the presets


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="app.py", description="Open the block of a decoder-only language model in a browser.")
    source = "a model folder or the name of a preset; may be given several times, the first is shown first"
    parser.add_argument("--model", action="append", default=[], metavar="SOURCE", help=source)
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("GRADIO_SERVER_PORT", "7860")))
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps ...")
    parser.add_argument("--dtype", default=None, help="fp32, bf16 or fp16; default: what suits the device")
    parser.add_argument("--memory", default=None, help="weights kept in memory, such as 4GB; a larger model streams through")
    parser.add_argument("--max-tokens", type=int, default=1024, help="the longest prompt that is run")
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Shelved:
    """Name on the page -> source, in the order of the chooser; which is shown first; entries that stand under a heading."""

    sources: dict[str, str]
    shown_first: str
    groups: dict[str, list[str]]


def shelved(asked: Iterable[str], presets: Iterable[str] = ()) -> Shelved:
    """The models that ship, what was asked for, then presets with random weights. Two folders of one name stay apart."""
    asked, shipped = list(dict.fromkeys(asked)), sorted(str(path.parent) for path in SHIPPED.glob("*/config.json"))
    named: dict[str, str] = {}
    for source in dict.fromkeys([*shipped, *asked, *presets]):
        name = Path(source).name or source
        while name in named:
            name += "′"
        named[name] = source
    first = next((name for name, source in named.items() if asked and source == asked[0]), "")
    random = [name for name, source in named.items() if source not in (*shipped, *asked)]
    return Shelved(named, first, {RANDOM: random} if random else {})


def build(models: Mapping[str, object] | Iterable[str] = (), *, device="auto", dtype=None, max_tokens: int = 1024, memory=None):
    """The whole web app (FastAPI). `models`: sources, beside which the shipped models and small presets stand; or just
    name -> source."""
    from model import PRESETS, load
    from viz.shelf import Shelf

    opener = partial(load, device=device, dtype=dtype, memory=memory)
    if isinstance(models, Mapping):
        return web(Shelf(models, opener, max_tokens=max_tokens))
    found = shelved(models, [name for name in PRESETS if name.startswith("tiny-")])
    return web(Shelf(found.sources, opener, max_tokens=max_tokens, shown_first=found.shown_first, groups=found.groups))


def web(shelf):
    """The pages over a shelf of models; whatever visitors share is the shelf and the store made here."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "0"  # read when gradio is imported: nothing is sent anywhere
    os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100000")  # its own usage summary costs 7 ms per event
    import gradio as gr

    from model import PRESETS
    from viz.pages import anatomy, compare, explore, growth
    from viz.pages.shell import head, parent
    from viz.store import Store

    store = Store()
    theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    mount = partial(gr.mount_gradio_app, theme=theme, run_history=False, footer_links=[])
    app = parent(store)
    app = mount(app, compare.blocks(compare.Compare(shelf, store)), path="/compare", head=head("compare", "compare.css"))
    app = mount(app, growth.blocks(growth.Growth(shelf, store)), path="/growth", head=head("growth", "growth.css"))
    own = {name: source for name, source in shelf.sources.items() if name not in PRESETS}  # it knows all presets anyway
    page = anatomy.blocks(anatomy.Anatomy(store, own))
    app = mount(app, page, path="/anatomy", head=head("anatomy", "anatomy.css"))
    return mount(app, explore.blocks(explore.Explore(shelf, store)), path="/", head=head("explore"))


def main(argv: list[str] | None = None) -> None:
    asked = arguments(argv)
    import uvicorn

    from model.errors import BlockscopeError

    try:
        app = build(asked.model, device=asked.device, dtype=asked.dtype, max_tokens=asked.max_tokens, memory=asked.memory)
    except BlockscopeError as error:
        raise SystemExit(f"app.py: {error}") from None
    print(f"Blockscope: http://{asked.host}:{asked.port}", flush=True)
    uvicorn.run(app, host=asked.host, port=asked.port, log_level="warning")


if __name__ == "__main__":
    main()
