"""Changes of parts as a link carries them: "norm=layernorm,rope_base=500000". Which parts there are, the model knows."""

import re
from collections.abc import Mapping

PIECE = re.compile(r"[a-z_0-9]{1,40}[=:][A-Za-z0-9_.+-]{1,40}")


def pieces(text: str) -> list[str]:
    """The parts of a text, well formed or not."""
    return [piece for piece in re.split(r"[,;]", text) if piece]


def changes(text: str) -> dict[str, str]:
    """ "qk_norm=head,window=64" -> {"qk_norm": "head", "window": "64"}; what is not part=value is left out, the last wins."""
    return dict(re.split("[=:]", piece, maxsplit=1) for piece in pieces(text) if PIECE.fullmatch(piece))


def spelled(found: Mapping[str, str]) -> str:
    """The one spelling of these changes, so that equal views have equal links."""
    return ",".join(f"{part}={value}" for part, value in sorted(found.items()))


def cleaned(text: str) -> tuple[str, str | None]:
    """A text from outside -> its one spelling, and the first piece that is not part=value."""
    wrong = next((piece for piece in pieces(text) if not PIECE.fullmatch(piece)), None)
    return spelled(changes(text)), wrong
