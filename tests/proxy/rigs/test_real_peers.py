"""nginx, HAProxy and Envoy are real ones and forward; the upstream that answers at once answers what it was told."""

import http.client
import json
from pathlib import Path

import pytest

from lab.local_plane.process import listens
from lab.local_plane.triton import Triton

from .peers import PEERS, Peer, nginx_answering
from .pytest_rigs import not_run

REAL = {"nginx": "nginx/", "haproxy": None, "envoy": "envoy"}
"""How each names itself in its answers, if it does."""


def call(where: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    asking = http.client.HTTPConnection(where, timeout=30)
    asking.request("POST", path, body, headers or {})
    answer = asking.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    asking.close()
    return answer


@pytest.mark.thorough
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_forwards_to_what_is_behind_it(real_triton: Triton, tmp_path: Path, name: str) -> None:
    inputs = [{"name": "INPUT", "shape": [3], "datatype": "FP32", "data": [1.0, 2.5, -3.0]}]
    body = json.dumps({"inputs": inputs}).encode()
    path = "/v2/models/echo/infer"
    direct = call(real_triton.http, path, body)
    with not_run(f"A REAL {name.upper()}"), PEERS[name](tmp_path / name, real_triton.http_port, None) as peer:
        through = call(peer.http, path, body)
    assert (through.status, through.body) == (200, direct.body)  # type: ignore[attr-defined]
    assert (through.getheader("server") or "").startswith(REAL[name] or "")
    assert not listens(peer.port)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_takes_600_kilobytes_both_ways(real_triton: Triton, tmp_path: Path, name: str) -> None:
    size = 3 * 224 * 224
    head = json.dumps(
        {
            "inputs": [
                {"name": "INPUT", "shape": [size], "datatype": "FP32", "parameters": {"binary_data_size": size * 4}}
            ],
            "outputs": [{"name": "OUTPUT", "parameters": {"binary_data": True}}],
        }
    ).encode()
    tensor = bytes(range(256)) * (size * 4 // 256)
    headers = {"Inference-Header-Content-Length": str(len(head))}
    with not_run(f"A REAL {name.upper()}"), PEERS[name](tmp_path / name, real_triton.http_port, None) as peer:
        answer = call(peer.http, "/v2/models/echo/infer", head + tensor, headers)
    assert answer.status == 200
    assert answer.body.endswith(tensor)  # type: ignore[attr-defined]


def test_the_upstream_that_answers_at_once_says_what_it_was_told(tmp_path: Path) -> None:
    told = b'{"model_name":"it\'s \\"quoted\\"","outputs":[]}'
    with not_run("A REAL NGINX"), nginx_answering(tmp_path / "upstream", told) as upstream:
        answers = [call(upstream.http, "/v2/models/any/infer", b"x" * size) for size in (0, 10, 700_000)]
    assert [(answer.status, answer.body) for answer in answers] == [(200, told)] * 3  # type: ignore[attr-defined]
    assert isinstance(upstream, Peer)
