"""Steps per second of a growth run with everything that it measures, against the bare loop, alternating in one process.

python tests/benchmarks/training.py [--size S] [--steps 60] [--rounds 5]
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))

from model.growth.corpus import Corpus, standard_library
from model.growth.initial import initialised
from model.growth.probing import windows
from model.growth.recipe import Recipe
from model.growth.shell import SNAPSHOTS
from model.growth.sizes import SIZES, base_arm
from model.growth.train import Training, adamw


def bare(arm, corpus: Corpus, steps: int) -> float:
    """Seconds of the loop that a training script would have: nothing measured but the loss of the batch."""
    recipe: Recipe = arm.recipe
    model, generator = initialised(arm.config, recipe.seed), torch.Generator().manual_seed(recipe.seed)
    optimizer = adamw(model, recipe)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, recipe.lr_factor)
    began = time.perf_counter()
    for _ in range(steps):
        starts = torch.randint(len(corpus.train) - recipe.context - 1, (recipe.batch,), generator=generator)
        tokens = windows(corpus.train, starts, recipe.context + 1)
        logits = model(tokens[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(logits, tokens[:, 1:].flatten()) + recipe.z_loss * logits.logsumexp(-1).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        schedule.step()
        loss.item()
    return time.perf_counter() - began


def measured(arm, corpus: Corpus, steps: int) -> float:
    """Seconds of the same steps as the page takes them: probes, validation losses, snapshots, one event a step."""
    training = Training(arm, corpus, snapshots=SNAPSHOTS)
    training.advance()  # what is measured before the first step
    began = time.perf_counter()
    for _ in range(steps):
        training.advance()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--steps", type=int, default=50, help="of each round; 50 hold 5 probes and a validation loss")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus, arm = standard_library(), base_arm(options.size, lr=0.1)
    bare(arm, corpus, 5), measured(arm, corpus, 5)  # warm
    pairs = [(bare(arm, corpus, options.steps), measured(arm, corpus, options.steps)) for _ in range(options.rounds)]
    rates = [[options.steps / seconds for seconds in pair] for pair in pairs]
    for (plain, full), i in zip(rates, range(1, options.rounds + 1), strict=True):
        print(f"round {i}: bare {plain:6.2f} steps/s   with everything {full:6.2f}   share {full / plain:.1%}")
    share = statistics.median(full / plain for plain, full in rates)
    plain, full = (statistics.median(side) for side in zip(*rates, strict=True))
    print(f"{options.size}: bare {plain:.2f} steps/s, with everything {full:.2f}, share {share:.1%} (medians; goal 85%)")


if __name__ == "__main__":
    main()
