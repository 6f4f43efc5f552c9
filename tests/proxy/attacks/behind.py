"""A replica in a separate process. The model's name selects its behaviour: `hang`, `slow`, `large`, or none of them. It
is also an engine with OpenAI's API, and a Triton server with an eviction policy."""

import asyncio

import uvloop
from tidegate_proxy.grpc.metadata import OK_HEADERS, status_trailers
from tidegate_proxy.http2.connection import Http2Connection
from tidegate_proxy.http2.frames import CANCEL, PREFACE, RST_STREAM, frame
from tidegate_proxy.http2.sending import Stream
from tritonclient.grpc import service_pb2 as pb

from lab.local_plane.process import HOST

from ..http.upstream import BACKLOG, Upstream, answering, hang, only, raw, upstream
from ..residency.standin import sites
from .engines import engine
from .over_http import WARM

LARGE = bytes(4 << 20)
SLOW_SECONDS = 0.1
MOST_OF_A_NAME = 64  # Bytes at the start of a message that contain its model's name.
MODELS = tuple(f"model-{number:05}" for number in range(10_000))  # Models without calls.
_EVENTS = raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", *[b"data: %b\n\n" % LARGE[:60_000]] * 200)
begun = 0  # Calls received over gRPC.
answers = only("/sequence/config", answering(b'{"sequence_batching":{}}'))
answers = only("/slow/", answering(seconds=SLOW_SECONDS), only("/stream/", _EVENTS, answers))
answers = only("/large/", answering(LARGE), only("/hang/", hang, answers))


class Call(Stream):
    """Behaves according to the model's name. Like Triton it answers a reset with a reset, or with six in a message."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begin = b""
        self._left: int | None = None  # Bytes of its message that are still to come.
        self._answering: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes, _end: bool) -> None:
        global begun
        self.connection.credit(self, len(data))
        if self._left is None:
            self._begin += data
            if len(self._begin) < 5:
                return
            self._left, data = int.from_bytes(self._begin[1:5]), self._begin[5:]
        if len(self._begin) < MOST_OF_A_NAME:
            self._begin += data
        self._left -= len(data)
        if not self._left and self._answering is None:
            begun += 1
            body = self._begin[5:]
            model = body[2 : 2 + body[1]].decode()  # the first field of each message in these tests
            seconds = {"hang": 3600.0, "slow": SLOW_SECONDS}.get(model, 0.0)
            self._answering = self._loop.call_later(seconds, self._answer, model)

    def reset_received(self, code: int | None, _processed: bool) -> None:
        if self._answering is not None:
            self._answering.cancel()
        if code is not None:
            times = 6 if self._left else 1
            self.connection.write(frame(RST_STREAM, 0, self.number, CANCEL.to_bytes(4)) * times)

    def _answer(self, model: str) -> None:
        answer = pb.ModelInferResponse(model_name=model, raw_output_contents=[LARGE] if model == "large" else [])
        message = answer.SerializeToString()
        self.connection.send_headers(self, OK_HEADERS)
        self.connection.send_data(self, b"\0" + len(message).to_bytes(4) + message)
        self.connection.send_headers(self, status_trailers(0), True)


class Replica(Http2Connection[None]):
    silent_seconds = 60
    stream_window = 1 << 20

    def __init__(self) -> None:
        super().__init__(lambda _: None, {}, b"")
        self._skips = len(PREFACE)

    def data_received(self, data: bytes) -> None:
        skipped = data[: self._skips]
        self._skips -= len(skipped)
        super().data_received(data[len(skipped) :])

    def stream_opened(self, number: int, _head: None, _end: bool) -> None:
        self.add(Call(self.loop), number)

    def _count_control_frame(self) -> None:
        """Count nothing: callers can cancel as many calls as they like."""


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Replica, HOST, 0, backlog=BACKLOG)
    port = server.sockets[0].getsockname()[1]
    made: Upstream
    count = answering(lambda _: b"%d" % (begun + made.begun - 1))
    async with upstream(only("/begun", count, engine(answers))) as made, sites(load_seconds=3600) as [site]:
        site.resident.add(WARM)
        site.triton.act = answering(seconds=SLOW_SECONDS)
        ports = {"http": made.port, "grpc": port, "pool": site.triton.port, "lease": site.policy.port}
        print("ready", *(f"{name}={number}" for name, number in ports.items()), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
