"""Designs that transformers does not hold: the 2017 Transformer against torch's own layer, PaLM against its equation."""

import math
import re
from fnmatch import fnmatchcase

import pytest
import torch
import torch.nn.functional as F
from mistaken import built, differing, in_order, shown_in
from reference import faults, prompt
from torch import Tensor, nn

from model.attention import Attention
from model.block import Parallel, PostNorm
from model.embedding import Sinusoidal
from model.lm import Decoder
from model.mlp import GLU, MLP
from model.norms import BiaslessLayerNorm, LayerNorm
from model.positions import Rope

TOLERANCE = 1e-5
VOCAB, LAYERS, LENGTH = 131, 3, 23


def values(config: Decoder.Config, seed: int = 0) -> dict[str, Tensor]:
    """Every parameter a random value of its own."""
    generator, made = torch.Generator().manual_seed(seed), {}
    for name, p in config.build().named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        made[name] = noise / p.shape[-1] ** 0.5 if p.ndim > 1 else 0.4 * noise + (0 if name.endswith("bias") else 1)
    return made | ({"unembed.weight": made["embed.weight"]} if config.tied else {})


# ---- 2017: post-norm, ReLU, sinusoidal positions, scaled embeddings (Vaswani et al., arXiv 1706.03762) ----------------


def transformer_2017() -> Decoder.Config:
    d, heads = 42, 6
    norm = LayerNorm.Config(d=d, eps=1e-5)
    attn = Attention.Config(
        d_model=d, n_heads=heads, n_kv_heads=heads, d_head=d // heads, rope=None, qkv_bias=True, o_bias=True
    )
    mlp = MLP.Config(d_model=d, d_mlp=66, activation="relu", bias=True)
    return Decoder.Config(
        d_vocab=VOCAB, d_model=d, blocks=(PostNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=mlp),) * LAYERS, ln_final=None,
        tied=True, context=64, embed_scale=math.sqrt(d), positions=Sinusoidal.Config(d_model=d),
    )  # fmt: skip


@torch.no_grad()
def torch_2017(config: Decoder.Config, state: dict[str, Tensor], ids: list[int]) -> dict[str, Tensor]:
    """torch.nn.TransformerEncoderLayer(norm_first=False) with a causal mask; positions written out by hand."""
    d, kept = config.d_model, {}
    embedded = state["embed.weight"][ids] * math.sqrt(d)
    position = torch.tensor(
        [
            [(math.sin if k % 2 == 0 else math.cos)(pos / 10_000 ** ((k - k % 2) / d)) for k in range(d)]
            for pos in range(len(ids))
        ]
    )
    kept["hook_embed"], kept["positions.hook_out"] = embedded[None], position
    x = (embedded + position)[None]
    later = nn.Transformer.generate_square_subsequent_mask(len(ids))
    for i in range(LAYERS):
        at, get = f"blocks.{i}.", lambda name, i=i: state[f"blocks.{i}.{name}"]
        layer = nn.TransformerEncoderLayer(d, 6, 66, dropout=0.0, activation="relu", batch_first=True, norm_first=False).eval()
        attn = layer.self_attn
        attn.in_proj_weight.copy_(torch.cat([get(f"attn.{n}_proj.weight") for n in "qkv"]))
        attn.in_proj_bias.copy_(torch.cat([get(f"attn.{n}_proj.bias") for n in "qkv"]))
        modules = {
            "attn.o_proj": attn.out_proj, "mlp.up_proj": layer.linear1, "mlp.down_proj": layer.linear2,
            "ln1": layer.norm1, "ln2": layer.norm2,
        }  # fmt: skip
        for ours, module in modules.items():
            module.weight.copy_(get(f"{ours}.weight"))
            module.bias.copy_(get(f"{ours}.bias"))
        keep = {
            layer.norm1: "hook_resid_mid", layer.norm2: "hook_resid_post", layer.linear1: "mlp.hook_pre",
            layer.linear2: "hook_mlp_out",
        }  # fmt: skip
        for module, name in keep.items():
            module.register_forward_hook(lambda m, args, out, name=at + name: kept.__setitem__(name, out))
        layer.linear2.register_forward_pre_hook(lambda m, args, name=at: kept.__setitem__(f"{name}mlp.hook_post", args[0]))
        attn.register_forward_hook(lambda m, args, out, name=at: kept.__setitem__(f"{name}hook_attn_out", out[0]))
        kept[f"{at}hook_resid_pre"] = x
        kept[f"{at}attn.hook_pattern"] = attn(x, x, x, attn_mask=later, average_attn_weights=False)[1]
        q, k, v = (t.unflatten(-1, (6, -1)) for t in F.linear(x, attn.in_proj_weight, attn.in_proj_bias).chunk(3, dim=-1))
        kept.update({f"{at}attn.hook_q": q, f"{at}attn.hook_k": k, f"{at}attn.hook_v": v})
        kept[f"{at}attn.hook_logits"] = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(7)
        x = layer(x, src_mask=later, is_causal=True)
    kept["logits"] = x @ state["embed.weight"].T
    return kept


def test_the_transformer_of_2017_is_torchs_encoder_layer_with_a_causal_mask():
    config = transformer_2017()
    state = values(config)
    theirs = torch_2017(config, state, prompt(LENGTH))
    ours = in_order(built(config, state.__getitem__), prompt(LENGTH))
    assert len(theirs) == 3 + 12 * LAYERS
    assert not (wrong := faults(ours, theirs, TOLERANCE)), "\n".join(map(str, wrong))


# ---- PaLM: y = x + mlp(ln(x)) + attn(ln(x)), one KV head, SwiGLU, no biases (arXiv 2204.02311, section 2) -------------


def palm() -> Decoder.Config:
    d, heads, width = 42, 6, 10
    norm = BiaslessLayerNorm.Config(d=d, eps=1e-5)
    attn = Attention.Config(
        d_model=d, n_heads=heads, n_kv_heads=1, d_head=width, rope=Rope.Config(d=width, base=1e4, pairing="interleaved")
    )
    block = Parallel.Config(ln1=norm, attn=attn, mlp=GLU.Config(d_model=d, d_mlp=66, activation="silu"))
    return Decoder.Config(d_vocab=VOCAB, d_model=d, blocks=(block,) * LAYERS, ln_final=norm, tied=True, context=64)


@torch.no_grad()
def palm_equation(config: Decoder.Config, state: dict[str, Tensor], ids: list[int]) -> dict[str, Tensor]:
    """The paper's equation, position by position and head by head, in fp64; nothing of this project is used."""
    s, kept = {name: value.double() for name, value in state.items()}, {}

    def ln(x, g):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt() * g

    def turn(x, t):
        """Adjacent coordinates as complex numbers, multiplied by e^(i t f)."""
        f = 10_000.0 ** (-torch.arange(0, 10, 2).double() / 10)
        return torch.view_as_real(
            torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones(5).double(), t * f)
        ).flatten(-2)

    x = s["embed.weight"][ids]
    for i in range(LAYERS):

        def w(name, i=i):
            return s[f"blocks.{i}.{name}.weight"]

        n = ln(x, w("ln1"))
        q = (n @ w("attn.q_proj").T).unflatten(-1, (6, 10))
        k, v = n @ w("attn.k_proj").T, n @ w("attn.v_proj").T
        rot_k = torch.stack([turn(k[t], t) for t in range(len(ids))])
        rot_q = torch.stack([turn(q[t], t) for t in range(len(ids))])
        z, logits, pattern = torch.zeros_like(q), *torch.zeros(2, 6, len(ids), len(ids)).double()
        for h in range(6):
            for t in range(len(ids)):
                logits[h, t] = rot_k @ rot_q[t, h] / math.sqrt(10)
                pattern[h, t, : t + 1] = logits[h, t, : t + 1].softmax(0)
                z[t, h] = pattern[h, t, : t + 1] @ v[: t + 1]
        gate, up = n @ w("mlp.gate_proj").T, n @ w("mlp.up_proj").T
        act = gate / (1 + (-gate).exp())
        attn_out, mlp_out = z.flatten(1) @ w("attn.o_proj").T, (act * up) @ w("mlp.down_proj").T
        at = f"blocks.{i}."
        kept |= {f"{at}hook_resid_pre": x, f"{at}ln1.hook_out": n, f"{at}attn.hook_q": q, f"{at}attn.hook_k": k[:, None]}
        kept |= {f"{at}attn.hook_rot_q": rot_q, f"{at}attn.hook_rot_k": rot_k[:, None], f"{at}attn.hook_logits": logits}
        kept |= {f"{at}attn.hook_v": v[:, None], f"{at}attn.hook_pattern": pattern, f"{at}attn.hook_z": z}
        kept |= {f"{at}mlp.hook_pre": gate, f"{at}mlp.hook_act": act, f"{at}mlp.hook_pre_linear": up}
        kept |= {f"{at}mlp.hook_post": act * up, f"{at}hook_attn_out": attn_out, f"{at}hook_mlp_out": mlp_out}
        x = x + mlp_out + attn_out
        kept[f"{at}hook_resid_post"] = x
    kept["logits"] = ln(x, s["ln_final.weight"]) @ s["embed.weight"].T
    return {name: value[None] for name, value in kept.items()}


def test_palm_is_its_equation():
    config = palm()
    state = values(config)
    theirs = palm_equation(config, state, prompt(LENGTH))
    ours = in_order(built(config, state.__getitem__), prompt(LENGTH))
    assert "blocks.0.hook_resid_mid" not in ours
    assert not (wrong := faults(ours, theirs, TOLERANCE)), "\n".join(map(str, wrong))


# ---- mistakes -------------------------------------------------------------------------------------------------------

WITNESSES = {"transformer-2017": (transformer_2017, torch_2017), "palm": (palm, palm_equation)}


@pytest.fixture(scope="module")
def witness():
    made = {}

    def get(design: str):
        if design not in made:
            make, reference = WITNESSES[design]
            config, state = make(), values(make())
            made[design] = config, state, reference(config, state, prompt(LENGTH))
        return made[design]

    return get


PAIRS = shown_in(*WITNESSES)


@pytest.mark.parametrize(("mistake", "design"), PAIRS, ids=[f"{design}: {m.name}" for m, design in PAIRS])
def test_each_mistake_is_noticed_at_the_tap_it_names(mistake, design, witness):
    config, state, theirs = witness(design)
    assert mistake.fits(config)
    wrong = differing(in_order(built(config, state.__getitem__, mistake), prompt(LENGTH)), theirs, TOLERANCE)
    assert wrong and wrong[-1] == "logits", f"{mistake.name}: nobody would notice"
    assert fnmatchcase(re.sub(r"blocks\.\d+\.", "blocks.{i}.", wrong[0]), mistake.first_tap), wrong[0]


@pytest.mark.parametrize("design", WITNESSES)
def test_three_mistakes_at_least(design):
    assert sum(design in mistake.families for mistake, _ in PAIRS) >= 3
