"""The proxy with a file of addresses by name, in place of a cluster's headless Services."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

from tidegate_proxy import __main__ as program
from tidegate_proxy.pools import Address, lookup
from tidegate_proxy.serve import Proxy

from .process import replace_file

VARIABLE = "TIDEGATE_LAB_NAMES"


def write_names(file: Path, names: Mapping[str, Sequence[tuple[str, int]]]) -> None:
    """Write the hosts and ports of each name. A proxy sees them at its next lookup."""
    replace_file(file, json.dumps(names))


async def find(file: Path, host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a name, from the file or from DNS."""
    known = json.loads(file.read_text("utf-8"))
    if host not in known:
        return await lookup(host, port)
    return [(socket.AF_INET, (address, at)) for address, at in known[host]]


if __name__ == "__main__":
    named = partial(Proxy, find=partial(find, Path(os.environ[VARIABLE])))
    with patch.object(program, "Proxy", named):
        program.app(prog_name="python -m tidegate_proxy")
