"""A relay before a real server, which does to its answers what networks and people do."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOST = "127.0.0.1"
HOP = ("connection", "transfer-encoding", "keep-alive", "date", "server")


@dataclass
class Answer:
    """What a server answered; a fault may change it. `cut` ends the connection after so many bytes of the body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    cut: int | None = None


Fault = Callable[[str, str, Answer], None]  # Given a method, a path with its query, and the answer to it.


@dataclass
class Relay:
    port: int
    behind: str
    fault: Fault | None = None
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    """Methods, paths, and the bytes sent, in the order in which they came."""
    hold: Callable[[str, str], bool] | None = None
    """Says which requests are not passed on, nor answered, while the relay runs."""
    held: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def uri(self) -> str:
        return f"http://{HOST}:{self.port}"

    def sent(self, method: str, part: str) -> list[str]:
        """Return the paths that were asked for by a method and have a part."""
        return [path for verb, path, _ in self.asked if verb == method and part in path]


@contextmanager
def relay(behind: str) -> Iterator[Relay]:
    """Run a relay before the server at an address; it ends with the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            running.asked.append((self.command, self.path, len(body)))
            if running.hold is not None and running.hold(self.command, self.path):
                running.held.set()
                running.over.wait()
                self.close_connection = True
                return
            there = urlsplit(running.behind)
            asking = http.client.HTTPConnection(there.hostname or HOST, there.port, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in (*HOP, "host")}
            asking.request(self.command, self.path, body, headers)
            got = asking.getresponse()
            answer = Answer(got.status, got.getheaders(), got.read())
            asking.close()
            if running.fault is not None:
                running.fault(self.command, self.path, answer)
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                if name.lower() not in (*HOP, "content-length"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(answer.body[: answer.cut])
            self.close_connection = answer.cut is not None

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _pass_on

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        running = Relay(server.server_address[1], behind)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield running
        finally:
            running.over.set()
            server.shutdown()
            thread.join()
