"""Attacks over HTTP."""

import gzip
import json
import time
from contextlib import suppress

from .attackers import EACH, MEGABYTE, NO_KEY, ONE, Attacker, attack

BODY = 48 * MEGABYTE  # Bytes of a body that the proxy must receive completely.
NUMBER = b'{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1],"data":[0]}]}'
NUMBERS = b"[0,1],[0,1]," * (BODY // 12)
LEAVE_AT_ONCE, LEFT_AFTER = 50, 0.02  # Callers, seconds.
COLD, WARM = "cold", "warm"  # On-demand models: one whose load does not end, and one in memory.


@attack("requests to a server in use by others whose caller disconnects", ONE, cancels=1000)
def left_at_once(attacker: Attacker) -> None:
    """The model is slow, so a call has begun when its caller disconnects. Some connect and disconnect together."""
    leave_at_once(attacker, attacker.head("/v2/models/slow/infer", f"Content-Length: {len(NUMBER)}") + NUMBER)


@attack("requests for a leased model whose caller disconnects", ONE, cancels=500)
def lease_left_at_once(attacker: Attacker) -> None:
    leave_at_once(attacker, attacker.head(f"/v2/models/{WARM}/infer", "Content-Length: 2") + b"{}")


@attack("bodies for a model that is not loaded", EACH, bytes=1_800_000)
def cold(attacker: Attacker) -> None:
    sent = attacker.head(f"/v2/models/{COLD}/infer", "Content-Length: 200000") + bytes(200_000)
    attacker.again(lambda: attacker.http(sent), 60)


def leave_at_once(attacker: Attacker, sent: bytes) -> None:
    while attacker.goes_on:
        with suppress(OSError):
            for _ in range(LEAVE_AT_ONCE):
                attacker.http(sent)
        time.sleep(LEFT_AFTER)
        attacker.did["cancels"] += len(attacker.sockets)
        attacker.close()


@attack("heads of tiny headers that do not end", NO_KEY, bytes=600_000)
def tiny_headers(attacker: Attacker) -> None:
    attacker.again(lambda: attacker.http(attacker.head("/predict")[:-2] + b"a:b\r\n" * 12_000), 100)


@attack("thousands of requests at once", NO_KEY, ONE, times=0, bytes=600_000)
def pipelined(attacker: Attacker) -> None:
    link = attacker.http(reads=False)
    while attacker.goes_on:
        attacker.send(link, attacker.head("/v2", method="GET") * 2000)


@attack("requests that are refused immediately", NO_KEY, times=0, bytes=600_000)
def refused(attacker: Attacker) -> None:
    many = attacker.head("/v2/models/echo/infer", method="GET") * 2000

    link = attacker.http()
    while attacker.goes_on:
        attacker.send(link, many)
        attacker.drain(link)


@attack("long heads of connections that stay", NO_KEY, bytes=350_000)
def long_heads(attacker: Attacker) -> None:
    head = attacker.head("/v2/health/live", *[f"X-{number}: {'x' * 240}" for number in range(240)], method="GET")
    attacker.again(lambda: attacker.http(head), 60)


@attack("large bodies for /predict", NO_KEY, ONE, times=0, bytes=4_500_000)
def predicts(attacker: Attacker) -> None:
    link = attacker.http(attacker.head("/predict", f"Content-Length: {BODY}"))
    for _ in range(BODY // MEGABYTE - 1):
        if attacker.goes_on:
            attacker.send(link, bytes(MEGABYTE))
    attacker.wait()


def _exchange(attacker: Attacker, *sent: bytes) -> None:
    link = attacker.http()
    while attacker.goes_on:
        for each in sent:
            attacker.send(link, each)
        attacker.did["answers"] += link.recv(4096).startswith(b"HTTP/1.1")
        while attacker.goes_on and link.recv(MEGABYTE):
            pass


def _exchange_body(attacker: Attacker, path: str, begin: bytes, end: bytes) -> None:
    head = attacker.head(path, f"Content-Length: {len(begin) + len(NUMBERS) + len(end)}", "Connection: close")
    _exchange(attacker, head + begin, NUMBERS, end)


@attack("large bodies for /predict, whole", ONE, EACH, times=0, answers=1)
def whole_predicts(attacker: Attacker) -> None:
    begin = b'{"inference_server_name":"triton","model_name":"echo","payload":{"inputs":['
    _exchange_body(attacker, "/predict", begin, b"[]]}}")


@attack("large bodies for a model that keeps sequences", ONE, times=0, answers=1)
def sequence_bodies(attacker: Attacker) -> None:
    _exchange_body(attacker, "/v2/models/sequence/infer", b'{"parameters":{"sequence_id":1},"inputs":[', b"[]]}")


@attack("lists of thousands of models", ONE, EACH, times=0, answers=1)
def where_models_are(attacker: Attacker) -> None:
    _exchange(attacker, attacker.head("/models", "Connection: close", method="GET"))


@attack("unread lists of thousands of models", ONE, connections=4)
def unread_models(attacker: Attacker) -> None:
    head = attacker.head("/models", method="GET")
    attacker.again(lambda: attacker.http(head, reads=False), 40)


@attack("unread streams", ONE, tls=None, connections=6)
def streams(attacker: Attacker) -> None:
    head = attacker.head("/v2/models/stream/generate_stream", "Content-Length: 2")
    attacker.again(lambda: attacker.http(head + b"{}", reads=False), 60)


@attack("connections that become idle", ONE, EACH, tls=None, times=150, answers=10)
def idle_known(attacker: Attacker) -> None:
    head = attacker.head("/v2/models/echo/infer", "Content-Length: 2")

    attacker.did["answers"] += attacker.http(head + b"{}").recv(4096).startswith(b"HTTP/1.1 200")


PACKED = gzip.compress(json.dumps({"parameters": {"sequence_id": 1}}).encode() + b" " * 60_000_000)


@attack("gzip bodies for a model that keeps sequences", NO_KEY, ONE, times=0, bytes=11_000)
def packed_bodies(attacker: Attacker) -> None:
    head = attacker.head("/v2/models/sequence/infer", "Content-Encoding: gzip", f"Content-Length: {len(PACKED)}")

    link = attacker.http(head + PACKED)
    while attacker.goes_on and link.recv(65_536):
        pass


@attack("bodies for a model that hangs", ONE, EACH, tls=None, bytes=1_800_000)
def hanging_bodies(attacker: Attacker) -> None:
    head = attacker.head("/v2/models/hang/infer", "Content-Length: 400000", *[f"X-{n}: {'x' * 900}" for n in range(60)])
    attacker.again(lambda: attacker.http(head + bytes(250_000)), 60)


@attack("unread HTTP responses", ONE, EACH, tls=None, connections=6)
def http_answers(attacker: Attacker) -> None:
    head = attacker.head("/v2/models/large/infer", "Content-Length: 2")
    attacker.again(lambda: attacker.http(head + b"{}", reads=False), 60)


@attack("connections without a TLS ClientHello", NO_KEY, tls=True, connections=30)
def silent(attacker: Attacker) -> None:
    attacker.tls = None
    attacker.again(lambda: (attacker.http(), attacker.connect(attacker.grpc_port)), 150)


@attack("idle connections", NO_KEY, tls=None, connections=30)
def idle(attacker: Attacker) -> None:
    attacker.again(lambda: (attacker.http(), attacker.grpc()), 150)
