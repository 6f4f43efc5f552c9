"""Engines with OpenAI's API that fail or send wrong data. The model's name selects the behaviour."""

import asyncio
import gzip
import json

from ..http.upstream import Act, Received, Upstream, answer, answering, head, only, raw

_KILOBYTE, _MEGABYTE = 1 << 10, 1 << 20
_WORD = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
_USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":1e308,"total_tokens":"1","x":{"y":{}}}}\n\n'
)
_LONG_LIST = b'{"data":[%b{"id":"x"}]}' % (b'{"id":"x"},' * 5_000_000)
_ALWAYS = 100_000
words_begun = words_under_way = 0  # Streams of the engine without faults.


def _stream(*parts: bytes, times: int = 1, pause: float = 0.0, end: str = "") -> Act:
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    begin = head(b"content-type: text/event-stream", b"transfer-encoding: chunked")
    return raw(begin, *chunks * times, pause=pause, end=end)


def _packed(status: bytes, body: bytes) -> Act:
    packed = gzip.compress(body)
    return raw(head(b"content-encoding: gzip", b"content-length: %d" % len(packed), status=status), packed)


LYING: dict[str, Act] = {  # Endless responses.
    "sends-a-flood": _stream(_WORD * 1000, times=_ALWAYS),
    "ends-no-line": _stream(b"data: " + b"x" * 16 * _MEGABYTE, b"x" * 16 * _MEGABYTE, times=_ALWAYS),
    "ends-no-head": raw(b"HTTP/1.1 200 OK\r\nx: ", *[b"x" * _MEGABYTE] * _ALWAYS),
    "ends-no-trailers": raw(head(b"transfer-encoding: chunked"), b"0\r\n", *[b"x: y\r\n" * _KILOBYTE] * _ALWAYS),
    "drips": _stream(b"x", times=_ALWAYS, pause=0.0005),
    "lists-too-many": raw(head(b"content-length: 2", status=b"404 Not Found"), b"{}"),
    "tells-errors": _stream(
        b'data: {"error":1}\n' * 60_000, b"event: error\n" + b"data: x\n" * _MEGABYTE + b"\n" * _MEGABYTE, times=_ALWAYS
    ),
    "tells-usage-in-usage": _stream(b'data: {"choices":[],' + b'"usage":{' * 28_000 + b"\nx\n\n", times=_ALWAYS),
}
BROKEN: dict[str, Act] = {
    "tells-absurd-usage": _stream(_USAGE * 1000),
    "dies": _stream(_WORD, end="cut"),
    "leaves": _stream(_WORD, end="close"),
    "answers-no-json": answering(b'{"usage":{' * _MEGABYTE),
    "answers-with-gzip": _packed(b"200 OK", bytes(16 * _MEGABYTE)),
    "fails-with-gzip": _packed(b"500 Internal Server Error", bytes(16 * _MEGABYTE)),
}
_ENGINES = LYING | BROKEN
_speaking = _stream(_WORD, times=_ALWAYS, pause=0.01)


async def _words(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
    global words_begun, words_under_way
    words_begun += 1
    words_under_way += 1
    try:
        await _speaking(made, writer, received)
    finally:
        words_under_way -= 1


async def _called(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
    made.requests.clear()  # its bodies are long
    fields = json.loads(received.body)
    if fields.get("stream"):
        await _ENGINES.get(fields["model"], _words)(made, writer, received)
    else:
        await answer(writer, b'{"usage":{"prompt_tokens":1,"completion_tokens":1}}')


def engine(otherwise: Act) -> Act:
    """Answer calls as the engine of the body's model does, and all other requests like `otherwise`."""
    words = answering(lambda _: json.dumps({"begun": words_begun, "under_way": words_under_way}).encode())
    listed = only("GET /v1/models", answering(_LONG_LIST), only("GET /words", words, otherwise))
    return only("POST /v1/", _called, listed)
