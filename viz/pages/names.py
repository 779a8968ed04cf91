"""What a visitor types in place of choosing from a list, on any page: a name that may be shown, or a sentence why not."""

import json

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from model.errors import BlockscopeError
from viz.shelf import Shelf

LARGEST = 4096  # bytes of a request: a name of 200 characters, however it is escaped


def serve_names(app: FastAPI, shelf: Shelf) -> None:
    """GET names: what may be typed; POST {"name": typed}: {"name": entry} or {"sentence": why there is none}."""

    @app.get("/names")
    def may_type() -> dict:
        return {"typed": shelf.library.typed}

    @app.post("/names")
    async def named(request: Request) -> dict:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST:
                return {"sentence": "this is far longer than the name of any model: type another one"}
        try:
            asked = json.loads(body)
            return {"name": await run_in_threadpool(shelf.choose, asked["name"] if isinstance(asked, dict) else None)}
        except BlockscopeError as error:
            return {"sentence": str(error)}
        except (ValueError, KeyError, RecursionError):
            return {"sentence": "this was not the name of a model: type one"}
