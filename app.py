"""Blockscope in a browser: python app.py [--model SOURCE]. The same file starts it as a Hugging Face Space."""

import argparse
import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

SHIPPED = Path(__file__).parent / "assets" / "checkpoints"
SETTLED = 30  # seconds after the start
RANDOM = "random weights"  # the heading of the presets
BELOW = "in the model folders"  # of what --model-dir found


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="app.py", description="Open the block of a decoder-only language model in a browser.")
    source = "a model, a directory of one run's checkpoints, or a preset; may be given several times, the first is shown first"
    parser.add_argument("--model", action="append", default=[], metavar="SOURCE", help=source)
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("GRADIO_SERVER_PORT", "7860")))
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda:1, mps, or several: cuda:0,cuda:1")
    parser.add_argument("--dtype", default=None, help="fp32, bf16 or fp16; default: what suits the device")
    parser.add_argument("--memory", default=None, help="weights kept in memory, such as 4GB; a larger model streams through")
    parser.add_argument("--max-tokens", type=int, default=1024, help="the longest prompt that is run")
    below = "a folder whose models, at any depth, visitors may open by name; may be given several times"
    parser.add_argument("--model-dir", action="append", default=[], metavar="DIR", help=below)
    texts = "a text file or folder that live runs on the Growth page may read by its name; may be given several times"
    parser.add_argument("--text", action="append", default=[], metavar="PATH", help=texts)
    parser.add_argument("--allow-hub", action="store_true", help="visitors may type ids of the Hugging Face hub (org/name)")
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Shelved:
    """Name on the page -> source, in the order of the chooser; which is shown first; entries that stand under a heading."""

    sources: dict[str, str]
    shown_first: str
    groups: dict[str, list[str]]


def shelved(asked: Iterable[str], presets: Iterable[str] = ()) -> Shelved:
    """The models that ship, what was asked for, then presets with random weights. Two folders of one name stay apart."""
    asked = list(dict.fromkeys(asked))
    runs = {source: steps for source in asked if len(steps := checkpoints(source)) > 1}
    shipped = sorted(str(path.parent) for path in SHIPPED.glob("*/config.json"))
    named: dict[str, str] = {}
    steps = {step: f"{Path(source).name} {Path(step).name}" for source, found in runs.items() for step in found}
    for source in dict.fromkeys([*shipped, *(s for s in asked if s not in runs), *steps, *presets]):
        name = steps.get(source) or Path(source).name or source
        while name in named:
            name += "′"
        named[name] = source
    first = next((name for name, source in named.items() if asked and source in (asked[0], *runs.get(asked[0], ()))), "")
    random = [name for name, source in named.items() if source not in (*shipped, *asked, *steps)]
    of_runs = {f"{Path(s).name}: training steps": [n for n, o in named.items() if o in found] for s, found in runs.items()}
    return Shelved(named, first, of_runs | ({RANDOM: random} if random else {}))


def checkpoints(source: str) -> list[str]:
    """The checkpoints below a folder that is none itself, by the step that their names end in: a directory of one run."""
    folder = Path(source).expanduser()
    if not folder.is_dir() or os.path.lexists(folder / "config.json"):
        return []
    below = [(re.search(r"(\d+)\D*$", path.parent.name), path.parent) for path in folder.glob("*/config.json")]
    return [str(path) for _, path in sorted((int(found[1]), path) for found, path in below if found)]


def check(asked: argparse.Namespace) -> None:
    """Refuse at once what can never work; a model that is there but damaged is refused when it is opened."""
    from model.errors import BlockscopeError
    from model.load import pick_devices, pick_dtype, require
    from model.memory import parse

    devices = pick_devices(asked.device)
    pick_dtype(asked.dtype, devices[0], None)
    if asked.memory is not None and len(devices) > 1 and asked.device != "auto":
        raise BlockscopeError("--memory bounds a model that streams through one device; name one device, or leave it out")
    if asked.memory is not None:
        parse(asked.memory)
    for name, value, most in (("--max-tokens", asked.max_tokens, 1 << 20), ("--port", asked.port, 65_535)):
        if not 1 <= value <= most:
            raise BlockscopeError(f"{name} is {value}; expected a whole number from 1 to {most:,}")
    for source in asked.model:
        require(source)


def build(
    models: Mapping[str, object] | Iterable[str] = (), *, device="auto", dtype=None, max_tokens: int = 1024, memory=None,
    model_dirs: Iterable[str] = (), allow_hub: bool = False, texts: Iterable[str] = (),
):  # fmt: skip
    """The whole web app (FastAPI). `models`: sources, beside which the shipped models and small presets stand; or just
    name -> source. `model_dirs`, `allow_hub`: what visitors may open besides; `texts`: what live runs may read."""
    from model import PRESETS, load
    from viz.library import Library
    from viz.shelf import Shelf

    opener, library = partial(_opened, partial(load, device=device, dtype=dtype, memory=memory)), Library(model_dirs, allow_hub)
    if isinstance(models, Mapping):
        return web(Shelf(models, opener, max_tokens=max_tokens, library=library), texts)
    found = shelved(models, [name for name in PRESETS if name.startswith("tiny-")])
    below = {name: source for name, source in library.names().items() if name not in found.sources}
    groups = ({BELOW: list(below)} if below else {}) | found.groups
    sources = found.sources | below
    first = found.shown_first
    return web(Shelf(sources, opener, max_tokens=max_tokens, shown_first=first, groups=groups, library=library), texts)


def _opened(load, source, **more):
    """The model; a refusal is also printed, since whoever started the app looks at the terminal."""
    from model.errors import BlockscopeError, printable

    try:
        return load(source, **more)
    except BlockscopeError as error:
        print(f"app.py: {printable(source)}: {error}", file=sys.stderr, flush=True)
        raise


def web(shelf, texts: Iterable[str] = ()):
    """The pages over a shelf of models; whatever visitors share is the shelf and the store made here."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "0"  # read when gradio is imported: nothing is sent anywhere
    os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100000")  # its own usage summary costs 7 ms per event
    import gradio as gr

    from model import PRESETS
    from viz.pages import anatomy, compare, explore, growth
    from viz.pages.names import serve_names
    from viz.pages.shell import head, parent
    from viz.store import Store

    store = Store()
    theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    mount = partial(gr.mount_gradio_app, theme=theme, run_history=False, footer_links=[])
    app = parent(store)
    app.state.shelf = shelf
    serve_names(app, shelf)
    app = mount(app, compare.blocks(compare.Compare(shelf, store)), path="/compare", head=head("compare", "compare.css"))
    app = mount(app, growth.blocks(growth.Growth(shelf, store, texts=texts)), path="/growth", head=head("growth", "growth.css"))
    own = {name: source for name, source in shelf.sources.items() if name not in PRESETS}  # it knows all presets anyway
    page = anatomy.blocks(anatomy.Anatomy(store, own))
    app = mount(app, page, path="/anatomy", head=head("anatomy", "anatomy.css"))
    return mount(app, explore.blocks(explore.Explore(shelf, store)), path="/", head=head("explore", "files.css"))


def _open_first(shelf) -> None:
    with suppress(Exception):  # the page says it again
        shelf.model(shelf.name("")[0])


def main(argv: list[str] | None = None) -> None:
    asked = arguments(argv)
    from model.errors import BlockscopeError
    from viz.serving import serve

    try:
        check(asked)
        app = build(
            asked.model, device=asked.device, dtype=asked.dtype, max_tokens=asked.max_tokens, memory=asked.memory,
            model_dirs=asked.model_dir, allow_hub=asked.allow_hub, texts=asked.text,
        )  # fmt: skip
    except BlockscopeError as error:
        print(f"app.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if asked.model:  # opened while the browser starts; what is wrong with it is told here at once
        threading.Thread(target=_open_first, args=(app.state.shelf,), daemon=True).start()
    later = threading.Timer(SETTLED, app.state.pack_better)  # when the first pages are open
    later.daemon = True
    later.start()
    print(f"Blockscope: http://{asked.host}:{asked.port}", flush=True)
    serve(app, asked.host, asked.port)


if __name__ == "__main__":
    main()
