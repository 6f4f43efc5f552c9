import gzip
import json
from functools import partial
from itertools import cycle

from .attackers import EACH, MEGABYTE, NO_KEY, ONE, Attacker, attack
from .engines import BROKEN, LYING
from .over_http import leave_at_once

PATH = "/v1/chat/completions"
WORDS = "words"  # A model without faults.
LONG = b'{"messages":"%b","model":"words"}' % (b"\\u0041" * (32 * MEGABYTE // 6 - 10))
PACKED = gzip.compress(b'{"model":"words","messages":"%b"}' % bytes(60_000_000))
ODD = (
    b'{"messages":' + b"[" * 500_000,
    b'{"messages":' * 80_000,
    b'{"model":"words","model":"words"}',
    b'{"mod\\u0065l":"words"}',
    b'{"x":[%b0],"model":"words"}' % (b'{"model":"words"},' * 50_000),
    b'{"x":[%b0],"model":"words"}' % (b'"model" ,' * 110_000),
    b'{"x":[%b0],"model":"words"}' % (b"0," * 500_000),
    b'{"x":[%b0],"model":"words"}' % (b"1e999," * 150_000),
    b'{"x":%b,"model":"words"}' % (b"9" * 1_000_000),
    b'{%b"model":"words"}' % (b'"\\u0061":0,' * 90_000),
    b'{"model"%b:"words"}' % (b" " * 1_000_000),
    b'{"stream":true,"stream_options":{"x":"%b"},"model":"dies"}' % (b"x" * 1_000_000),
    json.dumps({"model": WORDS}).encode("utf-16"),
)


def call(attacker: Attacker, body: bytes, *more: str) -> bytes:
    return attacker.head(PATH, f"Content-Length: {len(body)}", *more) + body


def stream(attacker: Attacker, model: str, *more: str) -> bytes:
    return call(attacker, json.dumps({"model": model, "stream": True}).encode(), *more)


def taking(attacker: Attacker, *sent: bytes) -> None:
    turns = cycle(sent)

    def once() -> None:
        link = attacker.http(next(turns))
        attacker.did["answers"] += link.recv(4096).startswith(b"HTTP/1.1")
        while attacker.goes_on and link.recv(MEGABYTE):
            pass

    attacker.over_and_over(once)


@attack("OpenAI's bodies of 32 MiB whose model comes last", ONE, EACH, answers=1)
def long_bodies(attacker: Attacker) -> None:
    taking(attacker, call(attacker, LONG, "Connection: close"))


@attack("OpenAI's bodies that are deep, or name their model twice, or oddly", NO_KEY, ONE, answers=1)
def odd_bodies(attacker: Attacker) -> None:
    taking(attacker, *[call(attacker, body, "Connection: close") for body in ODD])


@attack("OpenAI's bodies with gzip", ONE, answers=1)
def packed_bodies(attacker: Attacker) -> None:
    taking(attacker, call(attacker, PACKED, "Content-Encoding: gzip", "Connection: close"))


@attack("OpenAI's bodies that stop half way", NO_KEY, ONE, bytes=1_800_000)
def halves(attacker: Attacker) -> None:
    sent = attacker.head(PATH, "Content-Length: 32000000") + bytes(250_000)
    attacker.again(lambda: attacker.http(sent), 60)


@attack("OpenAI's bodies in chunks of a byte", NO_KEY, ONE, bytes=190_000)
def tiny_chunks(attacker: Attacker) -> None:
    sent = attacker.head(PATH, "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 40_000
    attacker.again(lambda: attacker.http(sent), 8)


@attack("unread OpenAI streams", ONE, tls=None, connections=6)
def unread(attacker: Attacker) -> None:
    attacker.again(lambda: attacker.http(stream(attacker, "sends-a-flood"), reads=False), 60)


@attack("OpenAI streams whose caller disconnects", ONE, cancels=500)
def left_at_once(attacker: Attacker) -> None:
    leave_at_once(attacker, stream(attacker, WORDS))


def _lied_to(model: str, attacker: Attacker) -> None:
    taking(attacker, stream(attacker, model, "Connection: close"))


for lie in LYING:
    attack(f"an engine that {lie.replace('-', ' ')}", ONE, answers=1)(partial(_lied_to, lie))


@attack("engines that break in many ways", ONE, answers=5)
def broken(attacker: Attacker) -> None:
    taking(attacker, *[stream(attacker, model, "Connection: close") for model in BROKEN])
