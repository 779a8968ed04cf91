"""Mistakes in Gemma's blocks: offset gains, soft-caps, local and global layers, the tanh form of GELU."""

from dataclasses import replace

from model.attention import Attention
from model.block import Sandwich
from model.masks import Causal, Sliding
from model.mistakes.mistake import Misread, Mistake, attention, blocks, norms, read_as, ropes, traded, turned_into
from model.mistakes.parts import CapAfterMask, NormAfterAdd, PlainGain
from model.mlp import GLU
from model.norms import OffsetRMSNorm

SANDWICHES = ("gemma2", "gemma3_text")


def _plain(norm):
    return turned_into(norm, PlainGain.Config) if type(norm) is OffsetRMSNorm.Config else norm


def _plain_qk(a: Attention.Config) -> Attention.Config:
    return a if a.q_norm is None else replace(a, q_norm=_plain(a.q_norm), k_norm=_plain(a.k_norm))


def _late_cap(a: Attention.Config) -> Attention.Config:
    capped = type(a) is Attention.Config and a.softcap is not None
    return turned_into(a, CapAfterMask.Config) if capped else a


def _exact(block):
    other = {"gelu_tanh": "gelu", "gelu": "gelu_tanh"}
    gated = isinstance(block.mlp, GLU.Config) and block.mlp.activation in other
    return replace(block, mlp=replace(block.mlp, activation=other[block.mlp.activation])) if gated else block


def _exchanged(turn_alike: bool):
    """Layers of the one kind get the attention of the other, in models whose kinds turn alike, or do not."""

    def change(config):
        kinds = {isinstance(b.attn.mask, Sliding): b.attn for b in config.blocks if isinstance(b.attn, Attention.Config)}
        if len(kinds) < 2 or (kinds[True].rope == kinds[False].rope) != turn_alike:
            return config
        return attention(lambda a: kinds[not isinstance(a.mask, Sliding)])(config)

    return change


def _one_rotation(config):
    """Every layer turns as the global ones do."""
    rope = next((b.attn.rope for b in config.blocks if type(b.attn.mask) is Causal), None)
    return config if rope is None else ropes(lambda _: rope)(config)


def _scaled_everywhere(config):
    scalings = {b.attn.rope.scaling for b in config.blocks if isinstance(b.attn, Attention.Config) and b.attn.rope} - {None}
    return ropes(lambda rope: replace(rope, scaling=next(iter(scalings))))(config) if scalings else config


def _llama_named(name: str) -> str:
    trade = {"ln1_post.": "ln2.", "ln2.": "ln1_post."}
    return next((name.replace(old, new) for old, new in trade.items() if old in name), name)


MISTAKES = (
    Mistake(
        name="gain w instead of 1 + w",
        what="The norms multiply by the stored number, which is an offset from one.",
        first_tap="blocks.{i}.ln1.hook_out",
        families=("gemma", *SANDWICHES),
        config=norms(_plain),
    ),
    Mistake(
        name="gain w instead of 1 + w on q and k",
        what="Only QK-norm multiplies by the stored number, which is an offset from one.",
        first_tap="blocks.{i}.attn.q_norm.hook_out",
        families=("gemma3_text",),
        config=attention(_plain_qk),
    ),
    Mistake(
        name="the other GELU of a gate",
        what="GELU with the error function where the model was trained with the tanh form, or the reverse.",
        first_tap="blocks.{i}.mlp.hook_act",
        families=("gemma", *SANDWICHES),
        config=blocks(_exact),
    ),
    Mistake(
        name="soft-cap after the mask",
        what="Masked logits are capped with the rest: they become -cap, and the future weighs something.",
        first_tap="blocks.{i}.attn.hook_capped",
        families=("gemma2",),
        config=attention(_late_cap),
    ),
    Mistake(
        name="no soft-cap on attention",
        what="A fused attention kernel cannot cap, and the cap is gone.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=("gemma2",),
        config=attention(lambda a: replace(a, softcap=None)),
    ),
    Mistake(
        name="no soft-cap on the output",
        what="The next-token logits leave uncapped.",
        first_tap="logits",
        families=("gemma2",),
        config=lambda config: replace(config, softcap=None),
    ),
    Mistake(
        name="divided by the head's width",
        what="The logits are divided by sqrt(d_head), where the file names another number (query_pre_attn_scalar).",
        first_tap="blocks.{i}.attn.hook_logits",
        families=SANDWICHES,
        config=attention(lambda a: a if a.logit_scale == a.d_head**-0.5 else replace(a, scale=None)),
    ),
    Mistake(
        name="masks of local and global layers exchanged",
        what="Layers are counted from one instead of zero, so that global layers slide and local ones see everything.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=("gemma2", "gpt_oss"),
        config=_exchanged(turn_alike=True),
    ),
    Mistake(
        name="local and global layers exchanged",
        what="Layers are counted from one instead of zero: global ones slide and turn as local ones do, and the reverse.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gemma3_text",),
        config=_exchanged(turn_alike=False),
    ),
    Mistake(
        name="one rotation for all layers",
        what="Local layers use the base of the global ones.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gemma3_text",),
        config=_one_rotation,
    ),
    Mistake(
        name="local layers scaled too",
        what="The rotary scaling, which belongs to the global layers, stretches the local ones as well.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gemma3_text",),
        config=_scaled_everywhere,
    ),
    Mistake(
        name="second norm on the sum",
        what="The norm after a sublayer is applied to the stream after the add, instead of to what is added.",
        first_tap="blocks.{i}.hook_attn_out",
        families=SANDWICHES,
        config=blocks(lambda b: turned_into(b, NormAfterAdd.Config) if type(b) is Sandwich.Config else b),
    ),
    Mistake(
        name="norms before and after attention swapped",
        what="input_layernorm is used on attention's output, and post_attention_layernorm on its input.",
        first_tap="blocks.{i}.ln1.hook_out",
        families=SANDWICHES,
        misread=Misread("blocks.*.ln1*", traded("ln1_post.", "ln1.")),
    ),
    Mistake(
        name="norm before the MLP read from Llama's name",
        what="post_attention_layernorm is put before the MLP, where Llama has it; Gemma 2's is pre_feedforward_layernorm.",
        first_tap="blocks.{i}.ln1_post.hook_out",
        families=SANDWICHES,
        misread=Misread("blocks.*.ln[12]*", read_as(_llama_named)),
    ),
)
