"""A relay in front of a real server, which changes responses like networks and other people do."""

import asyncio
import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.proxy.http.upstream import Received, Upstream, raw, running_upstream

HOP = ("connection", "transfer-encoding", "keep-alive", "date", "server", "content-length")


@dataclass
class Answer:
    """A server's response, which a fault may change. `cut` ends the connection after so many bytes of the body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    cut: int | None = None


Fault = Callable[[str, str, Answer], None]  # takes a method, a path with its query, and the response


@dataclass
class Relay:
    front: Upstream
    behind: str
    fault: Fault | None = None

    @property
    def uri(self) -> str:
        return f"http://{self.front.http}"

    @property
    def requests(self) -> list[Received]:
        return self.front.requests

    def sent(self, method: str, part: str) -> list[str]:
        return [each.path for each in self.requests if each.line.startswith(f"{method} ") and part in each.path]

    async def pass_on(self, front: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        answer = await asyncio.to_thread(self._answer, received)
        kept = [f"{name}: {value}" for name, value in answer.headers if name.lower() not in HOP]
        lines = [f"HTTP/1.1 {answer.status} Answer", f"Content-Length: {len(answer.body)}", *kept, "", ""]
        whole = "\r\n".join(lines).encode("latin-1") + answer.body[: answer.cut]
        await raw(whole, end="" if answer.cut is None else "close")(front, writer, received)

    def _answer(self, received: Received) -> Answer:
        method, path = received.line.split(" ")[0], received.path
        asking = http.client.HTTPConnection(urlsplit(self.behind).netloc, timeout=60)
        headers = {name: value for name, value in received.headers.items() if name not in (*HOP, "host")}
        asking.request(method, path, received.body, headers)
        got = asking.getresponse()
        answer = Answer(got.status, got.getheaders(), got.read())
        asking.close()
        if self.fault is not None:
            self.fault(method, path, answer)
        return answer


@contextmanager
def relay(behind: str) -> Iterator[Relay]:
    with running_upstream() as front:
        running = Relay(front, behind)
        front.act = running.pass_on
        yield running
