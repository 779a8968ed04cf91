"""A prompt that a model can read: one without a tokenizer takes token numbers, where a person may have typed text."""

from viz.opened import LM

WHY = "this model has no tokenizer and takes token numbers: these stand for your text, which is kept for a model that reads it"
SOME = 8  # token numbers that are run in place of a text


def readable(lm: LM, prompt: str) -> tuple[str, str]:
    """The prompt for this model, and a sentence where it is another one: numbers spread over the vocabulary in place of text.

    What was meant as numbers stays as it is, also where one of them is misspelled: the model then says what is wrong.
    """
    words = prompt.replace(",", " ").split()
    if lm.tokenizer is not None or not words or 2 * sum(word.isdigit() for word in words) > len(words):
        return prompt, ""
    rows = lm.config.d_vocab
    numbers = " ".join(str((i + 1) * rows // (SOME + 1)) for i in range(SOME)) if rows > SOME else "0"
    return numbers, WHY
