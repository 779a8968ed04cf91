"""Two runs in lockstep: exact zeros where nothing changed, right distances where something did, and the effect of an edit."""

import numpy as np
import pytest
import torch
from conftest import distinct, make_lm, tiny_config

from model import load
from model.compare import CHANGED, ONLY_A, ONLY_B, PLACE, SAME, SHAPE, Lockstep, Side
from model.errors import BlockscopeError
from model.interventions import EDITS, Edit, edit_at
from model.run import LM
from model.weights import WeightStore


def drain(walk):
    steps = []
    while True:
        try:
            steps.append(next(walk))
        except StopIteration as end:
            return end.value, steps


def compared(a, b, tokens, **options) -> Lockstep:
    lock = Lockstep([side if isinstance(side, Side) else Side(side) for side in (a, b)], tokens, **options)
    drain(lock.walk())
    return lock


def test_nothing_changed_is_zero_bit_for_bit(lm, tokens):
    lock = compared(lm, make_lm(), tokens)
    assert lock.begin == -1 and {c.state for c in lock.cells[0].values()} == {SAME}
    assert {c.relative for c in lock.cells[0].values()} == {0.0} and lock.where() is None
    assert set(lock.cells[0]) == {tap.name for tap in lm.taps()} == set(compared(lm, lm, tokens).cells[0])
    _, b = lock.outcomes()
    assert b.kl == 0.0 and lock.outcomes()[0] == b
    found, _ = drain(lock.losses())
    assert (found.kl == 0).all() and found.same == (True, True) and np.array_equal(*found.loss)


def test_distances_are_those_of_the_whole_tensors(lm, tokens):
    other = lm.variant(qk_norm="head")
    cells = compared(lm, other, tokens, reuse=False).cells[0]
    names = [tap.name for tap in lm.taps() if tap.name not in ("logits",) and not tap.name.startswith("ln_final")]
    a, b = lm.capture(tokens, names), other.capture(tokens, names)
    visible = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
    for name in names:
        x, y = a[name].double(), b[name].double()
        if name.endswith(("hook_logits", "hook_attn_scores")):
            x, y = x[..., visible], y[..., visible]
        want = float((y - x).norm() / x.norm())
        assert cells[name].relative == pytest.approx(want, rel=1e-4, abs=1e-12), name
        assert (cells[name].state == SAME) == torch.equal(x, y)
        assert cells[name].rms == pytest.approx((float(x.square().mean().sqrt()), float(y.square().mean().sqrt())), rel=1e-4)
        assert cells[name].peak == pytest.approx((float(x.abs().max()), float(y.abs().max())), rel=1e-5)
    assert cells["blocks.0.attn.q_norm.hook_scale"].state == ONLY_B


def test_the_first_difference_is_where_the_change_is(lm, tokens):
    lock = compared(lm, lm.variant(qk_norm="head", layers=range(1, 3)), tokens)
    assert lock.begin == 1 and lock.where() == "blocks.1.attn.q_norm.hook_scale"
    above = ["hook_resid_pre", "ln1.hook_out", "attn.hook_q", "attn.hook_k", "attn.hook_v"]
    assert {lock.cells[0][f"blocks.1.{name}"].state for name in above} == {SAME}
    assert not any(name.startswith("blocks.0.") for name in lock.cells[0])
    assert compared(lm.variant(qk_norm="head"), lm, tokens).where() == "blocks.0.attn.hook_rot_q"
    backwards = compared(lm.variant(qk_norm="head"), lm, tokens).cells[0]
    assert backwards["blocks.0.attn.k_norm.hook_out"].state == ONLY_A


@pytest.mark.parametrize(
    ("part", "value"), [("eps", "0.1"), ("mlp", "relu"), ("window", "5"), ("wiring", "sandwich"), ("pairing", "interleaved")]
)
@pytest.mark.parametrize("layer", [0, 2])
def test_shared_layers_are_not_run_and_nothing_is_different_for_it(tokens, part, value, layer):
    lm = make_lm()
    other = lm.variant(layers=range(layer, 3), **{part: value})
    ran, step = [], other.step
    other.step = lambda stage, x, place: (ran.append(stage), step(stage, x, place))[1]
    quick = compared(lm, other, tokens)
    assert ran == list(range(layer, 4))
    whole = compared(lm, other, tokens, reuse=False)
    assert {c.state for name, c in whole.cells[0].items() if name not in quick.cells[0]} <= {SAME}
    for name, cell in quick.cells[0].items():  # a mask or a fused kernel may round otherwise, no more than that
        assert cell.relative == pytest.approx(whole.cells[0][name].relative, rel=2e-3, abs=1e-6, nan_ok=True), name


def test_as_many_sides_as_four(lm, tokens):
    sides = [Side(lm), *(Side(lm.variant(wiring=w)) for w in ("post", "sandwich", "parallel"))]
    lock = Lockstep(sides, tokens)
    drain(lock.walk())
    for n, side in enumerate(sides[1:], 1):
        alone = compared(lm, side, tokens).cells[0]
        assert {k: (c.state, c.relative) for k, c in alone.items() if c.relative == c.relative} == {
            k: (c.state, c.relative) for k, c in lock.cells[n - 1].items() if c.relative == c.relative
        }
        assert all(i.holds for i in lock.identities(n, 1))
    for count in (1, 5):
        with pytest.raises(BlockscopeError, match="two to 4"):
            Lockstep([Side(lm)] * count, tokens)


def test_a_delta_is_b_minus_a(lm, tokens):
    other = lm.variant(qk_norm="head")
    lock = compared(lm, other, tokens)
    for tap, select in (
        ("blocks.2.attn.hook_logits", {"head": 4}),
        ("blocks.1.mlp.hook_post", {}),
        ("blocks.1.attn.hook_pattern", {"head": 2}),
    ):
        delta = lock.delta(tap, tuple(select.items()))
        a, b = (m.capture(tokens, [tap])[tap][0] for m in (lm, other))
        a, b = (x[select["head"]] if select else x for x in (a, b))
        shown = delta.changes[0]
        seen = np.ones(shown.values.shape, bool) if shown.masked is None else ~shown.masked
        np.testing.assert_allclose(shown.values[seen], (b - a).numpy()[seen], atol=2e-5)
        np.testing.assert_allclose(delta.sides[1].values[seen], b.numpy()[seen], atol=2e-5)
        assert shown.kind == "signed" and shown.dims == delta.sides[0].dims
    only = lock.delta("blocks.1.attn.q_norm.hook_out", (("head", 1),))
    assert only.sides[0] is None and only.sides[1] is not None and only.changes == (None,)
    assert lock.delta("blocks.1.attn.hook_logits", (("head", 0),), budget=50).changes[0].values.size <= 50
    with pytest.raises(BlockscopeError, match="no side has a tensor"):
        lock.delta("blocks.1.nothing")


def test_deltas_above_the_change_are_zero_and_the_final_ones_are_of_the_last_token(lm, tokens):
    lock = compared(lm, lm.variant(mlp="relu", layers=range(2, 3)), tokens)
    assert not lock.delta("blocks.0.mlp.hook_post").changes[0].values.any()
    assert lock.delta("ln_final.hook_out").changes[0].values.shape[0] == 1
    assert lock.delta("hook_embed").changes[0].stats.absmax == 0


def test_kl_and_losses(lm, tokens):
    other = lm.variant(rope_base="500000")
    lock = compared(lm, other, tokens)
    p, q = (m.forward(tokens)[0].double().log_softmax(-1) for m in (lm, other))
    kl = (p.exp() * (p - q)).sum(-1)
    assert lock.outcomes()[1].kl == pytest.approx(float(kl[-1]), rel=1e-3)
    assert [i for i, _, _ in lock.outcomes()[1].top] == q[-1].topk(5).indices.tolist()
    found, steps = drain(lock.losses())
    np.testing.assert_allclose(found.kl[1], kl, rtol=1e-3, atol=1e-6)
    want = [-float(q[i, t]) for i, t in enumerate(tokens[1:])]
    np.testing.assert_allclose(found.loss[1], want, rtol=1e-4)
    assert steps[-1].done == len(tokens)


def test_tiles_make_no_difference(tokens, monkeypatch):
    def fresh() -> Lockstep:  # nothing is remembered from before
        lm = make_lm()
        return compared(lm, lm.variant(qk_norm="head"), tokens)

    whole = fresh()
    monkeypatch.setattr("model.scores.TILE_BYTES", 4 * 6 * 23 * 5)  # five query rows a tile
    tiled = fresh()
    for name, cell in whole.cells[0].items():
        assert tiled.cells[0][name].relative == pytest.approx(cell.relative, rel=1e-3, nan_ok=True), name
    tap, select = "blocks.1.attn.hook_logits", (("head", 2),)
    np.testing.assert_allclose(
        tiled.delta(tap, select).changes[0].values, whole.delta(tap, select).changes[0].values, atol=1e-5
    )
    monkeypatch.setattr("model.lockstep.KEPT_BYTES", 4 * 6 * 23 * 8)
    thin = fresh()
    cell = thin.cells[0]["blocks.1.attn.hook_logits"]
    assert cell.how == "one query row in 3" and cell.relative == pytest.approx(whole.cells[0][cell.tap].relative, rel=0.5)
    assert cell.own == pytest.approx(whole.cells[0][cell.tap].own, rel=1e-4), "the largest entry is looked for in every row"


def test_the_largest_entry_of_a_side_is_its_own_whatever_it_is_compared_with(lm, tokens):
    name = "blocks.0.attn.hook_logits"
    logits = lm.capture(tokens, [name])[name]
    narrow = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril().triu(-1)
    alone = [float(logits[..., seen].abs().max()) for seen in (narrow.tril(), torch.ones_like(narrow).tril())]
    assert alone[0] < alone[1], "else this test would show nothing"
    windowed = lm.variant(window="2")
    assert compared(lm, windowed, tokens).cells[0][name].own == pytest.approx(alone[::-1], rel=1e-5)
    assert compared(windowed, lm, tokens).cells[0][name].own == pytest.approx(alone, rel=1e-5)
    ends = [list(range(1, len(tokens) + 1)), [3, len(tokens)]]
    cut = compared(lm, make_lm(), [tokens, tokens[:2]], ends=ends).cells[0][name]
    assert cut.own[0] == pytest.approx(alone[1], rel=1e-5) and cut.peak[0] < cut.own[0]


def test_another_change_of_the_last_layer_runs_the_other_side_alone(tokens):
    lm, last = make_lm(), 2
    others = [lm.variant(layers=range(last, last + 1), **change) for change in ({"qk_norm": "head"}, {"eps": "0.1"})]
    compared(lm, others[0], tokens)
    ran = []
    step, lm.step = lm.step, lambda stage, x, place: ran.append(stage) or step(stage, x, place)
    again = compared(lm, others[1], tokens)
    assert ran == [], "A's last layer, its final norm and its logits are those of before"
    fresh = make_lm()
    want = compared(fresh, fresh.variant(layers=range(last, last + 1), eps="0.1"), tokens)
    assert want.cells == again.cells
    assert again.outcomes() == want.outcomes()
    edited = compared(Side(lm, (edit_at("head", 2, 1),)), others[1], tokens)
    assert edited.cells[0]["blocks.2.attn.hook_z"].state == CHANGED and ran, "a side that is edited is not what was kept"


def test_few_residuals_kept_is_only_slower(lm, tokens):
    other = lm.variant(qk_norm="head", layers=range(1, 3))
    whole, thin = compared(lm, other, tokens), compared(lm, other, tokens, memory=8000)
    assert len(thin._residuals[0]) < len(whole._residuals[0])
    for tap in ("blocks.2.mlp.hook_post", "blocks.0.mlp.hook_post"):
        np.testing.assert_allclose(thin.delta(tap).changes[0].values, whole.delta(tap).changes[0].values, atol=1e-5)


# ---- other shapes, other models ------------------------------------------------------------------------------------


def test_other_widths_and_depths_are_aligned_by_name():
    lm, tokens = load("tiny-llama"), list(b"the cat")
    cells = compared(lm, lm.variant(kv_heads="1", d_mlp="64"), tokens).cells[0]
    assert cells["blocks.0.attn.hook_k"].state == cells["blocks.0.mlp.hook_post"].state == SHAPE
    assert cells["blocks.0.attn.hook_q"].state == SAME and cells["blocks.1.attn.hook_q"].state == CHANGED
    shallow, deep = make_lm(tiny_config(layers=2)), make_lm(tiny_config(layers=3))
    tokens = [3, 5, 7]
    down, up = compared(deep, shallow, tokens), compared(shallow, deep, tokens)
    assert up.cells[0]["blocks.2.hook_resid_post"].state == ONLY_B and down.cells[0]["blocks.2.hook_resid_post"].state == ONLY_A
    assert up.cells[0]["blocks.1.hook_resid_post"].state == SAME and up.cells[0]["logits"].state == CHANGED
    assert up.delta("blocks.2.hook_resid_post").sides[0] is None


@pytest.mark.parametrize(
    "name", ["tiny-gpt2", "tiny-palm", "tiny-deepseek-v3", "tiny-gpt-oss", "tiny-gemma3", "tiny-olmo2", "tiny-2017"]
)
def test_any_design_against_any_other(name):
    lock = compared(load("tiny-llama"), load(name), list(b"the cat sat"))
    assert CHANGED in {c.state for c in lock.cells[0].values()} and lock.where()
    for tap in list(lock.cells[0])[::7]:
        lock.delta(tap)
    assert all(i.holds for n in (0, 1) for i in lock.identities(n, 1))


def test_norms_of_one_name_at_different_places_are_not_subtracted(tokens):
    lm = load("tiny-llama")
    cells = compared(lm, lm.variant(wiring="post"), tokens).cells[0]
    assert {name.split(".")[2] for name, cell in cells.items() if cell.state == PLACE} == {"ln1", "ln2"}
    cell = cells["blocks.1.ln2.hook_out"]
    assert cell.relative != cell.relative and all(x > 0 for x in (*cell.rms, *cell.own))
    lock = compared(lm, lm.variant(wiring="post"), tokens)
    assert lock.delta("blocks.1.ln2.hook_out").changes == (None,) and lock.delta("blocks.1.hook_resid_mid").changes[0]
    for same in ("sandwich", "parallel"):
        assert not any(c.state == PLACE for c in compared(lm, lm.variant(wiring=same), tokens).cells[0].values()), same


def test_prompts_that_do_not_line_up_are_refused(lm):
    with pytest.raises(BlockscopeError, match=r"different numbers of tokens \(A 3, B 2\)"):
        Lockstep([Side(lm), Side(make_lm())], [[1, 2, 3], [1, 2]])
    lock = compared(lm, make_lm(), [[1, 2, 3], [1, 2, 4]])
    assert lock.outcomes()[1].kl is None and not lock.one_vocabulary
    assert drain(lock.losses())[0].kl is None


def test_sides_that_cut_the_text_differently_are_compared_where_both_have_read_the_same():
    a, b = make_lm(), make_lm(tiny_config(layers=2))
    tokens, ends = [[1, 2, 3, 4, 5], [9, 3, 8]], [[1, 2, 3, 4, 6], [2, 4, 6]]
    lock = compared(a, b, tokens, ends=ends)
    assert [at.tolist() for at in lock.at] == [[1, 3, 4], [0, 1, 2]] and not lock.one_vocabulary
    mine, theirs = a.capture(tokens[0], ["*"]), b.capture(tokens[1], ["*"])
    for name, axes in (
        ("blocks.1.hook_resid_post", (1,)),
        ("blocks.0.attn.hook_pattern", (2, 3)),
        ("blocks.0.attn.hook_z", (1,)),
    ):
        x, y = mine[name], theirs[name]
        for axis in axes:
            x, y = x.index_select(axis, lock.at[0]), y.index_select(axis, lock.at[1])
        cell = lock.cells[0][name]
        assert cell.state == CHANGED and cell.relative == pytest.approx(float((y - x).norm() / x.norm()), rel=1e-4), name
    x, y = (t["blocks.0.attn.hook_logits"][0] for t in (mine, theirs))
    seen = [(1, 1), (3, 1), (3, 3), (4, 1), (4, 3), (4, 4)]
    here = {1: 0, 3: 1, 4: 2}
    distance = sum(float((y[:, here[q], here[k]] - x[:, q, k]).square().sum()) for q, k in seen) ** 0.5
    length = sum(float(x[:, q, k].square().sum()) for q, k in seen) ** 0.5
    assert lock.cells[0]["blocks.0.attn.hook_logits"].relative == pytest.approx(distance / length, rel=1e-4)
    assert lock.cells[0]["logits"].state == CHANGED, "both have read the whole text before the last prediction"
    assert lock.delta("blocks.0.hook_resid_post").changes == (None,)
    found, _ = drain(lock.losses())
    assert found.kl is None and np.isfinite(found.loss[0]).all() and np.isnan(found.loss[1, 2:]).all()
    assert compared(a, b, [[1, 2], [1, 2]], ends=[[1, 2], [1, 2]]).at is None
    with pytest.raises(BlockscopeError, match="no common place"):
        Lockstep([Side(a), Side(b)], [[1, 2], [1]], ends=[[1, 3], [2]])


def test_the_ends_of_tokens_in_a_text():
    lm = load("tiny-llama")
    assert lm.ends("aé") == [1, 2, 2] and lm.encode("aé") == list("aé".encode())


def test_numbers_that_are_none_stay_visible(tokens):
    def source(name, shape):
        x = distinct(name, shape)
        if name == "blocks.1.mlp.up_proj.weight":
            x[0, 0] = float("nan")
        return x

    bad = LM(tiny_config(), WeightStore(source, torch.device("cpu"), torch.float32), name="bad", source="test", tokenizer=None)
    cells = compared(make_lm(), bad, tokens).cells[0]
    assert cells["blocks.1.mlp.hook_post"].state == CHANGED and np.isnan(cells["blocks.1.mlp.hook_post"].relative)
    lock = compared(bad, bad, tokens)
    assert {c.state for c in lock.cells[0].values()} == {SAME}, "the same NaN on both sides is no difference"
    assert "not all finite" in lock.outcomes()[1]


def test_a_walk_can_be_closed(lm, tokens):
    walk = Lockstep([Side(lm), Side(lm.variant(mlp="relu"))], tokens).walk()
    first = next(walk)
    assert (first.done, first.what) == (1, "A, layer 0") and first.total == 8
    walk.close()


# ---- interventions -------------------------------------------------------------------------------------------------


def edited(lm, tokens, *edits, b=None) -> Lockstep:
    return compared(lm, Side(b or lm, tuple(edits)), tokens)


def test_a_zeroed_head_is_a_zeroed_slice_of_w_o(lm, tokens):
    lock = edited(lm, tokens, edit_at("head", 1, 4))
    assert lock.begin == 1 and lock.where() == "blocks.1.attn.hook_z"
    other = make_lm()
    other.block(1).attn.o_proj.weight = torch.nn.Parameter(other.block(1).attn.o_proj.weight.clone(), requires_grad=False)
    other.block(1).attn.o_proj.weight[:, 40:50] = 0
    want = other.capture(tokens, ["blocks.2.hook_resid_post"])["blocks.2.hook_resid_post"][0]
    np.testing.assert_allclose(lock.delta("blocks.2.hook_resid_post").sides[1].values, want, atol=2e-5)
    assert not lock.delta("blocks.1.attn.hook_z", (("head", 3),)).changes[0].values.any()
    assert lm.capture(tokens, ["logits"])["logits"].equal(make_lm().capture(tokens, ["logits"])["logits"]), "A is as it was"


def test_every_kind_of_edit_changes_its_tensor_and_nothing_before_it(lm, tokens):
    for what in EDITS:
        edit = edit_at(what, 1, 2, 0.5, leaf="hook_attn_out")
        lock = edited(lm, tokens, edit, b=lm.variant(eps="0.5", layers=range(0, 1)) if what == "patch" else None)
        if what != "patch":
            assert lock.where() == edit.tap, what
        cell = lock.cells[0][edit.tap]
        assert cell.state == CHANGED and lock.cells[0]["blocks.2.hook_resid_post"].relative > 0
    gain = edited(lm, tokens, edit_at("gain1", 1, 7, 3.0)).delta("blocks.1.ln1.hook_out").changes[0].values
    assert gain[:, 7].any() and not np.delete(gain, 7, axis=1).any()
    frozen = edited(lm, tokens, edit_at("gate", 1)).delta("blocks.1.mlp.hook_act").sides[1].values
    np.testing.assert_allclose(frozen, np.broadcast_to(frozen[:1], frozen.shape), atol=1e-6)


def test_patching_every_tensor_of_the_stream_back_undoes_a_change(lm, tokens):
    other = lm.variant(qk_norm="head", layers=range(0, 2))
    lock = edited(lm, tokens, edit_at("patch", 1, leaf="hook_resid_post"), b=other)
    assert lock.cells[0]["blocks.1.hook_attn_out"].state == CHANGED
    assert lock.cells[0]["blocks.1.hook_resid_post"].state == SAME
    assert {c.state for name, c in lock.cells[0].items() if name.startswith(("blocks.2.", "ln_final", "logits"))} == {SAME}
    assert lock.outcomes()[1].kl == 0.0
    half = edited(lm, tokens, edit_at("patch", 1, factor=0.5, leaf="attn.hook_pattern"), b=other)
    plain = compared(lm, other, tokens).cells[0]
    assert half.cells[0]["blocks.1.attn.hook_pattern"].relative == pytest.approx(
        plain["blocks.1.attn.hook_pattern"].relative / 2, rel=0.3
    )


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (Edit("blocks.1.attn.hook_z", "head", 6), "head 6 is outside 0..5"),
        (Edit("blocks.9.attn.hook_z", "head"), "B has no tensor 'blocks.9.attn.hook_z'"),
        (Edit("blocks.1.attn.hook_z", "melt"), "no intervention 'melt'"),
        (Edit("blocks.1.attn.rope.hook_angle", "head", 2), "no head to choose"),
        (Edit("blocks.1.attn.q_norm.hook_out", "patch"), "A has no tensor"),
    ],
)
def test_edits_that_cannot_be_made_are_refused(lm, tokens, edit, sentence):
    with pytest.raises(BlockscopeError, match=sentence.replace(".", r"\.").replace("(", r"\(")):
        edited(lm, tokens, edit, b=lm.variant(qk_norm="head"))
