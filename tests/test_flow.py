"""What feeds what, told by a run on nothing: it follows the forward, through views, in-place filling and parts seen whole."""

from types import SimpleNamespace

import pytest
import torch
from conftest import tiny_config
from torch import nn

from model import PRESETS
from model.flow import flow
from model.taps import Tap

BLOCK = tiny_config("head").blocks[0]


def of(forward, **taps: str) -> dict[str, tuple[str, ...]]:
    """The flow of a module with these taps and this forward(module, x)."""

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            for name, dims in taps.items():
                setattr(self, name, Tap(dims))

        def forward(self, x):
            return forward(self, x)

    return flow(SimpleNamespace(build=Module, d_model=6))


def test_a_block_is_told_as_its_forward_has_it():
    told = flow(BLOCK)
    assert told["attn.hook_q"] == ("ln1.hook_out",) and told["attn.hook_rot_q"] == (
        "attn.q_norm.hook_out",
        "attn.rope.hook_angle",
    )
    assert told["hook_resid_mid"] == ("hook_resid_pre", "hook_attn_out")
    assert told["attn.hook_z"] == ("attn.hook_pattern", "attn.hook_cache_v")
    assert next(iter(told)) == "hook_resid_pre" and told["hook_resid_pre"] == told["attn.rope.hook_angle"] == ()


def test_a_part_seen_whole_reads_what_enters_it_and_owns_what_leaves_it():
    told = flow(BLOCK, {"ln1", "attn.q_norm"})
    assert told["ln1"] == ("hook_resid_pre",) and told["attn.hook_q"] == ("ln1",) and told["attn.q_norm"] == ("attn.hook_q",)
    empty = flow(tiny_config("off").blocks[0], {"attn.q_norm"})
    assert empty["attn.q_norm"] == ("attn.hook_q",) and empty["attn.hook_rot_q"] == ("attn.q_norm", "attn.rope.hook_angle")


def test_views_stacks_and_places_filled_one_by_one_carry_their_source():
    def forward(m, x):
        a, b = m.hook_a(x[..., :3] * 2), m.hook_b(x.flip(-1)[..., 3:])
        filled = a.new_empty(2, *a.shape)
        filled[0] = a
        filled[1] = b.clone()
        return m.hook_c(filled.sum(0) + torch.zeros_like(x[..., :3]))

    told = of(forward, hook_a="batch pos d_model", hook_b="batch pos d_model", hook_c="batch pos d_model")
    assert told == {"hook_a": (), "hook_b": (), "hook_c": ("hook_a", "hook_b")}


def test_a_shape_that_is_read_is_no_source():
    told = of(lambda m, x: m.hook_b(torch.ones_like(m.hook_a(x)) * 2), hook_a="batch pos d_model", hook_b="batch pos d_model")
    assert told["hook_b"] == ()


@pytest.mark.parametrize("name", ["tiny-mixtral", "deepseek-v3"])
def test_experts_read_the_stream_and_the_choice_though_no_token_comes(name):
    told = flow(PRESETS[name].blocks[-1])
    chosen = {"mlp.hook_expert_weights", "mlp.hook_expert_indices"}
    assert chosen < set(told["mlp.experts.hook_post"]) and "mlp.experts.hook_post" in told["hook_mlp_out"]
