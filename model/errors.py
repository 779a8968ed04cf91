"""The one error that a person may cause: its text is a sentence to show as it is."""


def printable(text: str) -> str:
    """A name out of a file or from a person, fit for a terminal and one line: control characters as their escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """The same of a text whose own line ends stay."""
    return "\n".join(printable(line.removesuffix("\r")) + "\r" * line.endswith("\r") for line in text.split("\n"))


class BlockscopeError(ValueError):
    """What was wrong, where, what was expected, what to do. Pages show `str(error)` and nothing else."""

    def __init__(self, sentence: str = ""):
        super().__init__(printable(sentence))


class UnknownTap(BlockscopeError, KeyError):
    """A tap was asked for that this model does not have, or that never fired."""

    __str__ = ValueError.__str__  # KeyError would print the repr of the sentence


class TooLarge(BlockscopeError):
    """The work was refused before it ran; the sentence says what it would have cost."""
