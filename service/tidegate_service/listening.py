"""Listening sockets, and a thread for the admin port, so that other work cannot delay its responses."""

import asyncio
import socket
import threading

import uvicorn
from fastapi import FastAPI


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listener. An empty host means every address, with IPv6 if available, and port 0 any free one."""
    if not host and socket.has_dualstack_ipv6():
        made = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    else:
        made = socket.create_server((host, port), backlog=backlog)
    # Connections inherit it. uvloop sets it anyway, but asyncio (on the admin port) does not, which cost 40 ms.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class AdminThread:
    """Serves an application in a thread with a separate event loop."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", loop="asyncio", ws="none")
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="admin", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.run(self._server.serve([self._listener]))
