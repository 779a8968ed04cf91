"""A hub id typed on the page: its download tells its progress and can be cancelled; without a network one sentence."""

import re
import socket
import subprocess
import sys
import threading
import time
from http.server import ThreadingHTTPServer

import browser as b
import pytest
from folders import llama_state, write
from hub_server import Hub
from playwright.sync_api import expect
from test_hub import ROOT, settings

from model.tokens import byte_tokenizer_json

pytestmark = pytest.mark.browser


class Slow(Hub):
    """Sends weights in small pieces, as long as `hold` is set."""

    hold = threading.Event()

    def send(self, code, data, headers, body):
        if not (body and ".safetensors" in self.path):
            return super().send(code, data, headers, body)
        super().send(code, data, headers, False)
        for i in range(0, len(data), 1 + len(data) // 100):
            self.wfile.write(data[i : i + 1 + len(data) // 100])
            self.wfile.flush()
            time.sleep(0.2 if self.hold.is_set() else 0)


@pytest.fixture
def slow_hub(tmp_path):
    folder = tmp_path / "hub" / "org" / "name"
    folder.mkdir(parents=True)
    write(folder, dict(llama_state()))
    (folder / "tokenizer.json").write_text(byte_tokenizer_json())
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Slow,), {"root": tmp_path / "hub"}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def served(tmp_path, slow_hub):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(ROOT / "app.py"), "--allow-hub", "--device", "cpu", "--port", str(port)]
    env = settings(tmp_path / "cache", slow_hub.server_port) | {"HF_HUB_DOWNLOAD_TIMEOUT": "5", "HF_HUB_ETAG_TIMEOUT": "5"}
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log)
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}", tmp_path
    child.terminate()
    child.wait(20)
    assert "Traceback" not in (tmp_path / "log").read_text()


def choose(page, name: str) -> None:
    page.select_option("#model", label="another…")
    page.fill("#typed", name)
    page.keyboard.press("Enter")


def test_a_download_on_the_page(chrome, served, slow_hub):
    address, _ = served
    page = chrome.new_page(viewport={"width": 1280, "height": 720})
    b.visit(page, address)
    Slow.hold.set()
    choose(page, "org/name")
    expect(page.locator("#progress span")).to_have_text(
        re.compile(r"downloading model\.safetensors of org/name, in [kM]B · \d+ of \d+"), timeout=30_000
    )
    page.click("#cancel")
    expect(page.locator("#notice span")).to_contain_text("Stopped. The last view is kept.")
    expect(page.locator("#model")).to_have_value("code-qknorm-off")
    Slow.hold.clear()
    b.after(page, lambda: choose(page, "org/name"))
    expect(page.locator("#model")).to_have_value("org/name")
    slow_hub.shutdown()
    slow_hub.server_close()
    choose(page, "org/other")
    expect(page.locator("#notice span")).to_contain_text("org/other", timeout=60_000)
    said = page.inner_text("#notice span")
    assert "Everything on this page is still of org/name." in said and "Traceback" not in said
    page.close()
