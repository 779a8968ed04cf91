"""What each `model_type` of a Hugging Face config means: a model config, and the recipe of every parameter."""

from model.checkpoints.families import llama
from model.checkpoints.families.common import Family
from model.checkpoints.fields import Fields, shown
from model.lm import Decoder

FAMILIES: dict[str, Family] = {**llama.FAMILIES}


def config_of(values: dict, where: str = "config.json") -> tuple[Decoder.Config, Family, list[str]]:
    """(model config, family, notes) of a parsed config.json; errors name the field, its value and what was expected."""
    fields = Fields(values, where)
    kind = fields.raw("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        said = "is missing" if kind is None else f"is {shown(kind)}"
        raise fields.fail(f"model_type {said}; the types that can be opened are {', '.join(FAMILIES)}")
    for name in ("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"):
        fields.only(name, (False,), "only decoder-only models can be opened")
    fields.only("quantization_config", ({},), "the weights are quantised; save the model in bfloat16 first")
    config = FAMILIES[kind].read(fields)
    fields.judge_the_rest(kind)
    return config, FAMILIES[kind], fields.notes
