"""A small stand-in for the Hugging Face hub on this machine: lists the files of folders, serves them, remembers what was asked.

python tests/hub_server.py ROOT      repositories are ROOT/org/name; prints its port, then a line for each file sent
"""

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SHA = "0123456789abcdef0123456789abcdef01234567"


def etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


class Hub(BaseHTTPRequestHandler):
    root: Path

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"] and (self.root / parts[2] / parts[3]).is_dir():
            folder = self.root / parts[2] / parts[3]
            if parts[4:5] == ["revision"] and parts[5] not in (SHA, "main"):
                return self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
            if parts[4:5] == ["tree"]:
                tree = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": etag(f)} for f in sorted(folder.iterdir())
                ]
                return self.send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body)
            files = [{"rfilename": f.name, "size": f.stat().st_size} for f in sorted(folder.iterdir())]
            found = {"id": "/".join(parts[2:4]), "sha": SHA, "siblings": files, "private": False, "tags": [], "downloads": 0}
            return self.send(200, json.dumps(found).encode(), {"Content-Type": "application/json"}, body)
        if "resolve" in parts and (file := self.root / parts[0] / parts[1] / "/".join(parts[4:])).is_file():
            data = file.read_bytes()
            if body:
                print("sent", file.name, flush=True)
            about = {"X-Repo-Commit": SHA, "ETag": f'"{etag(file)}"', "Accept-Ranges": "bytes"}
            return self.send(200, data, about, body)
        return self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)

    def send(self, code: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *parts):
        pass


def serve(root: Path) -> ThreadingHTTPServer:
    return ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Hub,), {"root": root}))


if __name__ == "__main__":
    server = serve(Path(sys.argv[1]))
    print(server.server_port, flush=True)
    server.serve_forever()
