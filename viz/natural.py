"""The order in which a person counts: layer 2 before layer 10."""

import re

DIGITS = re.compile(r"(\d+)", re.ASCII)


def natural(name: str) -> tuple:
    """A key to sort names by: their numbers as numbers, the rest as text."""
    pieces = DIGITS.split(name)  # text and digits in turn
    return tuple((int(piece[:4000]), len(piece)) if i % 2 else (piece.casefold(), piece) for i, piece in enumerate(pieces))
