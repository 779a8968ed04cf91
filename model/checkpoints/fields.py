"""config.json, field by field: every field is asked for by name and type, and whatever nobody asked for is judged."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model.errors import BlockscopeError
from model.files import ordinary, readable

LARGEST_CONFIG = 16 << 20  # bytes; a config is a few kilobytes, and anything huge is some other file

# What trainers and libraries leave in a config and no forward pass in evaluation mode reads.
_NO_EFFECT = """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _flash_attn_2_enabled
    _model_name_or_path _name_or_path _num_labels architectures attention_dropout attn_implementation attn_pdrop
    auto_map bad_words_ids begin_suppress_tokens bos_token_id cache_implementation chunk_size_feed_forward cls_token_id
    decoder_start_token_id diversity_penalty do_sample dtype early_stopping embd_pdrop encoder_no_repeat_ngram_size
    eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    gradient_checkpointing hidden_dropout id2label initializer_range is_decoder is_llama_config label2id
    length_penalty mask_token_id max_length max_new_tokens min_length mlp_dropout model_type name_or_path
    no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences output_attentions
    output_hidden_states output_router_logits output_scores pad_token_id prefix pretraining_tp problem_type
    remove_invalid_values repetition_penalty resid_pdrop return_dict return_dict_in_generate sep_token_id
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens
    task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype
    torchscript transformers.js_config transformers_version typical_p unk_token_id unsloth_fixed unsloth_version
    use_bfloat16 use_cache use_flash_attn
"""
NO_EFFECT = frozenset(_NO_EFFECT.split())

# A field that nobody here knows is harmless only when neither its value nor a word of its name says otherwise.
_SUSPECT_BEGINNINGS = """
    adapter alibi attention attn bias chunk clip conv decoder embed encoder expert factor ffn gate kernel latent
    layer logit lora mask mlp moe mrope mscale multiplier nope norm offset parallel pattern quant residual rope
    rotary router sandwich scal shift sink skip softcap sparse ssm temper theta window
"""
SUSPECT_BEGINNINGS = tuple(_SUSPECT_BEGINNINGS.split())
_SUSPECT_WORDS = "act block blocks cap cross head heads kv pos ratio share state tie"
SUSPECT_WORDS = frozenset(_SUSPECT_WORDS.split())


def suspect(name: str) -> bool:
    """Whether a word of a field's name is one that names a part of a block."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return any(word in SUSPECT_WORDS or word.startswith(SUSPECT_BEGINNINGS) or "norm" in word for word in words)


def switched_off(name: str, value: object) -> bool:
    """Whether a field's value says that the part it names is absent: null, false, zero, empty, or a factor of one."""
    if value is None or value is False or value in ("", [], {}):
        return True
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (value == 0 or (value == 1 and name.endswith(("factor", "multiplier", "scale", "scaling"))))


def shown(value: object, limit: int = 60) -> str:
    """A value as an error may quote it: its repr, cut short."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(names, limit: int = 6) -> str:
    """Names joined with commas, the first few and how many more."""
    names = [str(name) for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(name if len(name) <= 120 else name[:119] + "…" for name in names[:limit]) + more


def read_json(path: Path, largest: int) -> dict:
    """The object in a JSON file. Refuses NaN, Infinity, a key given twice, and anything that is not an object."""
    where = f"{path.parent.name}/{path.name}"
    if (size := ordinary(path, where)) > largest:
        raise BlockscopeError(f"{where} is {size:,} bytes; expected at most {largest:,}: this is some other file")
    with readable(where):
        return parse_json(path.read_bytes(), where)


def parse_json(data: bytes, where: str, remedy: str = "download it again") -> dict:
    """The object in a JSON text, with the refusals of `read_json`; `where` names it, `remedy` ends an error."""

    def pairs(items: list[tuple[str, object]]) -> dict:
        seen = dict(items)
        if len(seen) != len(items):
            twice = next(key for i, (key, _) in enumerate(items) if key in dict(items[:i]))
            raise BlockscopeError(f"{where} gives {shown(twice)} twice; keep one of the two")
        return seen

    def constant(name: str) -> None:
        raise BlockscopeError(f"{where} holds {name}, which is not JSON; write a number or null")

    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=pairs, parse_constant=constant)
    except BlockscopeError:
        raise
    except (UnicodeDecodeError, RecursionError):
        raise BlockscopeError(f"{where} is not JSON text; {remedy}") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise BlockscopeError(f"{where} is not valid JSON ({at}); {remedy}") from None
    except ValueError:  # a whole number with more digits than Python will read
        raise BlockscopeError(f"{where} holds a number too long to read; correct it") from None
    if not isinstance(value, dict):
        raise BlockscopeError(f"{where} holds {shown(value)}; expected an object {{...}} with the model's settings: {remedy}")
    return value


@dataclass(frozen=True)
class Field:
    """One setting of a model. `status`: "used", "unused" or "defaulted"; `origin`: where its value came from."""

    name: str
    value: object
    status: str
    origin: str


class Fields:
    """A JSON object that remembers what was asked for. `notes` collects sentences for the checkpoint's report.

    `origins`: what a value is called in its file, where that is not config.json's own name for it.
    """

    def __init__(self, values: Mapping[str, object], where: str, origins: Mapping[str, str] | None = None):
        self.values, self.where, self.origins = values, where, dict(origins or {})
        self.asked: set[str] = set()  # known here
        self.read: set[str] = set()  # of these, what the model is made of
        self.defaults: dict[str, tuple[object, str]] = {}  # absent fields -> what was taken for them, and why
        self.notes: list[str] = []

    def fail(self, sentence: str) -> BlockscopeError:
        """An error that begins with a field's name, and says beside it what its file calls it."""
        name, _, rest = sentence.partition(" ")
        if (origin := self.origins.get(name, name)) != name:
            sentence = f"{name} ({origin}) {rest}"
        return BlockscopeError(f"{self.where}: {sentence}")

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def raw(self, name: str) -> object:
        """The value as it stands, None where the field is absent or null."""
        self.asked.add(name)
        self.read.add(name)
        return self.values.get(name)

    def default(self, name: str, value: object, why: str = "") -> None:
        """Record, and note, that `value` was taken for an absent field."""
        self.defaults[name] = (value, why)
        text = f"{value:g}" if isinstance(value, float) else str(value)
        self.note(f"{name} is not given: {text} is used{f' ({why})' if why else ''}")

    def settings(self) -> tuple[Field, ...]:
        """Every field of the file, and every one that was taken as absent, with what became of it."""
        rows = []
        for name, value in self.values.items():
            used = name in self.read and not (value is None and name in self.defaults)
            if used or name not in self.defaults:
                origin = self.origins.get(name, "")
                rows.append(
                    Field(name, value, "used" if used else "unused", f"{self.where}, {origin}" if origin else self.where)
                )
        return (*rows, *(Field(name, value, "defaulted", why) for name, (value, why) in self.defaults.items()))

    def whole(self, name: str, largest: int, default: int | None = None, why: str = "") -> int:
        """A whole number from 1 to `largest`; absent or null gives `default` (noted) or, without one, an error."""
        value = self.raw(name)
        if value is None and default is not None:
            self.default(name, default, why)
            return default
        if value is None:
            raise self.fail(f"{name} is missing; expected a whole number")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
            raise self.fail(f"{name} is {shown(value)}; expected a whole number from 1 to {largest:,}")
        return value

    def number(self, name: str, default: float | None = None, why: str = "") -> float:
        """A finite number; absent or null gives `default` (noted) or, without one, an error."""
        value = self.raw(name)
        if value is None and default is not None:
            self.default(name, float(default), why)
            return default
        if value is None:
            raise self.fail(f"{name} is missing; expected a number")
        return self.finite(name, value)

    def finite(self, name: str, value: object) -> float:
        """`value` as a float, if it is a number and finite."""
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300:
            number = float(value)
        if not math.isfinite(number):
            raise self.fail(f"{name} is {shown(value)}; expected a finite number")
        return number

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false; absent or null gives `default`."""
        value = self.raw(name)
        if value is None:
            self.defaults[name] = (default, "absent means this")
            return default
        if not isinstance(value, bool):
            raise self.fail(f"{name} is {shown(value)}; expected true or false")
        return value

    def only(self, name: str, allowed: tuple, why: str) -> None:
        """A field that may be present only with one of these values (null and absent always pass)."""
        value = self.raw(name)
        if value is not None and not any(type(value) is type(a) and value == a for a in allowed):
            expected = " or ".join(["null", *(json.dumps(a) for a in allowed)])
            raise self.fail(f"{name} is {shown(value)}; expected {expected}: {why}")

    def judge_the_rest(self, family: str) -> None:
        """Fields that nobody asked for: harmless ones are noted, one that could change the computation is refused."""
        known = self.asked | NO_EFFECT
        rest = {k: v for k, v in self.values.items() if k not in known and not switched_off(k, v)}
        for name, value in rest.items():
            if suspect(name):
                raise self.fail(
                    f"{shown(name)} is {shown(value)}; {family} as known here has no such part, and it could change "
                    "the computation: remove the field if it has no effect"
                )
        if rest:
            self.note(f"fields of {self.where} that are not read: {listed(sorted(rest))}")
        if self.values.get("auto_map"):
            self.note("auto_map names code in the folder; it is not run: the built-in block of this model_type is used")
