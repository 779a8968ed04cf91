"""Tokens against rows of the embedding: more tokens than rows cannot be run, many more rows than tokens are another model's."""

from model.checkpoints.fields import listed, shown
from model.checkpoints.inspection import Inspection
from model.doctor.finding import Check

ROUND = (1024, 512, 256, 128, 64, 8)  # multiples to which trainers pad a vocabulary
PADDING, SHARE = 1024, 0.25  # rows without a token that padding explains, and their share of the tokens
ANOTHER = 1024  # so many tokens beyond the rows are not added ones any more
CURE = "take the one that was saved with these weights"


def judge(seen: Inspection) -> Check:
    rows, tokenizer = seen.config.d_vocab, seen.tokenizer
    if tokenizer is None:
        why = next(
            (note for note in seen.notes if "as token numbers" in note), "there is no tokenizer: prompts are token numbers"
        )
        return Check.skipped("vocabulary", why)
    size, file = tokenizer.size, _file(seen)
    about = f"{size:,} tokens of {file} for {rows:,} rows of the embedding"
    warnings, notes = [], []
    if size > rows:
        beyond = [f"{n} {shown(tokenizer.token(n), 24)}" for n in range(rows, min(size, rows + 1000)) if tokenizer.token(n)]
        which = f"{size - rows:,} token{'s' if size - rows > 1 else ''} beyond the last row cannot be run ({listed(beyond, 3)})"
        cure = f"it is the tokenizer of another model: {CURE}" if size - rows > ANOTHER else (
            f"tokens were added to it and not to the weights, or it is another model's: {CURE}"
        )  # fmt: skip
        warnings.append(f"{file} has {size:,} tokens and the embedding {rows:,} rows: {which}; {cure}")
    elif (spare := rows - size) > min(PADDING, SHARE * size):
        warnings.append(
            f"{spare:,} of {rows:,} rows of the embedding have no token in {file}, more than padding explains: it may be the "
            f"tokenizer of another model, or cut; {CURE}"
        )
    elif spare:
        multiple = next((n for n in ROUND if rows == -(-size // n) * n), None)
        why = f"padding to a multiple of {multiple}, as usual" if multiple else "spare rows, as some models keep"
        notes.append(f"{spare:,} of {rows:,} rows of the embedding have no token in {file}: {why}")
    warnings += _first(seen, file)
    return Check.of("vocabulary", about, warnings, notes)


def _first(seen: Inspection, file: str) -> list[str]:
    """The token that opens every text, by the tokenizer and by the config: two models of one size differ here."""
    field = next((field for field in seen.fields if field.name == "bos_token_id"), None)
    said, put = field.value if field else None, seen.tokenizer.bos
    if not isinstance(said, int) or isinstance(said, bool) or put is None or put == said:
        return []
    sentence = f"{file} opens a text with token {put} and bos_token_id is {said} in {field.origin}"
    return [f"{sentence}: tokenizer and weights may belong to two models; {CURE}"]


def _file(seen: Inspection) -> str:
    names = [file.name for file in seen.files]
    return next((name for name in names if "tokenizer" in name), names[0] if names else "the tokenizer")
