"""An application on a thread of its own, so that work on the process' own loop cannot delay its answers."""

import asyncio
import socket
import threading

import uvicorn
from fastapi import FastAPI


class AdminThread:
    """Serves an application from a thread with an event loop of its own."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", loop="asyncio", ws="none")
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="admin", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._server.should_exit = True
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.run(self._server.serve([self._listener]))
