"""python -m model.growth ship: train the pair of small models that ships with Blockscope."""

import argparse
from dataclasses import replace
from pathlib import Path

from model.growth.ship import ARMS, RECIPE, ship, train_arm

FOLDER = Path(__file__).parents[2] / "assets" / "checkpoints"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m model.growth", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("ship", help="train the shipped pair, with and without QK-norm")
    command.add_argument("--out", type=Path, default=FOLDER, help="folder that receives code-qknorm-off and code-qknorm-on")
    command.add_argument("--arm", choices=ARMS, help="only this arm")
    command.add_argument("--steps", type=int, default=RECIPE.steps, help=f"{RECIPE.steps} for the models that ship")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps must be at least 1, got {args.steps}")
    if args.arm is None:
        ship(args.out, args.steps)
    else:
        train_arm(args.arm, args.out / f"code-qknorm-{args.arm}", replace(RECIPE, steps=args.steps))


if __name__ == "__main__":
    main()
