"""What a change in the last layer costs on Compare, against a full forward of the same model, as ratios taken in one run.

python tests/benchmarks/compare.py FOLDER [--tokens 256] [--rounds 7] [--threads 2]

FOLDER: a model, e.g. the smollm2-135m that tests/real_models.py writes. Times are medians of rounds that alternate between
the contenders, so that a noisy machine slows all of them. "answers": every tensor of the layer compared, next tokens and KL;
"first": nothing of A is remembered but the residual stream, "again": A has been compared on this prompt before, as it has on
the page once a view is open. "page": the handler's whole answer, with pictures, identities and the losses of every token left
out, as they come later.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from model import load  # noqa: E402
from model.compare import Lockstep, Side  # noqa: E402
from viz.pages.compare import Compare  # noqa: E402
from viz.shelf import Shelf  # noqa: E402
from viz.store import Store  # noqa: E402

PARTS = {"QK-norm": {"qk_norm": "head"}, "MLP": {"mlp": "reglu"}, "RoPE base": {"rope_base": "10000"}, "eps": {"eps": "1e-3"}}


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compared(lm, other, tokens: list[int]) -> None:
    lock = Lockstep([Side(lm), Side(other)], tokens)
    for _ in lock.walk():
        pass
    lock.outcomes()


def ratios(folder: str, length: int, rounds: int) -> dict:
    lm = load(folder, device="cpu", dtype="fp32")
    lm.tokenizer = None  # the page then reads token numbers
    last = lm.config.n_layers - 1
    sides = {name: lm.variant(layers=range(last, last + 1), **change) for name, change in PARTS.items()}
    compare = Compare(Shelf({"m": folder}, lambda source: lm), Store())
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(lm.config.d_vocab, (length,), generator=generator).tolist() for _ in range(rounds + 1)]
    plain, first, again, page = [], [], {name: [] for name in PARTS}, []

    def look(tokens: list[int], name: str) -> None:
        change = ",".join(f"{part}={value}" for part, value in PARTS[name].items())
        state = {
            "model": "m",
            "prompt": " ".join(map(str, tokens)),
            "quick": "own",
            "b_change": change,
            "b_layers": str(last),
            "layer": last,
        }
        answer = next(a for a in compare.run({"token": 1, "state": state}) if a["kind"] != "progress")
        assert answer["kind"] == "view", answer

    for i, tokens in enumerate(texts):
        plain.append(timed(lambda: lm.forward(tokens)))  # noqa: B023
        lm.residual(tokens, last)
        first.append(timed(lambda: compared(lm, sides["QK-norm"], tokens)))  # noqa: B023
        for name, side in sides.items():
            again[name].append(timed(lambda: compared(lm, side, tokens)))  # noqa: B023
        page.append(timed(lambda: look(tokens, list(PARTS)[i % len(PARTS)])))  # noqa: B023
    base = statistics.median(plain[1:])
    return {
        "plain forward, seconds": base,
        "first answer / plain forward": statistics.median(first[1:]) / base,
        **{f"answer to {name} again / plain forward": statistics.median(times[1:]) / base for name, times in again.items()},
        "page / plain forward": statistics.median(page[1:]) / base,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(
        json.dumps({name: round(value, 4) for name, value in ratios(args.folder, args.tokens, args.rounds).items()}, indent=1)
    )


if __name__ == "__main__":
    main()
