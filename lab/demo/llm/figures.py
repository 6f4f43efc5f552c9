"""What the proxy costs: streams through it against streams from Dynamo directly, by turns in the same run."""

import json
import re
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from lab.local_plane.process import HOST

STREAMS = 8  # At once.
TOKENS = 128  # Of each.
PAIRS = 15  # Turns of STREAMS, each once directly and once through the proxy.
FIRSTS = 60  # Calls for one token, one after the other, likewise.
_USED = re.compile(rb'"completion_tokens":(\d+)')
_SECONDS = 60.0
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Dynamo holds parts of a stream back until the one before is acknowledged: to callers that are slow with that, as most
are, the first token comes up to 40 ms later directly, and not through the proxy. Those here are quick."""


@dataclass(frozen=True)
class Streamed:
    """One stream, as its caller saw it."""

    first: float  # Seconds until the first token.
    tokens: int


@dataclass(frozen=True)
class Compared:
    """What was measured in pairs, once directly and once through the proxy, one right after the other."""

    direct: float  # The median directly.
    ratio: float  # The median of pairs' ratios, each what was measured through the proxy by what was directly.
    middle: tuple[float, float]  # Between these lie the ratios of half of the pairs.


@dataclass(frozen=True)
class Figures:
    """Of Dynamo directly, and through the proxy by turns with it."""

    rate: Compared  # Tokens a second, of all streams together.
    first: Compared  # Seconds until the first token.


class Line:
    """A connection that is kept, over which one stream comes after the other."""

    def __init__(self, port: int, model: str, key: str = "") -> None:
        self._socket = socket.create_connection((HOST, port), timeout=_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._model = model
        self._head = f"host: x\r\ncontent-type: application/json\r\nauthorization: Bearer {key}\r\n"

    def stream(self, tokens: int) -> Streamed:
        """Have a model stream so many tokens; raises OSError where it does not."""
        asked = {
            "model": self._model, "messages": [{"role": "user", "content": "word1 word2 word3"}],
            "max_tokens": tokens, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        body = json.dumps(asked)
        head = f"POST /v1/chat/completions HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        begun, first, tail = time.perf_counter(), 0.0, b""
        self._socket.sendall((head + body).encode())
        while b"0\r\n\r\n" not in tail[-7:]:
            data = self._socket.recv(1 << 16)
            if _QUICK_ACK is not None:
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
            if not data:
                raise OSError(f"the connection ended: {tail.decode(errors='replace')}")
            tail = (tail + data)[-2048:]
            if not first and b"data:" in tail:
                first = time.perf_counter() - begun
        used = _USED.search(tail)
        if used is None or not first:
            raise OSError(f"no stream: {tail.decode(errors='replace')}")
        return Streamed(first, int(used[1]))

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def measure(direct: Callable[[], Line], proxied: Callable[[], Line]) -> Figures:
    """Measure both by turns; which of them begins changes from turn to turn."""
    sides = [[make() for _ in range(STREAMS)] for make in (direct, proxied)]
    with ThreadPoolExecutor(STREAMS) as threads:
        try:
            for side in sides:
                _rate(threads, side)  # what is made at the first call is made
            rates = _by_turns(PAIRS, [partial(_rate, threads, side) for side in sides])
            firsts = _by_turns(FIRSTS, [partial(_first, side[0]) for side in sides])
        finally:
            for line in (*sides[0], *sides[1]):
                line.close()
    return Figures(_compared(rates), _compared(firsts))


def _rate(threads: ThreadPoolExecutor, lines: Sequence[Line]) -> float:
    begun = time.perf_counter()
    streamed = list(threads.map(partial(Line.stream, tokens=TOKENS), lines))
    return sum(each.tokens for each in streamed) / (time.perf_counter() - begun)


def _first(line: Line) -> float:
    return line.stream(1).first


def _by_turns(number: int, sides: Sequence[Callable[[], float]]) -> list[tuple[float, float]]:
    pairs = []
    for turn in range(number):
        order = (0, 1) if turn % 2 else (1, 0)
        found = {side: sides[side]() for side in order}
        pairs.append((found[0], found[1]))
    return pairs


def _compared(pairs: Sequence[tuple[float, float]]) -> Compared:
    low, ratio, high = statistics.quantiles((through / direct for direct, through in pairs), n=4)
    return Compared(statistics.median(direct for direct, _ in pairs), ratio, (low, high))
