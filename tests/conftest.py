"""Shared fixtures: devices present on this machine, and a tiny model with odd, unequal sizes."""

import os
from pathlib import Path
from urllib.parse import urljoin

import browser as b
import pytest
import torch
from playwright.sync_api import sync_playwright

from model.attention import Attention
from model.block import PreNorm
from model.lm import Decoder
from model.masks import Causal
from model.mlp import SwiGLU
from model.norms import RMSNorm
from model.positions import Rope
from model.run import LM
from model.weights import WeightStore

torch.set_num_threads(1)  # tests run in two processes: more threads would only wait for each other

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else []), *(["mps"] if torch.backends.mps.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request) -> torch.device:
    """Every device of this machine in turn."""
    return torch.device(request.param)


def tiny_config(qk_norm: str = "off", mask=None, layers: int = 3, scaling=None, pairing: str = "half", tied: bool = False):
    """Sizes that are all different and share few factors, so that no two axes can be swapped unseen."""
    heads, kv, d_head, d = 6, 3, 10, 42
    widths = {"off": None, "head": (d_head, d_head), "projection": (heads * d_head, kv * d_head)}[qk_norm]
    q_norm, k_norm = [RMSNorm.Config(d=w, eps=1e-6) for w in widths] if widths else (None, None)
    attn = Attention.Config(
        d_model=d, n_heads=heads, n_kv_heads=kv, d_head=d_head, mask=mask or Causal(), q_norm=q_norm, k_norm=k_norm,
        qk_norm_over="projection" if qk_norm == "projection" else "head",
        rope=Rope.Config(d=d_head, base=1e4, pairing=pairing, scaling=scaling),
    )  # fmt: skip
    norm = RMSNorm.Config(d=d, eps=1e-5)
    block = PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=SwiGLU.Config(d_model=d, d_mlp=66))
    return Decoder.Config(d_vocab=131, d_model=d, blocks=(block,) * layers, ln_final=norm, tied=tied, context=64)


def distinct(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Every parameter, gains included, a different random value: a swapped or ignored one cannot hide."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)) * 7919)
    noise = torch.randn(shape, generator=generator)
    return 1 + 0.3 * noise if len(shape) == 1 else noise / shape[-1] ** 0.5


def make_lm(config=None, device="cpu", dtype=torch.float32, **kwargs) -> LM:
    store = WeightStore(distinct, torch.device(device), dtype)
    return LM(config or tiny_config(), store, name="tiny", source="test", tokenizer=None, **kwargs)


@pytest.fixture
def lm() -> LM:
    return make_lm()


@pytest.fixture
def tokens() -> list[int]:
    """23 ids, some repeated."""
    return torch.randint(131, (23,), generator=torch.Generator().manual_seed(5)).tolist()


def differences(ours: torch.Tensor, theirs: torch.Tensor) -> str:
    """Cosine, relative norm and largest difference together: a cosine alone hides a wrong scale."""
    a, b = ours.double().flatten().cpu(), theirs.double().flatten().cpu()
    cosine = torch.nn.functional.cosine_similarity(a, b, dim=0)
    return f"cosine {cosine:.9f}, |a|/|b| {a.norm() / b.norm():.9f}, max |a-b| {(a - b).abs().max():.3e} of {b.abs().max():.3e}"


def assert_same(ours: torch.Tensor, theirs: torch.Tensor, bound: float, what: str = "") -> None:
    """max |ours - theirs| <= bound * max |theirs|, and the three measures in the message."""
    assert ours.shape == theirs.shape, f"{what}: {list(ours.shape)} against {list(theirs.shape)}"
    worst = (ours.double().cpu() - theirs.double().cpu()).abs().max()
    assert worst <= bound * theirs.double().abs().max().cpu(), f"{what}: {differences(ours, theirs)}"


@pytest.fixture(scope="session")
def real_model():
    """name -> its folder of real weights; where none were written the test says that it was skipped, and CI fails."""

    def find(name: str) -> Path:
        root = os.environ.get("BLOCKSCOPE_REAL_MODELS")
        if not root:
            pytest.skip("set BLOCKSCOPE_REAL_MODELS to what tests/real_models.py wrote")
        path = Path(root) / name
        assert (path / "source.gguf").is_file(), f"{path} is incomplete: python tests/real_models.py {root} {name}"
        return path

    return find


@pytest.fixture(scope="module")
def one_thread():
    """Training is deterministic for a number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def library():
    """The standard library as a corpus, read once."""
    from model.growth.corpus import standard_library

    return standard_library()


@pytest.fixture(scope="session")
def text():
    """A made-up corpus of 9,000 bytes."""
    from model.growth.corpus import Corpus

    words = torch.randint(97, 105, (9000,), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    words[::5] = 32
    return Corpus(words[:8000], words[8000:], "made up", (1, 1), "made up")


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Records of growth as they ship, made up."""
    from growth_records import folder_of_records

    return folder_of_records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def growth(folder):
    """The Growth page without a browser, over two small models, made-up records and a short text."""
    from growth_page import short_text

    from model import load
    from viz.pages.growth import Growth
    from viz.shelf import Shelf
    from viz.store import Store

    with short_text():
        yield Growth(Shelf({"tiny": "tiny-llama", "gemma": "tiny-gemma2"}, load), Store(), folder)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Where BLOCKSCOPE_NO_SKIP is set, a skipped `real` or `browser` test is a failure that keeps its reason."""
    report = (yield).get_result()
    needed = item.get_closest_marker("real") or item.get_closest_marker("browser")
    if report.skipped and needed and os.environ.get("BLOCKSCOPE_NO_SKIP"):
        report.outcome = "failed"
        report.longrepr = f"must not be skipped here: {report.longrepr[2]}"


@pytest.fixture(scope="module")
def chrome():
    """A headless Chromium for one file of tests; without one they say that they were skipped, and CI fails."""
    path = b.chromium()
    if path is None:
        pytest.skip("no Chromium: name one in BLOCKSCOPE_CHROMIUM, or install Debian's chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=b.FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared(chrome):
    """One context for most tests of a file: its cache holds plotly.js."""
    context = chrome.new_context(viewport={"width": 1280, "height": 720})
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.fixture
def page(shared, address):
    """A fresh tab; a script error, a dialog or a request that leaves the app at `address` (a fixture of the file) fails the test."""
    tab, root = shared.new_page(), urljoin(address, "/")
    errors, outside = [], []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("dialog", lambda dialog: (errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda request: request.url.startswith((root, "data:", "blob:")) or outside.append(request.url))
    yield tab
    tab.close()
    assert errors == [] and outside == []
