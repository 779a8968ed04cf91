"""What each `model_type` of a Hugging Face config means: a model config, and the recipe of every parameter."""

from collections.abc import Mapping
from dataclasses import dataclass

from model.checkpoints.families import deepseek, experts, gemma, gpt2, gpt_oss, gptj, llama, llama4, olmo2
from model.checkpoints.families.common import Family
from model.checkpoints.fields import NO_EFFECT, Field, Fields, shown
from model.checkpoints.quantised import Method, read_method
from model.checkpoints.rope import BLOCKS
from model.lm import Decoder

FAMILIES: dict[str, Family] = {
    **llama.FAMILIES,
    **gpt2.FAMILIES,
    **gptj.FAMILIES,
    **olmo2.FAMILIES,
    **gemma.FAMILIES,
    **experts.FAMILIES,
    **llama4.FAMILIES,
    **gpt_oss.FAMILIES,
    **deepseek.FAMILIES,
}

# model_type of a model that also takes images or sound -> the type of its language model, which text_config describes;
# another wrapper is opened where its text_config says itself of which type it is
WRAPPED = {"gemma3": "gemma3_text", "llama4": "llama4_text"}


@dataclass(frozen=True)
class Understood:
    """A parsed config: the model, how its files name things, sentences for the report, and what became of each field."""

    config: Decoder.Config
    family: Family
    notes: tuple[str, ...]
    settings: tuple[Field, ...]
    quantised: Method | None = None


def understand(values: dict, where: str = "config.json", origins: Mapping[str, str] | None = None) -> Understood:
    """A parsed config.json; errors name the field, its value and what was expected."""
    fields = Fields(values, where, origins)
    for name, value in values.items():
        nested = name in BLOCKS or (name.endswith("_config") and name not in NO_EFFECT)
        if nested and not isinstance(value, dict | None):
            raise fields.fail(f"{name} is {shown(value)}; expected null or an object {{...}}: correct it, or remove it")
    kind = fields.raw("model_type")
    wrapped = _wrapped(kind, values)
    if not isinstance(kind, str) or (kind not in FAMILIES and not wrapped):
        said = "is missing" if kind is None else f"is {shown(kind)}"
        raise fields.fail(
            f"model_type {said}; the types that can be opened are {', '.join([*FAMILIES, *WRAPPED])}: choose one of these"
        )
    for name in ("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"):
        fields.only(name, (False,), "only decoder-only models can be opened: choose one")
    method = read_method(fields)
    if wrapped:
        inner = understand(*_language_model(fields, wrapped))
        note = f"of a {kind} model only the language model is opened, from text_config"
        outer = tuple(field for field in fields.settings() if field.name in values and field.name != "text_config")
        return Understood(
            inner.config, inner.family, (note, *inner.notes), (*inner.settings, *outer), method or inner.quantised
        )
    config = FAMILIES[kind].read(fields)
    fields.judge_the_rest(kind)
    return Understood(config, FAMILIES[kind], tuple(fields.notes), fields.settings(), method)


def config_of(values: dict, where: str = "config.json") -> tuple[Decoder.Config, Family, list[str]]:
    """(model config, family, notes) of a parsed config.json."""
    understood = understand(values, where)
    return understood.config, understood.family, list(understood.notes)


def _wrapped(kind: object, values: Mapping[str, object]) -> str | None:
    """The type of the language model inside, if this is a model around one."""
    if not isinstance(kind, str) or kind in FAMILIES or kind in WRAPPED:
        return WRAPPED.get(kind) if isinstance(kind, str) else None
    text = values.get("text_config")
    inner = text.get("model_type") if isinstance(text, dict) else None
    return inner if isinstance(inner, str) and inner in FAMILIES else None


def _language_model(fields: Fields, kind: str) -> tuple[dict, str]:
    """text_config and where it stands; tie_word_embeddings may stand outside it."""
    text = fields.raw("text_config")
    if not isinstance(text, dict):
        raise fields.fail(f"text_config is {shown(text)}; expected an object with the settings of the language model")
    if text.get("model_type", kind) != kind:
        raise fields.fail(
            f"text_config has model_type {shown(text['model_type'])}; expected {kind!r}: download the config again"
        )
    tie = "tie_word_embeddings"
    outer, inner = fields.raw(tie), text.get(tie)
    if outer is not None and inner is not None and outer != inner:
        raise fields.fail(f"{tie} is {shown(outer)} but text_config.{tie} is {shown(inner)}; make them equal")
    text = {"model_type": kind} | text | ({} if outer is None else {tie: outer})
    return text, f"{fields.where}, text_config"
