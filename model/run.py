"""The one door: a language model that runs layer by layer, keeps what it may need again, and answers in Views."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.ahead import Ahead
from model.asked import Asked
from model.cost import Cost, amount, cost, tap_sizes
from model.counting import count_config
from model.errors import BlockscopeError, TooLarge
from model.identities import Checking, Identity, check
from model.lm import Decoder
from model.place import KVCache, Place
from model.presets import PRESETS
from model.remembered import Remembered
from model.scores import tile_bytes
from model.stages import Progress, Stages
from model.surgery import read
from model.taps import Collect, Enough, Recorder, Tap, TapInfo, recording, require_fired, select, taps_of
from model.text import Text
from model.tokens import Tokenizer
from model.variant import variant
from model.view import Request, View
from model.weights import WeightStore

IDENTITIES_SIZE = 4096  # bytes, about, of one block's
CAPTURE_LIMIT = 4 << 30  # bytes that one capture() may hold unless the caller says otherwise


class LM(Text):
    """A decoder with its weights, tokenizer and memory. Read-only once made: any number of threads may share it."""

    def __init__(
        self, config: Decoder.Config, store: WeightStore, *, name: str, source: str, tokenizer: Tokenizer | None,
        report: Sequence[str] = (), invented: Sequence[str] = (), memory: int = 1 << 30, original: "LM | None" = None,
        which: str = "", net: Decoder | None = None,
    ):  # fmt: skip
        self.original = original or self  # the model as loaded, where this one is its variant `which`
        self.config, self.store, self.name, self.source = config, store, name, source
        self.tokenizer, self.report, self.invented = tokenizer, tuple(report), tuple(invented)
        self.net = net or config.build_empty()
        self.net.eval()
        self.stages = Stages(self.net, store)
        self._taps = taps_of(self.net)
        self._which = which
        self.remembered = Remembered(memory) if original is None else original.remembered  # variants live in their original's

    @property
    def device(self) -> torch.device:
        """Where tokens go in; of several devices the first."""
        return self.store.device

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    @cached_property
    def parameters(self) -> int:
        return count_config(self.config).parameters

    @property
    def random(self) -> bool:
        """Whether these weights are a preset's random ones, which nobody trained."""
        return self.source in PRESETS

    @property
    def qk_norm(self) -> str:
        return read(self.config, "qk_norm")

    # ---- running ---------------------------------------------------------------------------------------------------

    @property
    def last_stage(self) -> int:
        return self.config.n_layers

    def stage_of(self, tap: str) -> int:
        """-1: embedding; 0..n_layers-1: that block; n_layers: final norm and logits."""
        head, _, rest = tap.partition(".")
        if head == "blocks":
            return int(rest.partition(".")[0])
        return -1 if head in ("hook_embed", "positions") else self.last_stage

    def block(self, layer: int) -> nn.Module:
        """One block with its weights in place; it also runs alone, on any hidden states [batch, pos, d_model]."""
        block = self.store.ready(self.net.blocks[layer], f"blocks.{layer}")
        self.store.meet(block.parameters())
        return block

    def step(self, stage: int, x: Tensor, place: Place, block: nn.Module | None = None) -> Tensor:
        """Run one stage: -1 takes tokens [batch, pos], the others the residual stream entering them [batch, pos, d_model]."""
        return self.stages.run(stage, x, place, block)

    def walk(
        self,
        tokens: Sequence[int] | Tensor,
        requests: Iterable[Request],
        checking: int | None = None,
        pulse: Callable[[float], None] | None = None,
    ) -> Iterator[Progress]:
        """Answer requests, a layer at a time: yields Progress, returns the Views; closing the generator stops the run.

        Only stages that a request needs, or that lead to one, run; the residual entering each is kept for next time.
        `checking`: a layer whose identities are measured in the same pass, for `identities` to find. `pulse` is called at every
        tensor and tile of the layer that runs, with the share of its queries that are done; an error that it raises stops the
        run there.
        """
        ids = self.checked(tokens)[:1]
        key, requests = self._key(ids), list(requests)
        asked = Asked(requests, {r: self.remembered.views.get((key, r)) for r in requests}, self._tap)
        measure = None
        if checking is not None and self.remembered.views.get((key, checking)) is None:
            measure = Checking(self.net.blocks[checking])
            asked.watch(measure.watchers)
        needed = {self.stage_of(tap) for tap in asked.missing} | ({checking} if measure else set())
        steps, starts = self.remembered.plan(key, self.last_stage, needed)
        place, recorder, x = Place.of(ids), Recorder(asked.watchers), ids
        recorder.pulse = pulse
        with Ahead(self.stages, recorder.beat) as ahead:
            for done, stage in enumerate(steps):
                if not self.stages.held(stage):
                    yield Progress(done, len(steps), f"reading {self._words(stage)}")
                block = ahead.take(stage)
                ahead.begin(steps[done + 1 : done + 2])
                x, recorder.share = starts.get(stage, x), 0.0
                if done == len(steps) - 1 and measure is None:
                    recorder.awaited = asked.taps_where(lambda name, stage=stage: self.stage_of(name) == stage) or None
                with recording(recorder), suppress(Enough):  # within one step: a generator may go on in another thread
                    x = self.step(stage, x, place, block)
                    self.remembered.keep(key, self.last_stage, stage + 1, x)
                if measure is not None and stage == checking:
                    measure.block = block
                    self.remembered.views.put((key, checking), measure.results(self.dtype), IDENTITIES_SIZE)
                    measure = None
                for request, view in asked.measured(recorder.fired):  # kept at once: a run that is stopped has measured these
                    self.remembered.views.put((key, request), view, view.nbytes + 1024)
                del block  # or it would stay while the one after the next is read
                yield Progress(done + 1, len(steps), self._words(stage), *map(self._words, steps[done + 1 : done + 2]))
        require_fired(recorder, asked.missing)
        return asked.answers()

    def _key(self, ids: Tensor) -> tuple:
        """What decides every number of a run: which variant this is, and the tokens [1, pos]."""
        return self._which, tuple(ids[0].tolist())

    def _tap(self, name: str):
        return self._taps[name] if name in self._taps else select(self.net, [name])[name]

    def _words(self, stage: int) -> str:
        return {-1: "embedding", self.last_stage: "logits"}.get(stage, f"layer {stage}")

    def views(self, tokens: Sequence[int] | Tensor, requests: Iterable[Request], checking: int | None = None) -> list[View]:
        """Reduced at the tap, in the order asked; results and residuals are remembered per prompt."""
        return _drain(self.walk(tokens, requests, checking))

    def capture(
        self, tokens: Sequence[int] | Tensor, taps: Iterable[str] = ("*",), limit: int | None = CAPTURE_LIMIT
    ) -> dict[str, Tensor]:
        """Full tensors [batch, ...] by tap name. `taps`: names or * patterns. Refused beforehand when over `limit` bytes."""
        ids, chosen = self.checked(tokens), select(self.net, taps)
        size = sum(tap_sizes(self.config, list(chosen), *ids.shape).values()) * self.dtype.itemsize
        if limit is not None and size > limit:
            raise TooLarge(
                f"these {len(chosen)} taps over {ids.shape[1]:,} tokens would hold {amount(size, 'B')}, above the limit of "
                f"{amount(limit, 'B')}: name fewer taps, shorten the prompt, use views(), or pass limit="
            )
        keep = {name: Collect(tap) for name, tap in chosen.items()}
        recorder = Recorder({chosen[name]: [collect] for name, collect in keep.items()})
        with recording(recorder):
            self._through(ids, Place.of(ids), max(map(self.stage_of, chosen)))
        require_fired(recorder, chosen)
        return {name: collect.value for name, collect in keep.items()}

    def forward(self, tokens: Sequence[int] | Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits [batch, pos, d_vocab] with nobody listening; with a cache, `tokens` continue what it holds."""
        ids = self.checked(tokens)
        place = Place.of(ids, cache)
        x = self._through(ids, place, self.last_stage)
        if cache is not None:
            cache.length = place.length
        return x

    def _through(self, x: Tensor, place: Place, last: int) -> Tensor:
        """Tokens [batch, pos] through every stage up to `last`."""
        with Ahead(self.stages) as ahead:
            for stage in range(-1, last + 1):
                block = ahead.take(stage)
                ahead.begin(range(stage + 1, min(stage + 2, last + 1)))
                x = self.step(stage, x, place, block)
                del block
        return x

    def generate(self, tokens: Sequence[int], count: int) -> list[int]:
        """The `count` tokens that follow, each the most probable one (greedy), decoded with a KV cache."""
        cache, ids, new = KVCache(), list(tokens), []
        for _ in range(count):
            ids = [int(_rankable(self.forward(ids, cache)[0, -1]).argmax())]
            new += ids
        return new

    # ---- looking ---------------------------------------------------------------------------------------------------

    def taps(self) -> list[TapInfo]:
        """Every tap of this model, in order of the module tree."""
        return list(self._tap_infos)

    @cached_property
    def _tap_infos(self) -> tuple[TapInfo, ...]:
        return tuple(TapInfo(name, tap.dims, tap.kind, tap.meaning) for name, tap in self._taps.items())

    @property
    def tap_modules(self) -> Mapping[str, Tap]:
        """The taps themselves by name, for a Recorder."""
        return self._taps

    @cached_property
    def taps_by_stage(self) -> Mapping[int, Mapping[str, Tap]]:
        """The same, by the stage in which they fire."""
        found: dict[int, dict[str, Tap]] = {}
        for name, tap in self._taps.items():
            found.setdefault(self.stage_of(name), {})[name] = tap
        return found

    def recall(self, tokens: Sequence[int] | Tensor, what: Hashable) -> Any | None:
        """What `keep` put there for this model and these tokens, as long as it is remembered."""
        return self.remembered.views.get((self._key(self.checked(tokens)[:1]), what))

    def keep(self, tokens: Sequence[int] | Tensor, what: Hashable, value: Any, nbytes: int) -> None:
        """Remember something read-only that these tokens decide; the least recently used goes first."""
        self.remembered.views.put((self._key(self.checked(tokens)[:1]), what), value, nbytes)

    def residual(self, tokens: Sequence[int] | Tensor, stage: int) -> Tensor:
        """The residual stream entering a stage [1, pos, d_model], from memory where it was kept."""
        ids = self.checked(tokens)[:1]
        key, place = self._key(ids), Place.of(ids)
        steps, starts = self.remembered.plan(key, self.last_stage, {stage})
        x = starts.get(stage, ids)
        for step in steps[:-1]:  # the last is the stage itself
            x = self.step(step, starts.get(step, x), place)
            self.remembered.keep(key, self.last_stage, step + 1, x)
        return x

    def identities(self, tokens: Sequence[int] | Tensor, layer: int) -> list[Identity]:
        """The equations of the block of `layer`, measured on this prompt."""
        key = self._key(self.checked(tokens)[:1])
        if (found := self.remembered.views.get((key, layer))) is None:
            x = self.residual(tokens, layer)
            found = check(self.block(layer), *self.stages.bring(layer, x, Place.of(x)))
            self.remembered.views.put((key, layer), found, IDENTITIES_SIZE)
        return found

    def next_tokens(self, tokens: Sequence[int] | Tensor, k: int = 10) -> list[tuple[int, str, float]]:
        """The k most probable next tokens: (id, piece, probability). Nothing is sampled."""
        if not 1 <= k <= self.config.d_vocab:
            raise BlockscopeError(f"k must lie in 1..{self.config.d_vocab}, got {k}")
        x = self.residual(tokens, self.last_stage)
        logits = self.step(self.last_stage, x[:, -1:], Place.of(x))[0, -1]
        probability, ids = _rankable(logits).float().softmax(-1).topk(k)
        return [(i, self.pieces([i])[0], p) for i, p in zip(ids.tolist(), probability.tolist(), strict=True)]

    def parameter(self, name: str) -> np.ndarray:
        """A copy of one parameter, fp32; a name that this model does not have is an error."""
        known = dict(self.net.named_parameters())
        if name not in known:
            raise BlockscopeError(f"{self.name} has no parameter {name!r}")
        return self.store.get(name, tuple(known[name].shape)).float().cpu().numpy().copy()

    def rope_frequencies(self, layer: int, scaled: bool = True, length: int = 1) -> np.ndarray:
        """Radians per position of each pair [pair], with or without the configured scaling."""
        rope = self.config.blocks[layer].attn.rope
        return (rope if scaled else replace(rope, scaling=None)).frequencies(length)[0].numpy()

    def cost(self, tokens: int) -> Cost:
        return cost(self.config, tokens, self.dtype.itemsize, self.remembered.residuals.limit, tile_bytes(self.device))

    def variant(self, qk_norm: str | None = None, layers: range | None = None, **changes: str) -> "LM":
        """The model as loaded with the parts named in model.surgery.CHANGES changed, in all blocks or in those of `layers`.

        Every weight that both have is the same memory; `invented` names those that the checkpoint lacks (unit gains,
        zero biases and sinks, matrices seeded by name). Nothing changed: the model as loaded itself. Random weights may
        change their shape, a checkpoint's matrices may not.
        """
        changes |= {} if qk_norm is None else {"qk_norm": qk_norm}
        if self is not self.original:
            return self.original.variant(layers=layers, **changes)
        return variant(self, changes, layers)


def _rankable(logits: Tensor) -> Tensor:
    """Argmax of NaN is token 0: refuse rather than show a confident guess."""
    if not bool(torch.isfinite(logits).all()):
        raise BlockscopeError("the logits are not all finite, so tokens cannot be ranked; look for the first NaN or Inf")
    return logits


def _drain(walk: Iterator[Progress]) -> list[View]:
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return end.value
