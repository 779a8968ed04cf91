"""The server, which ends when it is told to: runs are stopped at once, and pages that stay open are cut off after a second."""

import logging
from contextlib import suppress

import uvicorn

from model.ending import stop_all


class Server(uvicorn.Server):
    def handle_exit(self, sig, frame) -> None:
        """Ctrl-C, or whoever ends the program."""
        stop_all()  # else it waits until they are through, for minutes in a model that streams
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it prints a traceback for each page that is open
        super().handle_exit(sig, frame)


def serve(app, host: str, port: int) -> None:
    config = uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=1)
    with suppress(KeyboardInterrupt):  # raised again once all is closed
        Server(config).run()
