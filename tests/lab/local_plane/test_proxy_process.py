"""The proxy of the rigs is the process that its container runs, with its checks on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from lab.local_plane.process import listens
from lab.local_plane.proxy import Proxy, proxy, write_tables
from tests.proxy.rigs.issuer import Issuer
from tests.proxy.rigs.tables import GROUP, access_table, routing_table
from tests.proxy.rigs.test_real_peers import call
from tests.proxy.rigs.upstream import Upstream, upstream

PATH = "/v2/models/m/infer"


@dataclass(frozen=True)
class World:
    proxy: Proxy
    behind: Upstream
    issuer: Issuer

    def call(self, token: str = "") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = call(self.proxy.http, PATH, b'{"inputs":[]}', headers)
        assert answer.getheader("x-request-id")
        return answer.status


@pytest.fixture
def world(tmp_path: Path, identity_provider: Issuer) -> Iterator[World]:
    with upstream() as behind:
        write_tables(tmp_path, routing_table(behind.port, behind.port, ["m"]), access_table([identity_provider]))
        with proxy(tmp_path) as running:
            yield World(running, behind, identity_provider)
    assert not listens(running.http_port)


def test_its_checks_are_on_it_passes_calls_and_its_tables_are_read_again(world: World) -> None:
    token = world.issuer.token("alice", [GROUP])
    assert world.call(token) == 200
    assert world.behind.requests[0].path == PATH
    answer = call(world.proxy.http, PATH, b"x" * 100, {"Authorization": f"Bearer {token}"})
    assert json.loads(answer.body)["bytes"] == 100  # type: ignore[attr-defined]
    assert world.call() == 401
    assert world.call(world.issuer.token("alice", [GROUP], seconds=-300)) == 401
    assert world.call(world.issuer.token("mallory", ["others"])) in (403, 404)
    assert len(world.behind.requests) == 2
    with urlopen(f"http://{world.proxy.admin}/metrics", timeout=5) as said:
        assert 'model="m"' in said.read().decode()
    with urlopen(f"http://{world.proxy.admin}/readyz", timeout=5) as said:
        assert said.status == 200
    before = world.proxy.process.processor_seconds()
    for _ in range(200):
        assert world.call(token) == 200
    assert 20e6 < world.proxy.process.resident_bytes() < 500e6
    assert 0 < world.proxy.process.processor_seconds() - before < 10
    write_tables(world.proxy.root, access_table([world.issuer], requests_per_minute=1))
    world.proxy.process.wait_until(lambda: world.call(token) == 429, 10)
