"""Plain HTTP: Triton's responses pass the proxy byte by byte. Triton's load generator works through the proxy too."""

import gzip
import http.client
import json
import struct
import time
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ..rigs.perf_analyzer import perf_analyzer
from ..rigs.pytest_rigs import Exposed, Front

Request = tuple[str, str, bytes | list[bytes] | None, dict[str, str]]
"""Method, path, body (a list is sent in chunks), headers."""
Answer = tuple[int, dict[str, str], bytes]
OF_THE_PROXY = {"x-request-id", "tidegate-model-version"}  # Headers that it adds.


def ask(where: str, request: Request, more: Mapping[str, str] | None = None) -> Answer:
    asking = http.client.HTTPConnection(where, timeout=30)
    try:
        method, path, body, headers = request
        asking.request(method, path, body, {**headers, **(more or {})}, encode_chunked=isinstance(body, list))
        answer = asking.getresponse()
        names = [(name.lower(), value) for name, value in answer.getheaders()]
        assert len(dict(names)) == len(names)
        return answer.status, dict(names), answer.read()
    finally:
        asking.close()


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


def tensor(name: str, data: list[int], kind: str = "INT32") -> dict[str, Any]:
    return {"name": name, "datatype": kind, "shape": [len(data)], "data": data}


JSON = packed({"id": "x", "inputs": [tensor("INPUT0", list(range(16))), tensor("INPUT1", [1] * 16)]})
BINARY_HEAD = packed(
    {
        "inputs": [
            {"name": f"INPUT{n}", "datatype": "INT32", "shape": [16], "parameters": {"binary_data_size": 64}}
            for n in range(2)
        ],
        "parameters": {"binary_data_output": True},
    }
)
BINARY = BINARY_HEAD + struct.pack("<16i", *range(16)) + struct.pack("<16i", *[1] * 16)
HEAD_LENGTH = "Inference-Header-Content-Length"
INFER = "/v2/models/add_sub/infer"
PLAIN = packed({"INPUT0": list(range(16)), "INPUT1": [1] * 16})
REPEAT = packed({"inputs": [tensor("IN", [1]), tensor("DELAY", [0], "UINT32")]})


def get(path: str, **headers: str) -> Request:
    return "GET", path, None, headers


def post(path: str, body: bytes | list[bytes], headers: dict[str, str] | None = None) -> Request:
    return "POST", path, body, headers or {}


REQUESTS: dict[str, Request] = {
    "live": get("/v2/health/live"),
    "ready": get("/v2/health/ready"),
    "metadata": get("/v2/models/add_sub"),
    "metadata with a query": get("/v2/models/add_sub?a=b"),
    "metadata of a version": get("/v2/models/versions/versions/2"),
    "metadata of no version": get("/v2/models/versions/versions/9"),
    "config": get("/v2/models/accumulate/config"),
    "config of no version": get("/v2/models/versions/versions/9/config"),
    "model ready": get("/v2/models/add_sub/ready"),
    "no such version ready": get("/v2/models/versions/versions/9/ready"),
    "statistics": get("/v2/models/versions/stats"),
    "statistics of a version": get("/v2/models/versions/versions/1/stats"),
    "statistics of no version": get("/v2/models/versions/versions/3/stats"),
    "JSON": post(INFER, JSON),
    "JSON in chunks": post(INFER, [JSON[:10], JSON[10:]]),
    "JSON to a version": post("/v2/models/add_sub/versions/1/infer", JSON),
    "JSON to no version": post("/v2/models/add_sub/versions/7/infer", JSON),
    "binary": post(INFER, BINARY, {HEAD_LENGTH: str(len(BINARY_HEAD))}),
    "binary without the length of its head": post(INFER, BINARY),
    "binary with too long a head": post(INFER, BINARY, {HEAD_LENGTH: "9999"}),
    "binary with a length of its head that is not a number": post(INFER, BINARY, {HEAD_LENGTH: "x"}),
    "gzip": post(INFER, gzip.compress(JSON), {"Content-Encoding": "gzip"}),
    "deflate": post(INFER, zlib.compress(JSON), {"Content-Encoding": "deflate"}),
    "gzip that is not gzip": post(INFER, JSON, {"Content-Encoding": "gzip"}),
    "an encoding that Triton does not know": post(INFER, JSON, {"Content-Encoding": "br"}),
    "gzip back": post(INFER, JSON, {"Accept-Encoding": "gzip"}),
    "deflate back": post(INFER, JSON, {"Accept-Encoding": "deflate"}),
    "either back": post(INFER, JSON, {"Accept-Encoding": "gzip;q=0.5, deflate;q=1"}),
    "an encoding back that Triton does not know": post(INFER, JSON, {"Accept-Encoding": "br"}),
    "no body": post(INFER, b""),
    "no JSON": post(INFER, b"{"),
    "no inputs": post(INFER, b"{}"),
    "too little": post(INFER, packed({"inputs": [tensor("INPUT0", list(range(16)))]})),
    "another shape": post(INFER, packed({"inputs": [tensor("INPUT0", [1]), tensor("INPUT1", [1])]})),
    "what streams": post("/v2/models/repeat/infer", REPEAT),
    "generate": post("/v2/models/add_sub/generate", PLAIN),
    "generate by a version": post("/v2/models/versions/versions/1/generate", packed({"INPUT": [4]})),
    "generate with too little": post("/v2/models/add_sub/generate", packed({"INPUT0": [1]})),
    "generate one of a stream": post("/v2/models/repeat/generate", packed({"IN": [1], "DELAY": [0]})),
    "generate more than one": post("/v2/models/repeat/generate", packed({"IN": [1, 2], "DELAY": [0, 0]})),
    "a stream of one": post("/v2/models/add_sub/generate_stream", PLAIN),
    "a stream": post("/v2/models/repeat/generate_stream", packed({"IN": [1, 2, 3], "DELAY": [0, 9, 9]})),
    "a stream with an error": post("/v2/models/repeat/generate_stream", packed({"IN": [1, -2, 3], "DELAY": [0, 9, 9]})),
    "a stream without JSON": post("/v2/models/repeat/generate_stream", b"{"),
}


def test_server_metadata_is_tritons_with_the_extensions_that_callers_can_use(front: Front) -> None:
    direct, through = (
        json.loads(ask(*side)[2])
        for side in ((front.triton.http, get("/v2")), (front.proxy.http, get("/v2"), front.credential))
    )
    assert {*direct["extensions"]} - {*through["extensions"]} >= {"model_repository", "trace", "logging"}
    assert through == direct | {"extensions": [each for each in direct["extensions"] if each in through["extensions"]]}


def test_status_headers_and_body_are_the_same_and_each_response_has_its_request_id(front: Front) -> None:
    for name, request in REQUESTS.items():
        direct = ask(front.triton.http, request)
        for own in ({}, {"x-request-id": "mine-7"}):
            status, headers, body = ask(front.proxy.http, request, front.credential | own)
            passed = {name: value for name, value in headers.items() if name not in OF_THE_PROXY}
            assert (status, passed, body) == direct, name
            assert headers["x-request-id"] == own.get("x-request-id", headers["x-request-id"]) != "", name


@pytest.mark.parametrize("way", ["front", "exposed"])
def test_events_come_one_by_one(request: pytest.FixtureRequest, way: str) -> None:
    """Including through a real nginx with the rules of the Ingress."""
    place: Front | Exposed = request.getfixturevalue(way)
    address, path = (place.address, place.path) if isinstance(place, Exposed) else (place.proxy.http, "")
    asking = http.client.HTTPConnection(address, timeout=30)
    body = packed({"IN": [1, 2, 3], "DELAY": [0, 300, 300]})
    asking.request("POST", f"{path}/v2/models/repeat/generate_stream", body, {"x-api-key": place.key})
    answer = asking.getresponse()
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    came = []
    while line := answer.readline():
        if line.startswith(b"data: "):
            came.append((json.loads(line.removeprefix(b"data: "))["OUT"], time.monotonic()))
    asking.close()
    assert [out for out, _ in came] == [1, 2, 3]
    assert all(after - before > 0.05 for (_, before), (_, after) in pairwise(came))


def test_behind_an_ingress_only_urls_below_the_path_are_found(exposed: Exposed) -> None:
    wrong = [INFER, f"{exposed.path}X{INFER}", f"//{exposed.path}{INFER}", f"{exposed.path * 2}{INFER}", exposed.path]
    wrong += [f"/%69nference{INFER}", f"/x/..{exposed.path}{INFER}", f"{exposed.path}%2f{INFER[1:]}"]
    for path, status in (*((path, 404) for path in wrong), (f"{exposed.path}{INFER}", 200)):
        assert ask(exposed.address, post(path, JSON, {"x-api-key": exposed.key}))[0] == status, path


def test_its_load_generator_completes(front: Front, tmp_path: Path) -> None:
    assert perf_analyzer(tmp_path, "http", front.proxy.http, "add_sub", token=front.token).per_second > 0
