import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial

import hpack
from tidegate_proxy.http2.frames import HEADERS, PREFACE, SETTINGS, frame

from lab.local_plane.process import HOST

MEGABYTE = 1 << 20
STREAMS = 256
INFER = "/inference.GRPCInferenceService/ModelInfer"
WIDE = struct.pack(">HL", 4, (1 << 31) - 1)
"""A setting with the largest window, so that HTTP/2's flow control allows everything."""


@dataclass
class Attacker:
    """An attacker with its connections. With a `key` the proxy can authenticate it."""

    http_port: int
    grpc_port: int
    key: str
    end: float
    tls: ssl.SSLContext | None = None
    sockets: list[socket.socket] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)  # Connections, kilobytes, and other counts of an attack.

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    def connect(self, port: int, begin: bytes = b"", reads: bool = True) -> socket.socket:
        made = socket.socket()
        if not reads:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.settimeout(1)
        made.connect((HOST, port))
        if self.tls is not None:
            made = self.tls.wrap_socket(made)
        self.sockets.append(made)
        self.did["connections"] += 1
        self.send(made, begin)
        return made

    def send(self, link: socket.socket, data: bytes) -> None:
        for at in range(0, len(data), MEGABYTE):
            link.sendall(memoryview(data)[at : at + MEGABYTE])
            self.did["bytes"] += min(MEGABYTE, len(data) - at)

    def drain(self, link: socket.socket) -> None:
        with suppress(BlockingIOError, ssl.SSLWantReadError):
            link.setblocking(False)
            while link.recv(MEGABYTE):
                pass
        link.settimeout(1)

    def http(self, begin: bytes = b"", reads: bool = True) -> socket.socket:
        return self.connect(self.http_port, begin, reads)

    def grpc(self, begin: bytes = b"", reads: bool = True, settings: bytes = b"") -> socket.socket:
        return self.connect(self.grpc_port, PREFACE + frame(SETTINGS, 0, 0, settings) + begin, reads)

    def wait(self) -> None:
        """Keep everything open until the attack is over, and read no responses."""
        while self.goes_on:
            time.sleep(0.05)

    def over_and_over(self, attack: Callable[[], object]) -> None:
        while self.goes_on:
            with suppress(OSError):
                attack()
            time.sleep(0.01)

    def again(self, attack: Callable[[], object], times: int) -> None:
        """Attack over several simultaneous connections, and keep them open."""
        for _ in range(times):
            if self.goes_on:
                with suppress(OSError):
                    attack()
        self.wait()

    def close(self) -> None:
        for each in self.sockets:
            each.close()
        self.sockets.clear()

    # --- data to send
    def fields(self, path: str = INFER, *more: tuple[str, str]) -> list[tuple[str, str]]:
        named = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
        key = [("x-api-key", self.key)] if self.key else []
        return [*named, ("content-type", "application/grpc"), *key, *more]

    def calls(self, *more: tuple[str, str], path: str = INFER, end: bool = False, number: int = STREAMS) -> list[bytes]:
        """Return frames that open all streams of a connection. The first one fills the table for the others."""
        return _opening(tuple(self.fields(path)), more, 5 if end else 4, number)

    def head(self, path: str, *more: str, method: str = "POST") -> bytes:
        key = [f"X-API-Key: {self.key}"] if self.key else []
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: proxy", *key, *more, "", ""]).encode()


@lru_cache
def _opening(
    fields: tuple[tuple[str, str], ...], more: tuple[tuple[str, str], ...], flags: int, number: int
) -> list[bytes]:
    encoder, sent = hpack.Encoder(), list[tuple[str, str] | hpack.HeaderTuple](fields)
    if more:  # these stay in the table because the others are never indexed
        sent = [hpack.NeverIndexedHeaderTuple(*each) for each in fields]
    return [frame(HEADERS, flags, 2 * n + 1, bytes(encoder.encode([*sent, *more]))) for n in range(number)]


@dataclass(frozen=True)
class Attack:
    """An attack, its callers' keys, and the minimum that counts as one: a tenth of what one attacker did in 5 s."""

    do: Callable[[Attacker], None]
    whose: str
    over_tls: bool
    least: Mapping[str, int]


ATTACKS: dict[str, Attack] = {}  # By name.


NO_KEY, ONE, EACH = "no key", "with a key", "each with its own key"


def attack(
    name: str, *whose: str, tls: bool | None = False, times: int = 1, **least: int
) -> Callable[[Callable[[Attacker], None]], Attack]:
    """Register an attack for callers with these keys. `tls`: only with or without TLS, None is both. `least` is its
    minimum.

    `times` is the number of connections, which stay open. 0: one connection after the other.
    """

    def register(step: Callable[[Attacker], None]) -> Attack:
        def do(attacker: Attacker) -> None:
            if times == 1:
                step(attacker)
            elif times:
                attacker.again(partial(step, attacker), times)
            else:
                attacker.over_and_over(partial(step, attacker))

        for over_tls in (False, True) if tls is None else (tls,):
            for each in whose:
                made = Attack(do, each, over_tls, {"connections": 1} | least)
                ATTACKS[f"{name}{', over TLS' if over_tls else ''}, {each}"] = made
        return made

    return register
