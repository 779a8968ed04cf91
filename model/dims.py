"""The vocabulary of axis names: every tap, view and docstring uses these words and no others."""

AXES = {
    "batch": "independent sequences",
    "pos": "token position",
    "query_pos": "position of the token that attends",
    "key_pos": "position of the token attended to",
    "d_model": "width of the residual stream",
    "head": "query head",
    "kv_head": "key/value head; query head h reads kv_head h // (heads / kv_heads)",
    "d_head": "width of one head",
    "pair": "rotated pair of coordinates of a head",
    "d_mlp": "neuron of the MLP",
    "d_latent": "width of a compressed query or key/value vector (multi-head latent attention)",
    "expert": "expert of a mixture",
    "topk": "rank among the chosen experts",
    "d_vocab": "entry of the vocabulary",
    "layer": "block, counted from 0",
    "1": "an axis kept at length one after a reduction, so that x / scale broadcasts",
}


def parse(dims: str) -> tuple[str, ...]:
    """`"batch pos d_model"` -> `("batch", "pos", "d_model")`; an unknown word is an error."""
    names = tuple(dims.split())
    if unknown := [name for name in names if name not in AXES]:
        raise ValueError(f"unknown axis name {unknown[0]!r}; the vocabulary is {', '.join(AXES)}")
    return names
