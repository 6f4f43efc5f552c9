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


def test_the_upstream_that_answers_at_once_says_what_it_was_told(tmp_path: Path) -> None:
    told = b'{"model_name":"it\'s \\"quoted\\"","outputs":[]}'
    with not_run("A REAL NGINX"), nginx_answering(tmp_path / "upstream", told) as upstream:
        answers = [call(upstream.http, "/v2/models/any/infer", b"x" * size) for size in (0, 10, 700_000)]
    assert [(answer.status, answer.body) for answer in answers] == [(200, told)] * 3  # type: ignore[attr-defined]
    assert isinstance(upstream, Peer)
