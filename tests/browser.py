"""A real Chromium on a real server: how the browser tests find one, start the other and wait for what they asked."""

import os
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import hostile
import uvicorn
from playwright.sync_api import Page, sync_playwright

SHOTS = Path(__file__).parent.parent / "build" / "screenshots"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
HOSTILE = hostile.MARKUP
COMPLETE = """(node) => {
    const page = document.querySelector("#bs");
    if (!page || !(Number(page.dataset.ready) > 0) || page.dataset.complete !== page.dataset.ready) return false;
    const chosen = document.querySelector('[data-node][aria-pressed="true"]');
    return !document.querySelector("[data-busy]") && (!node || chosen?.dataset.node === node);
}"""


def chromium() -> str | None:
    """BLOCKSCOPE_CHROMIUM, else one on PATH, else playwright's own; None where there is none."""
    named = os.environ.get("BLOCKSCOPE_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found:
        return found
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


@contextmanager
def serving(app):
    """Run an app on a free port of this machine; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server ended while starting"
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(5)


def settle(page: Page, node: str | None = None) -> None:
    """Wait until the page has drawn everything that belongs to its newest answer (never for an idle network: it streams)."""
    page.wait_for_function(COMPLETE, arg=node, timeout=60_000)
    page.wait_for_timeout(60)


def visit(page: Page, address: str, node: str | None = None) -> None:
    page.goto(address)
    settle(page, node)


def token(page: Page) -> int:
    return int(page.evaluate("document.querySelector('#bs').dataset.ready || '0'"))


def after(page: Page, act, node: str | None = None) -> None:
    """Do something that changes the view, and wait for the answer to it."""
    before = token(page)
    act()
    page.wait_for_function(
        "(before) => Number(document.querySelector('#bs').dataset.ready) > before", arg=before, timeout=60_000
    )
    settle(page, node)


def run(page: Page, prompt: str) -> None:
    page.fill("#prompt", prompt)
    after(page, lambda: page.press("#prompt", "Enter"))


def click_node(page: Page, node: str) -> None:
    after(page, lambda: page.locator(f'.block-svg:visible [data-node="{node}"] .box').click(), node)


def main_trace(page: Page) -> dict:
    """What the browser really drew in the large picture: the values of its first heatmap, and its axes."""
    return page.evaluate(
        """() => {
        const gd = document.querySelector("#cards-main .gd");
        const full = gd._fullData.find((trace) => trace.type === "heatmap");
        const rows = gd.calcdata[full.index][0].z;
        const axis = (name) => { const a = gd._fullLayout[name]; return {type: a.type, range: [...a.range], text: a.ticktext}; };
        return {z: rows.map((row) => [...row].map((v) => Number.isFinite(v) ? v : null)), x: axis("xaxis"), y: axis("yaxis")};
    }"""
    )


def crossed_titles(page: Page) -> list[str]:
    """Axis titles of the pictures on the page that reach into the band of their axis's tick labels.

    Not under a colour bar: there plotly keeps a title off each label by itself, and only of those in its way."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".gd")].filter((gd) => gd.offsetParent && gd._fullLayout.coloraxis?.colorbar?.orientation !== "h").flatMap((gd) => {
        const crosses = (title) => {
            const [axis] = title.getAttribute("class").match(/[xy]\\d*(?=title)/);
            const ticks = [...gd.querySelectorAll("." + axis + "tick text")].map((node) => node.getBoundingClientRect());
            const box = title.getBoundingClientRect();
            if (axis[0] === "x") return box.top < Math.max(...ticks.map((t) => t.bottom)) - 1;
            return box.right > Math.min(...ticks.map((t) => t.left)) + 1;
        };
        const titles = [...gd.querySelectorAll(".infolayer text[class*=title]")].filter((t) => t.textContent && /[xy]\\d*title/.test(t.getAttribute("class")));
        return titles.filter(crosses).map((t) => t.textContent + " in " + gd.getAttribute("aria-label"));
    })"""
    )


def shot(page: Page, name: str, full: bool = False) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=full)
