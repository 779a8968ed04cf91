"""Which experts each token goes to: the router's logits, the choice, the weights used, and how the load is spread."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels, marks
from viz.figures.heat import matrix
from viz.figures.ranking import ranking
from viz.figures.stack import Panel, Series, stack
from viz.nodes.card import WHOLE, Asking, Card, Scene, card, line, odd_values, short
from viz.nodes.qk import kind_of
from viz.theme import count, number

CELLS = 16_384  # of a map
RULES = {
    "TopKSoftmax": "the largest logits are chosen, their softmax is the weight",
    "SoftmaxTopK": "softmax over all experts, the largest are chosen with that weight",
    "SigmoidTopK": "the largest logits are chosen, their sigmoid multiplies what the expert reads",
    "GroupMaxTopK": "softmax; the best groups by their best expert, then the best experts in them",
    "BiasedGroupTopK": "sigmoid; a learned bias enters the choice of groups and experts, never the weight",
}


def router(scene: Scene, _: str) -> Asking:
    """Cards of the router: its logits large."""
    views = yield wanted(scene)
    return [logits(scene, views), choice(scene, views), load(scene, views), of_token(scene, views)]


def chosen(scene: Scene, _: str) -> Asking:
    """The same, with the choice large."""
    views = yield wanted(scene)
    return [choice(scene, views, "main"), load(scene, views), logits(scene, views, "more"), of_token(scene, views)]


def wanted(scene: Scene) -> dict[str, Request]:
    return {
        "logits": Request(scene.tap("mlp.hook_router_logits"), budget=CELLS),
        "token": Request(scene.tap("mlp.hook_router_logits"), select=(("pos", scene.pos),), budget=WHOLE),
        **chosen_experts(scene),
    }


def chosen_experts(scene: Scene) -> dict[str, Request]:
    """The experts of every token and their weights, whole."""
    taps = (("weights", "mlp.hook_expert_weights"), ("indices", "mlp.hook_expert_indices"))
    return {name: Request(scene.tap(tap), budget=WHOLE) for name, tap in taps}


def rule(scene: Scene) -> str:
    """How experts are chosen and weighted, in words."""
    routing = scene.block.mlp.routing
    scale = f", times {routing.scale:g}" if routing.scale != 1 else ""
    return RULES.get(kind_of(routing), kind_of(routing)) + scale


def logits(scene: Scene, views: dict[str, View], role: str = "main") -> Card:
    """Tokens x experts, the chosen ones marked."""
    view, n = views["logits"], scene.block.mlp.n_experts
    rows = labels.token_axis("token", scene.pieces, view.coords[0])
    columns = labels.index_axis("expert", n, view.coords[1])
    colour = colours.signed(view.values, scene.theme, scene.log)
    figure = matrix(
        view.values, rows, columns, colour, scene.theme, revision=scene.key("router"), unit="logit", row=scene.pos,
        click=("token", "y"), height=110 + min(max(22 * rows.cells, 110), 440),
    )  # fmt: skip
    whole = view.values.shape == (len(scene.tokens), n)
    if whole:
        indices = views["indices"].values
        at = np.repeat(np.arange(len(indices)), indices.shape[1])
        size = float(np.clip(220 / max(len(indices), 1), 2, 7))
        figure = marks.dots(figure, indices.ravel(), at, scene.theme, size)
    topk = scene.block.mlp.routing.topk
    dotted = f"dots: the {topk} chosen" if topk > 1 else "dots: the one chosen"
    dotted = dotted if whole else "cells are pooled: the chosen ones are not marked"
    caption = scene.caption(view, rule(scene), dotted, colour.note)
    return card("router", f"Router logits · layer {scene.layer}", caption, figure, role=role)


def choice(scene: Scene, views: dict[str, View], role: str = "more") -> Card:
    """Tokens x experts: the weight with which a token uses an expert; empty where it does not."""
    weights, indices = views["weights"].values, views["indices"].values.astype(int)
    n, experts = len(weights), scene.block.mlp.n_experts
    used = np.full((n, experts), np.nan, np.float32)
    used[np.arange(n)[:, None], indices] = weights
    step = -(-n // max(CELLS // experts, 1))
    first = np.arange(0, n, step)
    unused = np.ones((n, experts), bool)
    unused[np.arange(n)[:, None], indices] = False
    figure = matrix(
        used[first], labels.token_axis("token", scene.pieces, first), labels.index_axis("expert", experts),
        colours.sequential(weights, scene.theme, scene.log), scene.theme, revision=scene.key("choice"), unit="weight",
        masked=unused[first], row=scene.pos, click=("token", "y"), height=110 + min(max(22 * len(first), 110), 440),
    )  # fmt: skip
    caption = line(
        f"{views['weights'].tap} at hook_expert_indices, {short(views['weights'].dtype)}",
        f"{n} × {experts}, {scene.block.mlp.routing.topk} a token" + (f", every {step} tokens drawn" if step > 1 else ""),
        rule(scene),
        *odd_values(weights),
    )
    return card("choice", f"Chosen experts · layer {scene.layer}", caption, figure, role=role)


def load(scene: Scene, views: dict[str, View]) -> Card:
    """How many of the tokens each expert reads, and the weight that it has in all."""
    mlp, theme = scene.block.mlp, scene.theme
    indices, weights = views["indices"].values.astype(int).ravel(), np.nan_to_num(views["weights"].values.ravel())
    tokens = np.bincount(indices, minlength=mlp.n_experts).astype(np.float32)
    total = np.bincount(indices, weights, minlength=mlp.n_experts).astype(np.float32)
    even = len(indices) / mlp.n_experts
    panels = [
        Panel("tokens", [Series("tokens", tokens, theme.faint, "bar")], lines=[(even, f"even: {number(even)}")]),
        Panel("sum of weights", [Series("sum of weights", total, theme.b, "bar")]),
    ]
    side = labels.index_axis("expert", mlp.n_experts)
    figure = stack(panels, side, theme, revision=scene.key("load"), height=280, legend=False)
    idle = int((tokens == 0).sum())
    caption = line(
        f"{count(len(scene.tokens), 'token')}, each goes to {mlp.routing.topk} of {count(mlp.n_experts, 'expert')}",
        f"{count(idle, 'expert')} read nothing here" if idle else "every expert reads something",
    )
    return card("load", "Load of the experts", caption, figure)


def of_token(scene: Scene, views: dict[str, View]) -> Card:
    """The experts of the chosen token with their logits and weights."""
    weights, indices = views["weights"].values[scene.pos], views["indices"].values[scene.pos].astype(int)
    own = views["token"].values
    names = [f"expert {e}" for e in indices]
    figure = ranking(names, weights, scene.theme, revision=scene.key("token-experts"), name="weight used")
    both = zip(names, own[indices], weights, strict=True)
    table = [(name, f"logit {number(float(logit))} → {number(float(weight))}") for name, logit, weight in both]
    table.append(("sum of the weights", number(float(weights.sum()))))
    caption = line(f"{scene.token}, {rule(scene)}", f"best logit of all: {number(float(np.nanmax(own)))}")
    return card("token-experts", "Experts of the token", caption, figure, table, "side")
