"""From a click to the painted chart, in headless Chromium on this machine.

python tests/benchmarks/clicks.py [--model SOURCE] [--rounds 3]

"painted": the large picture is drawn and the frame after it has begun; "complete": so are all the others. The page is
opened once, the model runs once; then heads, stages, layers and nodes are chosen as a person would, one at a time.
"""

import argparse
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import browser as b  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

import app  # noqa: E402

TIMED = """({selector, value, event}) => new Promise((done) => {
    const page = document.querySelector("#bs"), control = document.querySelector(selector);
    const before = page.dataset.painted, began = performance.now();
    let painted = 0;
    if (value !== null) { control.value = value; control.dispatchEvent(new Event(event, {bubbles: true})); }
    else control.dispatchEvent(new MouseEvent("click", {bubbles: true}));
    const look = () => {
        if (!painted && page.dataset.painted !== before) painted = performance.now() - began;
        if (painted && page.dataset.complete === page.dataset.painted) done([painted, performance.now() - began]);
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
})"""


def choices(heads: int, layers: int) -> dict[str, list[tuple[str, str | None, str]]]:
    """What is chosen, in order: (selector, value or None for a click, event)."""
    nodes = ["ln1", "q", "gate", "logits", "resid_mid", "rope", "post", "logits"]
    return {
        "head": [("#head", str(i % heads), "change") for i in range(1, 9)],
        "stage": [(f'input[value="{stage}"]', None, "") for stage in ("raw", "masked", "pattern", "scaled")],
        "layer": [("#layer", str(i % layers), "input") for i in range(1, 9)],
        "node": [(f'.standing [data-node="{node}"]', None, "") for node in nodes],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with b.serving(app.build(asked.model)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=b.chromium(), args=b.FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        b.visit(page, address)
        heads = page.evaluate("document.querySelector('#head').length")
        layers = page.evaluate("Number(document.querySelector('#layer').max) + 1")
        every: list[list[float]] = []
        for name, steps in choices(heads, layers).items():
            times = []
            for selector, value, event in steps * asked.rounds:
                times.append(page.evaluate(TIMED, {"selector": selector, "value": value, "event": event}))
                page.wait_for_timeout(150)
            every += times
            report(name, times)
        report("all", every)
        browser.close()


def report(name: str, times: list[list[float]]) -> None:
    painted, complete = (sorted(column) for column in zip(*times, strict=True))
    print(f"{name:6} {len(times):3} clicks   painted: median {statistics.median(painted):4.0f} ms, slowest {painted[-1]:4.0f} ms"
          f"   complete: median {statistics.median(complete):4.0f} ms, slowest {complete[-1]:4.0f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
