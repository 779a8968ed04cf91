"""Steps per second of a live run as the Growth page streams it, against the bare loop of both arms, alternating in one process.

python tests/benchmarks/live.py [--size S] [--steps 350] [--rounds 2]

The page's side is everything up to the browser: both arms, probes, records, every message packed as JSON. The text is read
and counted before: an app does that once, whoever trains.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from training import bare  # noqa: E402

from model.growth.sizes import SIZES  # noqa: E402
from viz.growth_state import GrowthState  # noqa: E402
from viz.pages.growth import Files  # noqa: E402
from viz.pages.growth_live import arms  # noqa: E402
from viz.pages.growth_stage import Stage  # noqa: E402
from viz.pages.growth_texts import Texts, standard  # noqa: E402
from viz.shelf import Shelf  # noqa: E402
from viz.store import Store  # noqa: E402
from viz.theme import LIGHT  # noqa: E402


def streamed(state: GrowthState) -> float:
    """Seconds of one live run, from the click to the last message."""
    stage = Stage(Shelf({"none": "tiny-llama"}, lambda source: None), Store(), Files(), Texts())
    began = time.perf_counter()
    last = ""
    for answer in stage.train(state, LIGHT, 1):
        last = json.loads(json.dumps(answer))["kind"]
    assert last == "ended"
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    state = GrowthState(size=options.size, live_steps=options.steps)
    left, right, _ = arms(state)
    began = time.perf_counter()
    text = standard()
    text.described()
    print(f"reading the text and counting its n-grams, once an app: {time.perf_counter() - began:.1f} s, in no share below")
    bare(left, text, 10)  # warm
    shares = []
    for _ in range(options.rounds):
        plain = bare(left, text, options.steps) + bare(right, text, options.steps)
        live = streamed(state)
        shares.append(plain / live)
        print(f"bare {2 * options.steps / plain:.2f} steps/s   live {2 * options.steps / live:.2f}   share {plain / live:.1%}")
    print(f"{options.size}: median share {statistics.median(shares):.1%} (goal 85%)")


if __name__ == "__main__":
    main()
