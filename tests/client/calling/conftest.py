"""The real Triton and the real proxy, which the proxy's own tests start too."""

from collections.abc import Sequence
from pathlib import Path

from tidegate_contracts import routing
from tidegate_proxy.access.api_keys import hash_line

from lab.local_plane.proxy import write_tables
from lab.local_plane.triton import Triton
from tests.proxy.rigs.pytest_rigs import CALLER, front, real_triton
from tests.proxy.rigs.tables import access_table, routing_table

__all__ = ["front", "real_triton"]


def write_keyed(root: Path, triton: Triton, models: Sequence[str | routing.Model], key: str) -> Path:
    """Write what a proxy before a Triton has, whose caller has this API key; return the folder."""
    rule = access_table([]).rules[0].model_copy(update={"principals": (CALLER,)})
    table = routing_table(triton.http_port, triton.grpc_port, models)
    write_tables(root, table, access_table([]).model_copy(update={"rules": (rule,)}))
    (root / "api-keys").mkdir()
    (root / "api-keys" / CALLER).write_text(hash_line(key) + "\n", "utf-8")
    return root
