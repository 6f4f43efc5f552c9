"""The real Triton and proxy of the proxy's own tests, and a clock that does not wait."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tidegate.calling import retries as retries_module
from tidegate_contracts import routing

from lab.local_plane.proxy import write_tables
from lab.local_plane.triton import Triton
from tests.client.clock import Clock
from tests.proxy.rigs.pytest_rigs import exposed, front, real_triton
from tests.proxy.rigs.tables import access_table, routing_table, write_key

__all__ = ["exposed", "front", "real_triton"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(retries_module, "time", made)
    return made


def write_keyed(root: Path, triton: Triton, models: Sequence[str | routing.Model], key: str) -> Path:
    write_tables(root, routing_table(triton.http_port, triton.grpc_port, models), access_table())
    write_key(root, key)
    return root
