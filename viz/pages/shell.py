"""What stands around the pages: the parent web app, its own files, plotly.js, the figures by key, and response headers.

Everything comes from this app itself. plotly.js is taken from the installed plotly package, so that Python and browser
speak one version; it is compressed once and cached by the browser for good, like the page's own files.
"""

import gzip
import hashlib
import json
import threading
from dataclasses import fields
from functools import cache, partial
from pathlib import Path

import brotli
import plotly
from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from viz.store import Store
from viz.theme import DARK, LIGHT, MONO, SANS, Theme

STATIC = Path(__file__).parent.parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css"}
PAGES = {  # name -> what the navigation calls it, its address below the root
    "explore": ("Explore", ""),
    "compare": ("Compare", "compare/"),
    "growth": ("Growth", "growth/"),
    "anatomy": ("Anatomy", "anatomy/"),
}
FOR_GOOD = "public, max-age=31536000, immutable"
HEADERS = {
    # gradio evaluates component scripts (unsafe-eval) and writes inline styles; nothing may be fetched from elsewhere
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@cache
def own_files() -> dict[str, bytes]:
    """The page's scripts and styles, and the palettes as a style sheet."""
    files = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir()) if path.suffix in TYPES}
    return files | {"theme.css": _palettes().encode()}


@cache
def version() -> str:
    """Changes when any of the page's own files does, so that they can be cached for good."""
    return hashlib.sha256(b"".join(name.encode() + body for name, body in own_files().items())).hexdigest()[:12]


def own_url(name: str) -> str:
    return f"own/{version()}/{name}"


def plotly_url(page: str = "explore") -> str:
    return f"{_up(page)}vendor/plotly-{plotly.__version__}.min.js"


def _up(page: str) -> str:
    """From a page's address to the root: addresses are relative, so that the app may be served below any path."""
    return "../" if PAGES[page][1] else ""


def template(name: str, page: str = "explore") -> str:
    """A page's constant HTML with its navigation. Gradio reads it as Handlebars and as a JS template: neither may occur."""
    text = (STATIC / name).read_text(encoding="utf-8").replace("<!-- pages -->", _navigation(page))
    assert not any(mark in text for mark in ("{{", "${", "`", "\\")), f"{name} holds template syntax"
    return text


def _navigation(page: str) -> str:
    """Links from one page to the others."""
    links = []
    for name, (title, address) in PAGES.items():
        here = ' aria-current="page"' if name == page else ""
        links.append(f'<a class="tab" data-page="{name}" href="{_up(page)}{address or "./"}"{here}>{title}</a>')
    return "".join(links)


def head(page: str, *sheets: str) -> str:
    """The style sheets of a page, for gradio's `head`."""
    return "".join(f'<link rel="stylesheet" href="{_up(page)}{own_url(name)}">' for name in ("theme.css", "page.css", *sheets))


def on_load(page: str, script: str, start: str, **more: object) -> str:
    """What gradio runs once a component of a page is there: `start` of the page's own script, given how to reach the component
    and whatever else is named."""
    given = ", ".join(["element, trigger, props, watch", *(f"{name}: {json.dumps(value)}" for name, value in more.items())])
    return f"import(new URL({json.dumps(_up(page) + own_url(script))}, document.baseURI)).then((m) => m.{start}({{{given}}}));"


def parent(store: Store) -> FastAPI:
    """The app that the Gradio pages are mounted on."""
    app = FastAPI(title="Blockscope", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(_Headers)
    for _, address in PAGES.values():
        if address:  # /compare -> /compare/, which is where the page's relative addresses start
            app.add_api_route(f"/{address.rstrip('/')}", partial(_slash, address), methods=["GET"])
    packed, lock = {}, threading.Lock()

    @app.get("/own/{wanted}/{name}")
    def own(wanted: str, name: str) -> Response:
        if name not in own_files():
            return Response("there is no such file", 404)
        return Response(own_files()[name], media_type=TYPES[Path(name).suffix], headers={"cache-control": FOR_GOOD})

    @app.get("/vendor/{name}")
    def vendor(name: str, request: Request) -> Response:
        if f"vendor/{name}" != plotly_url():
            return Response("there is no such file", 404)
        encoding = next((e for e in ("br", "gzip") if e in request.headers.get("accept-encoding", "")), "identity")
        with lock:
            if encoding not in packed:
                packed[encoding] = _packed(_plotly(), encoding)
        headers = {"cache-control": FOR_GOOD, "vary": "accept-encoding"}
        return Response(packed[encoding], media_type="text/javascript", headers=headers | _encoded(encoding))

    @app.get("/data/{key}")
    def data(key: str, request: Request) -> Response:
        body = store.get(key)
        if body is None:
            return Response("this figure is no longer kept: ask for the view again", 404)
        encoding = "gzip" if "gzip" in request.headers.get("accept-encoding", "") else "identity"
        body = body if encoding == "gzip" else gzip.decompress(body)
        headers = {"cache-control": "private, max-age=86400, immutable", "vary": "accept-encoding"}
        return Response(body, media_type="application/json", headers=headers | _encoded(encoding))

    def pack_better() -> None:
        """A seventh less of plotly.js for ten seconds of work, which nobody waits for; requests meanwhile get what there is."""
        packed["br"] = brotli.compress(_plotly(), quality=11)

    app.state.pack_better = pack_better
    return app


def _slash(address: str, request: Request) -> RedirectResponse:
    return RedirectResponse(address + (f"?{request.url.query}" if request.url.query else ""))


def _plotly() -> bytes:
    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    # an alias of our own: gradio's plot component sets window.Plotly to another version
    return source.read_bytes() + b"\n;window.BlockscopePlotly=window.Plotly;\n"


def _packed(body: bytes, encoding: str) -> bytes:
    if encoding == "br":
        return brotli.compress(body, quality=5)
    return gzip.compress(body, 6) if encoding == "gzip" else body


def _encoded(encoding: str) -> dict[str, str]:
    return {} if encoding == "identity" else {"content-encoding": encoding}


def _palettes() -> str:
    def block(selector: str, theme: Theme) -> str:
        colours = {f.name: getattr(theme, f.name) for f in fields(theme)}
        lines = "".join(f"--{name}:{value};" for name, value in colours.items() if str(value).startswith("#"))
        return f"{selector} .bs{{{lines}color-scheme:{theme.name};}}\n"

    return block("body", LIGHT) + block("body.dark", DARK) + f".bs{{--sans:{SANS};--mono:{MONO};}}\n"


class _Headers:
    """Adds HEADERS to every answer; plain ASGI, because gradio streams."""

    def __init__(self, app):
        self.app = app
        self.extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope, receive, send):
        async def with_headers(message):
            if message["type"] == "http.response.start":
                message = message | {"headers": [*message.get("headers", []), *self.extra]}
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)
