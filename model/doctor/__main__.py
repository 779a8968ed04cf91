"""What may be wrong with a model's files: python -m model.doctor SOURCE. Exits 0, 1 with warnings, 2 where it is refused."""

import argparse
import json
import sys

from model.doctor import examine
from model.doctor.report import as_json, as_text
from model.errors import BlockscopeError, printable


def progress(done: int, total: int, what: str) -> None:
    """One line that is written over, where somebody watches."""
    if sys.stderr.isatty():
        percent = f"\r\x1b[K{100 * done // max(total, 1)} % {printable(what)}"
        print(percent, end="" if done < total else "\r\x1b[K", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m model.doctor", description=__doc__)
    parser.add_argument("source", help="a model's folder or weight file, or a hub id")
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--quick", action="store_true", help="do not run the first layers")
    asked = parser.parse_args(argv)
    try:
        found = examine(asked.source, progress, run=not asked.quick)
    except BlockscopeError as error:
        print(json.dumps({"exit_code": 2, "refused": str(error)}) if asked.json else f"refused: {error}")
        return 2
    print(json.dumps(as_json(found), indent=1) if asked.json else as_text(found))
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
