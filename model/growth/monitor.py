"""Attention logits of any PyTorch model while it trains, measured from its own q and k every few steps.

with LogitMonitor(model, every=50, record="run.safetensors"):
    train(model)
"""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.growth import interface, watching
from model.growth.quantities import QUANTITIES, measure
from model.growth.record import Record
from model.growth.watching import Heads

SAVE_EVERY = 60  # seconds between writes of the record while it goes on
SOFTMAX = ("entropy", "one_hot")  # not known where something is added to the logits


class LogitMonitor:
    """Measures QUANTITIES per layer and head of `model` in the first forward pass of every `every`-th step.

    A transformers model needs nothing else; of a plain nn.Module, `layers` names what gives q and k. A step is `passes`
    training forward passes, or one step of `optimizer` where that is given. Passes without gradients, or in eval mode, are
    left alone unless `evaluation`. Everything is under no_grad, in fp32, in tiles; outside of a measured pass nothing is
    attached. Passes that gradient checkpointing repeats do not count. A model from torch.compile runs uncompiled in the
    measured passes, compiled in all others.

    `record`: a .safetensors file that the Growth page opens; `csv`: the same as a table; `tensorboard`: a folder for scalars.
    """

    def __init__(
        self, model: nn.Module, *, every: int = 1, layers: Heads | Sequence[Heads] = (), passes: int = 1,
        optimizer: torch.optim.Optimizer | None = None, evaluation: bool = False, record: str | Path | None = None,
        csv: str | Path | None = None, tensorboard: str | Path | None = None, name: str | None = None, label: str = "",
    ):  # fmt: skip
        for what, value in (("every", every), ("passes", passes)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BlockscopeError(f"{what} must be a whole number of at least 1, got {value!r}")
        if model._compiled_call_impl is not None:
            raise BlockscopeError("a model compiled in place by model.compile() cannot be watched: use torch.compile(model)")
        self.model, self.inner = model, getattr(model, "_orig_mod", model)
        self.every, self.passes, self.evaluation = every, passes, evaluation
        self.layers = [layers] if isinstance(layers, Heads) else list(layers)
        self.name, self.label = name or type(self.inner).__name__, label
        self.step, self.record_path, self.csv_path = 0, record, csv
        self.steps: list[int] = []
        self.measured: list[dict[str, dict[str, np.ndarray]]] = []  # per probe: layer name -> quantity -> [head]
        self.losses: dict[int, float] = {}
        self.finished = False  # whether the `with` block came to its end
        self.biased: set[str] = set()
        self.seconds, self._pass, self._at, self._now = 0.0, 0, 0, None
        self._began = self._saved = time.perf_counter()
        self._ways = self._found()
        self._board = None
        if tensorboard is not None:
            from model.growth.board import Board

            self._board = Board(tensorboard)
        self._handles = [
            model.register_forward_pre_hook(self._before),
            model.register_forward_hook(self._after, always_call=True),
        ]
        if optimizer is not None:
            self._handles.append(optimizer.register_step_post_hook(lambda *_: self._stepped()))
        self.optimizer = optimizer

    def __enter__(self) -> "LogitMonitor":
        return self

    def __exit__(self, *error: Any) -> None:
        self.finished = error[0] is None
        self.close()

    def close(self) -> None:
        """Detach from the model and write what was asked for; what was measured stays readable here."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._board is not None:
            self._board.close()
        if self.steps:
            self.save()

    # ---- what was measured -----------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The layers, in the order in which they were first seen."""
        return list(dict.fromkeys(name for probe in self.measured for name in probe))

    def values(self) -> dict[str, np.ndarray]:
        """Each quantity, float32 [probe, layer, head]; NaN where a layer was not run or has fewer heads than another."""
        names = self.names
        heads = max((len(v["max_logit"]) for probe in self.measured for v in probe.values()), default=0)
        found = {q: np.full((len(self.steps), len(names), heads), np.nan, np.float32) for q in QUANTITIES}
        for p, probe in enumerate(self.measured):
            for layer, value in probe.items():
                for q, array in value.items():
                    found[q][p, names.index(layer), : len(array)] = array
        return found

    @property
    def share(self) -> float:
        """Seconds spent measuring, of all seconds since the monitor was attached."""
        return self.seconds / (time.perf_counter() - self._began)

    def loss(self, value: float | Tensor) -> None:
        """Note the training loss of the last pass; the record keeps that of each measured step."""
        self.losses[self._at] = float(value.detach() if isinstance(value, Tensor) else value)

    def record(self) -> Record:
        """Everything so far, as a run that the Growth page shows."""
        if not self.steps:
            raise BlockscopeError("nothing was measured: no training forward pass of this model has run yet")
        values, nothing = self.values(), np.full(len(self.steps), np.nan)
        meta = {
            "name": self.name, "arm": "measured", "group": "monitor",
            "label": self.label or f"{self.name}, measured every {self.every} steps while it trained elsewhere",
            "ended": "finished" if self.finished else f"stopped at step {self.step}", "layers": self.names, "every": self.every,
            "parameters": sum(p.numel() for p in self.inner.parameters()), "seconds": time.perf_counter() - self._began,
            "torch": torch.__version__, "python": platform.python_version(), "threads": torch.get_num_threads(),
        }  # fmt: skip
        if self.biased:
            meta["notes"] = [
                f"something is added to the logits of {len(self.biased)} layers: no entropy, no one-hot rows there"
            ]
        return Record(
            meta=meta, step=np.array(self.steps, np.int64), validation_loss=nothing, values=values,
            train_loss=np.array([self.losses.get(step, np.nan) for step in self.steps]),
            bound=np.full(values["max_logit"].shape[:2], np.nan, np.float32),
        )  # fmt: skip

    def save(self) -> None:
        """Write the record and the table now."""
        if self.record_path is not None:
            self.record().write(self.record_path)
        if self.csv_path is not None:
            path = Path(self.csv_path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.record().csv())
        self._saved = time.perf_counter()

    # ---- measuring -------------------------------------------------------------------------------------------------

    def see(
        self, name: str, q: Tensor, k: Tensor, *, mask: Callable, scale: float, cap: float | None = None,
        sink: Tensor | None = None, positions: Tensor | None = None, biased: bool = False,
    ) -> None:  # fmt: skip
        """Measure one attention, if this is a measured pass; a training loop may call it where it has q and k at hand.

        q [batch, pos, head, d_head], k [batch, key_pos, kv_head, d_head] as they are multiplied; `mask` of model.masks or any
        function of (query positions, key positions) that says what is visible.
        """
        if self._now is None:
            return
        began = time.perf_counter()
        found = measure(q.detach(), k.detach(), mask=mask, scale=scale, cap=cap, sink=sink, positions=positions)
        arrays = {quantity: value.float().cpu().numpy() for quantity, value in found.items()}
        if biased:
            arrays |= {quantity: np.full_like(arrays[quantity], np.nan) for quantity in SOFTMAX}
            self.biased.add(name)
        times = sum(1 for other in self._now if other.partition(" #")[0] == name)
        self._now[name if not times else f"{name} #{times + 1}"] = arrays
        self.seconds += time.perf_counter() - began

    def _found(self) -> list[Callable[[], Any]]:
        """The watches to open in a measured pass."""
        for heads in self.layers:
            heads.parts(self.inner)  # a name that fits nothing is said now, not in the middle of a run
        if self.layers:
            return [lambda heads=heads: watching.modules(self.inner, heads, self.see) for heads in self.layers]
        if any(hasattr(part, "config") and hasattr(part.config, "_attn_implementation") for part in self.inner.modules()):
            return [lambda: interface.transformers(self.inner, self.see)]
        return []  # then whoever trains calls `see`

    def _before(self, *_: Any) -> None:
        if not (self.evaluation or (self.inner.training and torch.is_grad_enabled())):
            return
        self._pass, self._at = self._pass + 1, self.step
        due = self.step % self.every == 0 and (not self.steps or self.steps[-1] != self.step)
        if not due or self._now is not None:
            return
        self._now, self._open = {}, ExitStack()
        with self._open_on_error():
            if self.model is not self.inner or any(part._compiled_call_impl is not None for part in self.inner.modules()):
                self._open.enter_context(torch.compiler.set_stance("force_eager"))
            for way in self._ways:
                self._open.enter_context(way())

    @contextmanager
    def _open_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._open.close()
            self._now = None
            raise

    def _after(self, model: nn.Module, inputs: Any, output: Any) -> None:
        measured, self._now = self._now, None
        if measured is not None:
            self._open.close()
            began = time.perf_counter()
            if output is None:  # the pass failed: its error goes on, half a measurement is none
                return
            if not measured:
                raise BlockscopeError(
                    f"no attention of this {type(self.inner).__name__} could be seen: its q and k do not pass through "
                    "transformers' AttentionInterface. Name the parts that give them with layers=Heads(...), or call see()"
                )
            self.steps.append(self.step)
            self.measured.append(measured)
            if self._board is not None:
                self._board.write(self.step, measured)
            if time.perf_counter() - self._saved > SAVE_EVERY:
                self.save()
            self.seconds += time.perf_counter() - began
        if self.optimizer is None and self._pass >= self.passes:
            self._stepped()

    def _stepped(self) -> None:
        self.step, self._pass = self.step + 1, 0
