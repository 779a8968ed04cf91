"""What Explore costs against the plain forward of the same model, as ratios taken in one run.

python tests/benchmarks/explore.py FOLDER [--tokens 256] [--rounds 9] [--threads 2]

FOLDER: a model, e.g. the smollm2-135m that tests/real_models.py writes. Times are the fastest of rounds that alternate
between the contenders, since other work on the machine only ever adds; peaks are of one fresh process each. A change of head,
stage, layer or node is timed as the page's own handler answers it: numbers, identities, pictures, packed for the browser.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from model import load  # noqa: E402
from viz.pages import answers  # noqa: E402
from viz.pages.explore import Explore  # noqa: E402
from viz.shelf import Run, Shelf  # noqa: E402
from viz.state import UiState  # noqa: E402
from viz.store import Store  # noqa: E402


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def prompts(lm, count: int, length: int) -> list[list[int]]:
    """Different prompts, since a prompt that was run once is remembered."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(lm.config.d_vocab, (length,), generator=generator).tolist() for _ in range(count)]


def first_run(lm, tokens: list[int], state: UiState) -> None:
    """The page's own run: every number of the diagram, the layer strip, the stream's figures, one layer's identities and node."""
    lm.views(tokens, answers.run_requests(lm, tokens, state), checking=state.layer)


def ratios(folder: str, length: int, rounds: int) -> dict:
    lm = load(folder, device="cpu", dtype="fp32")
    explore = Explore(Shelf({"m": folder}, lambda source: lm), Store())
    state = UiState(model="m", layer=lm.config.n_layers // 2, head=1, node="logits")
    texts = prompts(lm, 2 * rounds + 2, length)
    changes = {
        "head": {"head": 2},
        "stage": {"stage": "pattern"},
        "layer": {"layer": state.layer + 3},
        "node": {"node": "gate"},
    }
    plain, first, again = [], [], {name: [] for name in changes}
    explore.shelf.model("m")

    def look(tokens: list[int], **change) -> None:
        asked = {"model": "m", "prompt": str(tokens), "layer": state.layer, "head": 1} | change
        assert explore.look({"token": 1, "state": asked})["kind"] == "view"

    def opened(tokens: list[int]) -> float:
        seconds = timed(lambda: first_run(lm, tokens, state))
        peaks = answers.peaks(lm, tokens)
        explore.shelf.keep("m", "", str(tokens), Run(lm, tuple(tokens), tuple(lm.pieces(tokens)), peaks, seconds))
        look(tokens)
        return seconds

    lm.forward(texts.pop())
    opened(texts.pop())  # weights read, validators built
    for i in range(rounds):
        plain.append(timed(lambda: lm.forward(texts[2 * i])))  # noqa: B023
        tokens = texts[2 * i + 1]
        first.append(opened(tokens))
        for name, change in changes.items():
            again[name].append(timed(lambda: look(tokens, **change)))  # noqa: B023
    base = min(plain)
    return {
        "plain forward, seconds": base,
        "first run / plain forward": min(first) / base,
        **{f"change of {name} / plain forward": min(times) / base for name, times in again.items()},
    }


def peak(folder: str, length: int, what: str) -> float:
    """Peak resident memory in MB of a process that only does `what`."""
    lm = load(folder, device="cpu", dtype="fp32")
    (tokens,) = prompts(lm, 1, length)
    if what == "plain":
        lm.forward(tokens)
    else:
        first_run(lm, tokens, UiState(layer=lm.config.n_layers // 2))
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would start at the parent's own peak
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", choices=["plain", "explore"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.peak:
        print(peak(args.folder, args.tokens, args.peak))
        return
    result = ratios(args.folder, args.tokens, args.rounds)
    command = [sys.executable, __file__, args.folder, "--tokens", str(args.tokens), "--threads", str(args.threads), "--peak"]
    peaks = {what: float(subprocess.check_output([*command, what]).split()[-1]) for what in ("plain", "explore")}
    result |= {f"peak of {what}, MB": mb for what, mb in peaks.items()} | {"peak ratio": peaks["explore"] / peaks["plain"]}
    print(json.dumps({name: round(value, 4) for name, value in result.items()}, indent=1))


if __name__ == "__main__":
    main()
