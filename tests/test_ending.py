"""Whoever ends the program while a layer is being read waits for a second or two, and sees no traceback."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import tiny_config
from gradio_client import Client
from test_streaming import bounded

from model.ahead import Ahead

ROOT = Path(__file__).parents[1]
MODEL = str(ROOT / "assets" / "checkpoints" / "code-qknorm-off")
SLOW = """
import sys, time
from model.checkpoints.tensors import Tensors
read = Tensors.read
def slowly(self, name):
    if name.startswith("blocks."):
        print("reading", flush=True)
        time.sleep(0.3)
    return read(self, name)
Tensors.read = slowly
"""
APP = SLOW + "import app; app.main(['--model', sys.argv[1], '--port', sys.argv[2], '--device', 'cpu', '--memory', '1KB'])"
RUN = SLOW + "from model import load; load(sys.argv[1], device='cpu', memory='1KB').forward([1, 2, 3])"


def started(script: str, *words: str) -> subprocess.Popen:
    command = [sys.executable, "-c", script, MODEL, *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(program: subprocess.Popen, sign: int) -> tuple[float, str]:
    """Seconds from the signal to the end, and what was printed about it."""
    began = time.monotonic()
    program.send_signal(sign)
    try:
        _, said = program.communicate(timeout=30)
    finally:
        program.kill()
    return time.monotonic() - began, said


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_the_app_ends_while_a_model_streams_for_a_visitor(sign):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program, address = started(APP, str(port)), f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                time.sleep(0.25)
        job = Client(address, verbose=False).submit(prompt="def f(x):", layer=1, node="gate", api_name="/explore")
        while "reading" not in program.stdout.readline():
            assert program.poll() is None
        time.sleep(0.5)
        assert not job.done()
        seconds, said = ended(program, sign)
    finally:
        program.kill()
    assert seconds < 4 and said == "", (seconds, said[-2000:])


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_script_that_is_interrupted_is_not_aborted():
    program = started(RUN)
    while "reading" not in program.stdout.readline():
        assert program.poll() is None
    seconds, said = ended(program, signal.SIGINT)
    assert seconds < 4 and program.returncode in (-signal.SIGINT, 130), said
    assert said.rstrip().endswith("KeyboardInterrupt") and "terminate called" not in said


def test_a_stage_that_is_no_longer_wanted_is_no_longer_read():
    read, lm = [], bounded(tiny_config(layers=4))
    source = lm.store.source
    lm.store.source = lambda name, shape: read.append(name) or time.sleep(0.05) or source(name, shape)
    with Ahead(lm.stages) as ahead:
        ahead.begin([1])
        left = ahead._reading
        block = ahead.take(2)
        left.thread.join(1)
        assert block is not None and left.gone.is_set() and not left.thread.is_alive()
    assert sum(name.startswith("blocks.1.") for name in read) < 5 < sum(name.startswith("blocks.2.") for name in read)
