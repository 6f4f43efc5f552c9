"""What the benchmark of the proxy says about what it measured; once it measures really, if only for a second."""

import http.client
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lab.bench.proxy.__main__ import doubts, ratios, table
from lab.bench.proxy.contestants import idiomatic
from lab.bench.proxy.rows import Found, Result, rows
from tests.proxy.rigs.issuer import issuer
from tests.proxy.rigs.tables import GROUP
from tests.proxy.rigs.upstream import upstream

ROOT = Path(__file__).resolve().parents[3]
KEYS = [
    "predict_vs_nginx",
    "v2_vs_nginx",
    "v2_p99_vs_nginx",
    "predict_varying_vs_nginx",
    "v2_varying_vs_nginx",
    "v2_varying_p99_vs_nginx",
    "v2_vs_envoy",
    "v2_vs_idiomatic",
    "triton_http_vs_nginx",
    "tensor_600k_vs_nginx",
    "grpc_vs_direct",
    "stream_first_token_vs_nginx",
    "rss_mb",
    "rss_mb_10k",
    "reload_p99_vs_before",
]
ROWS = {row.name: row for row in rows()}
V2 = Found(
    ROWS["v2"],
    {
        "nginx": [Result(100, 0.1, 0.2, 9, 0.99), Result(50, 0.1, 0.4, 9, 0.5), Result(10, 0.1, 0.1, 9, 0.97)],
        "proxy": [Result(80, 0.1, 0.3, 12, 0.99), Result(45, 0.1, 0.4, 12, 0.98), Result(5, 0.1, 0.3, 12, 0.99)],
        "envoy": [],
    },
)
STREAM = Found(ROWS["stream_first_token"], {"nginx": [Result(p50=0.001)], "proxy": [Result(p50=0.0015)]})
FOUND = {"v2": V2, "stream_first_token": STREAM}


def test_the_last_line_has_every_key_and_null_for_what_was_not_measured() -> None:
    found = ratios(FOUND, {"rss_mb": 61.24})
    assert list(found) == KEYS
    assert {key: value for key, value in found.items() if value is not None} == {
        "v2_vs_nginx": 0.8,
        "v2_p99_vs_nginx": 1.5,
        "stream_first_token_vs_nginx": 1.5,
        "rss_mb": 61.2,
    }


def test_the_table_names_who_was_not_measured() -> None:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(table(FOUND))
    lines = {line.split("│")[2].strip(): line for line in console.export_text().splitlines() if line.count("│") > 3}
    assert "NOT MEASURED" in lines["envoy"]
    assert "NOT MEASURED" in lines["idiomatic"]
    assert "10 – 100" not in lines["proxy"]


def test_who_did_not_use_its_core_is_doubted() -> None:
    assert list(doubts(FOUND)) == []
    V2.results["haproxy"] = [Result(100, busy=0.4)]
    try:
        (doubt,) = doubts(FOUND)
    finally:
        del V2.results["haproxy"]
    assert "haproxy used 40% of its core in v2" in doubt


@pytest.mark.thorough
def test_a_row_is_measured_against_real_peers() -> None:
    command = [sys.executable, "-m", "lab.bench.proxy", "--runs", "1", "--seconds", "1", "--only", "v2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "contracts")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == KEYS
    measured = {key for key, value in found.items() if value is not None}
    missing = {"v2_vs_nginx", "v2_p99_vs_nginx", "v2_vs_envoy", "v2_vs_idiomatic"} - measured
    assert not missing or "CANNOT BE HAD HERE" in done.stderr, done.stderr
    assert all(found[key] > 0 for key in measured)


@pytest.mark.thorough
def test_the_baseline_checks_what_the_proxy_checks(tmp_path: Path) -> None:
    with (
        issuer() as provider,
        upstream() as behind,
        idiomatic(provider, tmp_path / "baseline", behind.port) as baseline,
    ):
        body = {"inference_server_name": "triton", "model_name": "m", "payload": {"inputs": []}}

        def status(path: str, token: str) -> int:
            asking = http.client.HTTPConnection(baseline.http, timeout=10)
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            asking.request("POST", path, json.dumps(body), headers)
            answer = asking.getresponse()
            answer.read()
            asking.close()
            return answer.status

        for path in ("/predict", "/v2/models/m/infer"):
            assert status(path, provider.token("alice", [GROUP])) == 200
            assert status(path, provider.token("alice", ["others"])) == 403
            assert status(path, provider.token("alice", [GROUP], seconds=-300)) == 401
        assert [request.path for request in behind.requests] == ["/v2/models/m/infer"] * 2
        assert all(request.headers["x-request-id"] for request in behind.requests)
