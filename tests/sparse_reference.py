"""transformers' own tensors of a model with experts, latent attention, sinks or chunks, under our tap names.

Taken with forward hooks where a module gives or reads them; what passes between functions inside a module (rotated
queries, scaled logits, the neurons of an expert) is watched at those functions. Experts are in the order of their number,
whatever order either side chose them in.
"""

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import torch
from recorder import normalised
from reference import D_HEAD, HEADS
from sparse_cases import KV_LATENT, NOPE
from torch import Tensor, nn


@torch.no_grad()
def record_sparse(model, ids: list[int]) -> dict[str, Tensor]:
    """Run transformers' model on `ids`; tensors [batch, ...] by our names."""
    with ExitStack() as stack:
        record = Record(model, stack)
        record.kept["logits"] = model(torch.tensor([ids]), use_cache=False).logits
    return record.kept


def by_expert(taps: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors of ours, the chosen experts of each token in the order of their number."""
    sorted_ = dict(taps)
    for name, indices in taps.items():
        if name.endswith("hook_expert_indices"):
            at, order = name.removesuffix("hook_expert_indices"), indices.argsort(-1)
            sorted_[name] = indices.gather(-1, order)
            sorted_[at + "hook_expert_weights"] = taps[at + "hook_expert_weights"].gather(-1, order)
            post = taps[at + "experts.hook_post"]
            sorted_[at + "experts.hook_post"] = post.gather(-2, order[..., None].expand_as(post))
    return sorted_


class Record:
    """Hooks and watched functions, all removed by `stack`."""

    def __init__(self, model, stack: ExitStack):
        self.config, self.stack, self.kept = model.config, stack, {}
        self.layers, self.module = model.model.layers, importlib.import_module(type(model).__module__)
        self.latent = hasattr(self.layers[0].self_attn, "kv_lora_rank")
        self.width = self.config.head_dim  # of what rotates
        self.rotates = getattr(self.config, "no_rope_layers", [1] * len(self.layers))
        for i, block in enumerate(self.layers):
            at = f"blocks.{i}."
            self.before(block, at + "hook_resid_pre")
            self.norm(block.input_layernorm, at + "ln1")
            (self.mla if self.latent else self.attention)(block.self_attn, at + "attn.")
            self.after(block.self_attn, at + "hook_attn_out")
            self.before(block.post_attention_layernorm, at + "hook_resid_mid")
            self.norm(block.post_attention_layernorm, at + "ln2")
            mlp = block.feed_forward if hasattr(block, "feed_forward") else block.mlp
            (self.mixture if hasattr(mlp, "experts") else self.gated)(mlp, at + "mlp.")
            self.after(mlp, at + "hook_mlp_out", batched)
            self.after(block, at + "hook_resid_post")
        self.after(model.model.embed_tokens, "hook_embed")
        self.norm(model.model.norm, "ln_final")
        self.hook(model.model.rotary_emb, lambda args, out: self.angles(out))
        self.watch_scores()
        if not self.latent:
            self.watch_rotation()

    def keep(self, name: str, tensor: Tensor) -> None:
        assert name not in self.kept, f"{name} was recorded twice"
        self.kept[name] = tensor.detach().clone()

    def hook(self, module: nn.Module, see: Callable[[tuple, object], None]) -> None:
        self.stack.callback(module.register_forward_hook(lambda m, args, out: see(args, out)).remove)

    def after(self, module: nn.Module, name: str, shaped=lambda x: x) -> None:
        self.hook(module, lambda args, out: self.keep(name, shaped(out[0] if isinstance(out, tuple) else out)))

    def before(self, module: nn.Module, name: str, shaped=lambda x: x) -> None:
        def see(m, args, kwargs):
            self.keep(name, shaped(args[0] if args else kwargs["hidden_states"]))

        self.stack.callback(module.register_forward_pre_hook(see, with_kwargs=True).remove)

    def norm(self, module: nn.Module, *names: str) -> None:
        """Scale, quotient and result; a module that is called twice gives them under two names."""
        turn = iter(names)

        def see(args, out) -> None:
            at, (scale, quotient) = next(turn), normalised(module, args[0])
            for name, x in {"hook_scale": scale, "hook_normalized": quotient, "hook_out": out}.items():
                self.keep(f"{at}.{name}", x)

        self.hook(module, see)

    # ---- attention -------------------------------------------------------------------------------------------------

    def attention(self, attn: nn.Module, at: str) -> None:
        for ours in "qkv":
            self.after(getattr(attn, f"{ours}_proj"), at + f"hook_{ours}", lambda x: x.unflatten(-1, (-1, D_HEAD)))
        if hasattr(attn, "q_norm"):
            self.norm(attn.q_norm, at + "q_norm")
            self.norm(attn.k_norm, at + "k_norm")
        if hasattr(attn, "qk_norm"):
            self.norm(attn.qk_norm, at + "q_norm", at + "k_norm")
        self.before(attn.o_proj, at + "hook_z", lambda x: x.unflatten(-1, (-1, D_HEAD)))

    def mla(self, attn: nn.Module, at: str) -> None:
        if attn.q_lora_rank is not None:
            self.after(attn.q_a_proj, at + "hook_q_latent")
            self.norm(attn.q_a_layernorm, at + "q_norm")
        self.after(attn.q_b_proj or attn.q_proj, at + "hook_q", lambda x: x.unflatten(-1, (HEADS, -1)))
        self.after(attn.kv_a_proj_with_mqa, at + "hook_kv_latent", lambda x: x[..., :KV_LATENT])
        self.after(attn.kv_a_proj_with_mqa, at + "hook_k_rope", lambda x: x[..., KV_LATENT:])
        self.norm(attn.kv_a_layernorm, at + "kv_norm")
        self.after(attn.kv_a_layernorm, at + "hook_cache_latent")
        self.before(attn.o_proj, at + "hook_z", lambda x: x.unflatten(-1, (HEADS, -1)))

    def angles(self, out) -> None:
        """The angles whose cosine and sine the rotary module gives, for every layer that is turned by them."""
        if isinstance(out, tuple):
            angle = np.arctan2(*(t[0].double().numpy() for t in reversed(out)))
            angle = angle[:, : self.width // 2]  # given twice by most
        else:
            angle = np.angle(out[0].numpy().astype(np.complex128))
        for i, rotary in enumerate(self.rotates):
            if rotary:
                self.keep(f"blocks.{i}.attn.rope.hook_angle", torch.from_numpy(np.unwrap(angle, axis=0)).float())

    def watch_scores(self) -> None:
        """What reaches the attention function of the reference, and the pattern that it gives."""
        eager, turn = self.module.eager_attention_forward, iter(range(len(self.layers)))
        woven = self.config.model_type == "deepseek_v3" and self.config.rope_interleave

        def attend(module, query, key, value, mask, **options):
            layer = next(turn)
            at = f"blocks.{layer}.attn."
            logits = query @ key.repeat_interleave(query.shape[1] // key.shape[1], dim=1).mT * options["scaling"]
            self.keep(at + "hook_logits", logits)
            self.keep(at + "hook_attn_scores", logits.masked_fill(mask < -1e30, -torch.inf))
            q, k, v = (t.transpose(1, 2) for t in (query, key, value))
            if self.latent:
                q, k = (weave(t) if woven else t for t in (q, k))
                names = {"hook_rot_q": q, "hook_keys": k, "hook_values": v, "hook_rot_k_rope": k[:, :, 0, NOPE:]}
                names["hook_cache_k_rope"] = names["hook_rot_k_rope"]
            else:
                names = {"hook_cache_k": k, "hook_cache_v": v}
                if not self.rotates[layer] and self.config.attn_temperature_tuning:
                    names["temperature.hook_scale"] = ratio(q, self.kept[at + "hook_q"])
            z, pattern = eager(module, query, key, value, mask, **options)
            names["hook_pattern"] = pattern
            if hasattr(module, "sinks"):
                names["hook_sink"] = 1 - pattern.sum(-1)
            for name, tensor in names.items():
                self.keep(at + name, tensor)
            return z, pattern

        self.stack.enter_context(patch.object(self.module, "eager_attention_forward", attend))

    def watch_rotation(self) -> None:
        name = "apply_rotary_emb" if hasattr(self.module, "apply_rotary_emb") else "apply_rotary_pos_emb"
        rotate, turn = getattr(self.module, name), (i for i, rotary in enumerate(self.rotates) if rotary)

        def watched(q, k, *args, **kwargs):
            at, turned = f"blocks.{next(turn)}.attn.", rotate(q, k, *args, **kwargs)
            for ours, x in zip(("hook_rot_q", "hook_rot_k"), turned, strict=True):
                self.keep(at + ours, x if name == "apply_rotary_emb" else x.transpose(1, 2))
            return turned

        self.stack.enter_context(patch.object(self.module, name, watched))

    # ---- MLP and experts -------------------------------------------------------------------------------------------

    def gated(self, mlp: nn.Module, at: str) -> None:
        self.after(mlp.gate_proj, at + "hook_pre", batched)
        self.after(mlp.up_proj, at + "hook_pre_linear", batched)
        self.after(mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn, at + "hook_act", batched)
        self.before(mlp.down_proj, at + "hook_post", batched)

    def mixture(self, moe: nn.Module, at: str) -> None:
        shared = getattr(moe, "shared_experts", None) or getattr(moe, "shared_expert", None)
        if shared is not None:
            self.gated(shared, at + "shared.")
        router, chosen = moe.router if hasattr(moe, "router") else moe.gate, {}

        def routed(args, out) -> None:
            if isinstance(router, nn.Linear):  # Llama 4: (sigmoid of the chosen logits and 0 elsewhere, logits)
                scores, logits = out
                weights, indices = scores.topk(router.top_k, dim=-1)
            else:
                logits, weights, indices = out
            order = indices.argsort(-1)
            self.keep(at + "hook_router_logits", logits[None])
            self.keep(at + "hook_expert_indices", indices.gather(-1, order)[None])
            self.keep(at + "hook_expert_weights", weights.gather(-1, order)[None])
            chosen["indices"] = indices.gather(-1, order)

        self.hook(router, routed)
        self.watch_neurons(moe.experts, at + "experts.hook_post", chosen)

    def watch_neurons(self, experts: nn.Module, name: str, chosen: dict[str, Tensor]) -> None:
        """What each chosen expert's last matrix reads, [batch, pos, topk, d_mlp]."""
        forward = experts.forward

        def watched(*args):
            seen: list[Tensor] = []
            with ExitStack() as stack:
                watch(stack, experts, seen)
                out = forward(*args)
            indices = chosen["indices"]
            if len(seen) == 1:  # Llama 4: every expert read every token, [expert, pos, d_mlp]
                post = seen[0][indices, torch.arange(len(indices))[:, None]]
            else:  # one call for each expert in use; rows in the order of the reference's own choice
                theirs, post = args[1], seen[0].new_zeros(*indices.shape, seen[0].shape[-1])
                for e, rows in zip(indices.unique(), seen, strict=True):
                    token = torch.where(e == theirs.T)[1]
                    post[token, torch.where(indices[token] == e)[1]] = rows
            self.keep(name, post[None])
            return out

        self.stack.enter_context(patch.object(experts, "forward", watched))


def watch(stack: ExitStack, experts: nn.Module, seen: list[Tensor]) -> None:
    """Note what goes into the down projection: every second product, or what gpt-oss's gate gives."""
    if "GptOss" in type(experts).__name__:
        gate = experts._apply_gate
        stack.enter_context(patch.object(experts, "_apply_gate", lambda x: seen.append(gate(x)) or seen[-1]))
        return
    home, name = (torch, "bmm") if "Llama4" in type(experts).__name__ else (nn.functional, "linear")
    multiply, calls = getattr(home, name), iter(range(1 << 20))

    def watched(x, *rest):
        if next(calls) % 2:
            seen.append(x)
        return multiply(x, *rest)

    stack.enter_context(patch.object(home, name, watched))


def ratio(x: Tensor, y: Tensor) -> Tensor:
    """x / y [batch, pos, ...] of each position, where y is largest -> [pos]."""
    x, y = x[0].flatten(1), y[0].flatten(1)
    at = y.abs().argmax(-1, keepdim=True)
    return (x.gather(-1, at) / y.gather(-1, at))[:, 0]


def batched(x: Tensor) -> Tensor:
    """[pos, width] or [1, pos, width] -> [1, pos, width]."""
    return x.view(1, -1, x.shape[-1])


def weave(x: Tensor) -> Tensor:
    """DeepSeek-V3's code leaves the first members of the rotated pairs before the second ones: back to their places."""
    return torch.cat([x[..., :NOPE], torch.stack(x[..., NOPE:].chunk(2, dim=-1), dim=-1).flatten(-2)], dim=-1)
