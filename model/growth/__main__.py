"""python -m model.growth train|sweep|show|survey|ship: train small models with what holds attention logits, and look at any."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from model.errors import BlockscopeError, printable_lines
from model.growth import shell, surveys
from model.growth.ship import ARMS, RECIPE, ship, train_arm
from model.growth.show import show
from model.growth.stress import COMMANDS, ship_stress

FOLDER = Path(__file__).parents[2] / "assets" / "checkpoints"
PROGRAM = "python -m model.growth"


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    commands = main.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "train", help="train one arm, or two that differ in one thing, and record every layer and head"
    )
    shell.add_options(command, several=False)
    command.set_defaults(run=shell.command)
    command = commands.add_parser("sweep", help="the same for every combination of learning rates, seeds and fixes")
    shell.add_options(command, several=True)
    command.set_defaults(run=shell.command)
    command = commands.add_parser("show", help="the final values of a record per layer, or of every record in a folder")
    command.add_argument("path", type=Path, metavar="RECORD|FOLDER")
    form = command.add_mutually_exclusive_group()
    for name, what in (("json", "as JSON, with everything that decided the run"), ("csv", "as CSV: a record's every probe")):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, default="table", help=what)
    command.set_defaults(run=lambda options: print(printable_lines(show(options.path, options.form))))
    command = commands.add_parser("survey", help="largest logits of a checkpoint's every layer and head, and what bounds them")
    surveys.add_options(command)
    command.set_defaults(run=surveys.command)
    command = commands.add_parser("ship", help="train the shipped pair of code models, with and without QK-norm")
    command.add_argument("--out", type=Path, default=FOLDER, help="folder that receives code-qknorm-off and code-qknorm-on")
    command.add_argument("--arm", choices=ARMS, help="only this arm")
    command.add_argument("--steps", type=int, default=RECIPE.steps, help=f"{RECIPE.steps} for the models that ship")
    command.set_defaults(run=shipping)
    wanted = " ".join(f"({i}) {line}" for i, line in enumerate(COMMANDS, 1))
    command = commands.add_parser("ship-stress", help="the stress pair as it ships, from its runs", epilog=f"runs: {wanted}")
    command.add_argument("runs", type=Path, help="the --out folder of the runs that the model cards speak of")
    command.add_argument("--out", type=Path, default=FOLDER, help="folder that receives code-stress-qknorm-off and -on")
    command.set_defaults(run=lambda options: ship_stress(options.runs, options.out))
    return main


def shipping(options: argparse.Namespace) -> None:
    recipe = replace(RECIPE, steps=options.steps)
    if options.arm is None:
        ship(options.out, recipe.steps)
    else:
        train_arm(options.arm, options.out / f"code-qknorm-{options.arm}", recipe)


def main(argv: list[str] | None = None) -> None:
    """Exit code 2 and one sentence for whatever a person can correct."""
    options = parser().parse_args(argv)
    try:
        options.run(options)
    except BlockscopeError as error:
        sys.exit(_said(str(error)))
    except BrokenPipeError:  # the reader of the table has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.exit(_said(f"{error.filename or 'the folder'} cannot be written or read: {error.strerror}"))
    except KeyboardInterrupt:
        goes_on = "; the same command goes on from the last checkpoint" if options.run is shell.command else ""
        sys.exit(_said(f"stopped{goes_on}"))


def _said(sentence: str) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
