"""What the modules of a transformers model hold, under our tap names: the witness for every tap that we have.

`LAYOUTS` says for each type which module gives which tensor. Attention's inside (logits, soft-cap, mask, softmax) is what
transformers' own eager attention computes: its results are noted one by one while it runs.
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Shape = Callable[[Tensor, int], Tensor]  # (tensor, width of a head) -> the tensor in the shape of our tap


def same(x: Tensor, d_head: int) -> Tensor:
    return x


def heads(x: Tensor, d_head: int) -> Tensor:
    """[batch, pos, head * d_head] -> [batch, pos, head, d_head]."""
    return x.unflatten(-1, (-1, d_head))


def third(n: int) -> Shape:
    return lambda x, d_head: heads(x.chunk(3, dim=-1)[n], d_head)


def turned(x: Tensor, d_head: int) -> Tensor:
    """[batch, head, pos, d_head] -> [batch, pos, head, d_head]."""
    return x.transpose(1, 2)


@dataclass(frozen=True)
class Layout:
    """Module paths: `outer` below the model, `inner` below a block, each `(path, "in" or "out", shape)` one tensor.

    `norms` are modules whose scale, quotient and result are taken.
    """

    blocks: str
    attention: str
    final: str
    outer: dict[str, tuple[str, str, Shape]]
    inner: dict[str, tuple[str, str, Shape]]
    norms: dict[str, tuple[str, Shape]] = field(default_factory=dict)


def outputs(**paths: str) -> dict[str, tuple[str, str, Shape]]:
    return {name: (path, "out", same) for name, path in paths.items()}


STREAM = {"hook_resid_pre": ("", "in", same), "hook_resid_post": ("", "out", same)}
PROJECTED = {f"attn.hook_{n}": (f"self_attn.{n}_proj", "out", heads) for n in "qkv"}
GATED = {
    "mlp.hook_pre": ("mlp.gate_proj", "out", same),
    "mlp.hook_pre_linear": ("mlp.up_proj", "out", same),
    "mlp.hook_act": ("mlp.act_fn", "out", same),
    "mlp.hook_post": ("mlp.down_proj", "in", same),
}
NORMED_AFTER = {
    "attn.hook_module_out": ("self_attn", "out", same),
    "hook_attn_out": ("post_attention_layernorm", "out", same),
    "mlp.hook_module_out": ("mlp", "out", same),
    "hook_mlp_out": ("post_feedforward_layernorm", "out", same),
}
FOUR_NORMS = {
    "ln1": ("input_layernorm", same),
    "ln1_post": ("post_attention_layernorm", same),
    "ln2": ("pre_feedforward_layernorm", same),
    "ln2_post": ("post_feedforward_layernorm", same),
}


def qk_norms(shape: Shape) -> dict[str, tuple[str, Shape]]:
    return {f"attn.{n}_norm": (f"self_attn.{n}_norm", shape) for n in "qk"}


def modern(inner: dict, norms: dict) -> Layout:
    outer = {"hook_embed": ("model.embed_tokens", "out", same)}
    return Layout("model.layers", "self_attn", "model.norm", outer, STREAM | PROJECTED | GATED | inner, norms)


def classic(outer: dict, inner: dict, norms: dict) -> Layout:
    outer = {"hook_embed": ("transformer.wte", "out", same)} | outer
    inner = STREAM | inner | {"mlp.hook_post": ("mlp.act", "out", same)} | outputs(hook_attn_out="attn", hook_mlp_out="mlp")
    return Layout("transformer.h", "attn", "transformer.ln_f", outer, inner, norms)


LLAMA = modern(
    outputs(hook_attn_out="self_attn", hook_mlp_out="mlp") | {"hook_resid_mid": ("post_attention_layernorm", "in", same)},
    {"ln1": ("input_layernorm", same), "ln2": ("post_attention_layernorm", same)},
)
QWEN3 = modern(LLAMA.inner, LLAMA.norms | qk_norms(same))
OLMO2 = modern(
    NORMED_AFTER | {"hook_resid_mid": ("mlp", "in", same)},
    {name: FOUR_NORMS[name] for name in ("ln1_post", "ln2_post")} | qk_norms(heads),
)
GEMMA2 = modern(NORMED_AFTER | {"hook_resid_mid": ("pre_feedforward_layernorm", "in", same)}, FOUR_NORMS)
GEMMA3 = modern(GEMMA2.inner, GEMMA2.norms | qk_norms(turned))
GPT2 = classic(
    {"positions.hook_out": ("transformer.wpe", "out", lambda x, d_head: x[0])},
    {f"attn.hook_{n}": ("attn.c_attn", "out", third(i)) for i, n in enumerate("qkv")}
    | {"hook_resid_mid": ("ln_2", "in", same), "mlp.hook_pre": ("mlp.c_fc", "out", same)},
    {"ln1": ("ln_1", same), "ln2": ("ln_2", same)},
)
GPTJ = classic(
    {},
    {f"attn.hook_{n}": (f"attn.{n}_proj", "out", heads) for n in "qkv"} | {"mlp.hook_pre": ("mlp.fc_in", "out", same)},
    {"ln1": ("ln_1", same)},
)
LAYOUTS = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": QWEN3,
    "gpt2": GPT2,
    "gptj": GPTJ,
    "olmo2": OLMO2,
    "gemma": LLAMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
}


@dataclass
class Recording:
    """transformers' own intermediate tensors under our tap names, [batch, pos, ...]."""

    taps: dict[str, Tensor]

    def keep(self, name: str, tensor: Tensor) -> None:
        assert name not in self.taps, f"{name} was recorded twice"
        self.taps[name] = tensor.detach().clone()


class Steps(TorchFunctionMode):
    """Notes what each torch function gives whose result is [batch, head, query_pos, key_pos], in the order of the calls."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.shape, self.names, self.results = shape, [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.__name__.strip("_")
        if isinstance(result, Tensor) and result.shape == self.shape and name not in ("to", "type", "float", "dropout"):
            self.names.append({"truediv": "div"}.get(name, name))
            self.results.append(result)
        return result


def watch_attention(kept: Recording, number: dict[nn.Module, int], eager, rotates: bool):
    """Stands in for transformers' eager_attention_forward: notes q, k and v as it gets them, and each stage."""

    def watched(module, query, key, value, mask, *args, **kwargs):
        at = f"blocks.{number[module]}.attn."
        turned = {"rot_q": query, "rot_k": key} if rotates else {}
        for name, x in {**turned, "cache_k": key, "cache_v": value}.items():
            kept.keep(f"{at}hook_{name}", x.transpose(1, 2))
        with Steps((*query.shape[:3], key.shape[2])) as steps:
            out, pattern = eager(module, query, key, value, mask, *args, **kwargs)
        capped = "tanh" in steps.names
        known = ["matmul", "mul", *(["div", "tanh", "mul"] if capped else []), "add", "softmax"]
        assert steps.names == known, f"eager attention does {steps.names}"
        kept.keep(f"{at}hook_logits", steps.results[1])
        if capped:
            kept.keep(f"{at}hook_capped", steps.results[4])
        scores = steps.results[-2]
        kept.keep(f"{at}hook_attn_scores", scores.masked_fill(scores < -1e30, -torch.inf))
        kept.keep(f"{at}hook_pattern", pattern)
        kept.keep(f"{at}hook_z", out)
        return out, pattern

    return watched


def watch_rotation(kept: Recording, model):
    """A hook on rotary_emb: the angles whose cosine and sine it gives, for every layer that is turned by them."""
    old = model.config.model_type == "gptj"
    kinds = getattr(model.config, "layer_types", None) or [None] * model.config.num_hidden_layers

    def after(rotary, args, out):
        sin, cos = out if old else reversed(out)
        angle = np.unwrap(np.arctan2(sin[0].double().numpy(), cos[0].double().numpy()), axis=0)  # a pair turns <= 1 a step
        angle = angle if old else angle[:, : angle.shape[1] // 2]  # given twice, once for each half of the head
        for i, kind in enumerate(kinds):
            if len(args) < 3 or args[2] == kind:
                kept.keep(f"blocks.{i}.attn.rope.hook_angle", torch.from_numpy(angle).float())

    return after


def normalised(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """(scale, quotient) of a norm of transformers on x: the module itself with a gain of one and no bias."""
    plain = copy.deepcopy(norm)
    for name, p in plain.named_parameters():
        p.fill_(0.0 if name == "bias" or "Gemma" in type(norm).__name__ else 1.0)
    quotient = plain.forward(x)
    x = x - x.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x
    at = x.abs().argmax(-1, keepdim=True)
    return x.gather(-1, at) / quotient.gather(-1, at), quotient


@torch.no_grad()
def record(model, ids: list[int]) -> dict[str, Tensor]:
    """Run transformers' model on `ids` and note its tensors, [batch, pos, ...], under our names."""
    layout, kept, handles = LAYOUTS[model.config.model_type], Recording({}), []
    blocks = model.get_submodule(layout.blocks)
    attentions = {block.get_submodule(layout.attention): i for i, block in enumerate(blocks)}
    d_head = next(iter(attentions)).head_dim

    def tensor(module: nn.Module, name: str, when: str, shape: Shape) -> None:
        def after(m, args, out):
            kept.keep(name, shape(out[0] if isinstance(out, tuple) else out, d_head))

        def before(m, args, kwargs):
            kept.keep(name, shape(args[0] if args else kwargs["hidden_states"], d_head))

        if when == "out":
            handles.append(module.register_forward_hook(after))
        else:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))

    def norm(module: nn.Module, name: str, shape: Shape) -> None:
        def after(m, args, out):
            scale, quotient = normalised(m, args[0])
            kept.keep(f"{name}.hook_scale", scale[..., None] if shape is heads else shape(scale, d_head))
            kept.keep(f"{name}.hook_normalized", shape(quotient, d_head))
            kept.keep(f"{name}.hook_out", shape(out, d_head))

        handles.append(module.register_forward_hook(after))

    for name, (path, when, shape) in layout.outer.items():
        tensor(model.get_submodule(path), name, when, shape)
    for i, block in enumerate(blocks):
        for name, (path, when, shape) in layout.inner.items():
            tensor(block.get_submodule(path), f"blocks.{i}.{name}", when, shape)
        for name, (path, shape) in layout.norms.items():
            norm(block.get_submodule(path), f"blocks.{i}.{name}", shape)
    norm(model.get_submodule(layout.final), "ln_final", same)
    if getattr(model.config, "final_logit_softcapping", None) is not None:
        tensor(model.lm_head, "hook_logits_raw", "out", same)
    rotary = getattr(model.get_submodule(layout.blocks.rpartition(".")[0]), "rotary_emb", None)
    if rotary is not None:
        handles.append(rotary.register_forward_hook(watch_rotation(kept, model)))

    module, name = sys.modules[type(model).__module__], "eager_attention_forward"
    try:
        with patch.object(module, name, watch_attention(kept, attentions, getattr(module, name), rotary is not None)):
            kept.keep("logits", model(torch.tensor([ids]), use_cache=False).logits)
    finally:
        for handle in handles:
            handle.remove()
    assert model.config._attn_implementation == "eager"
    return kept.taps
