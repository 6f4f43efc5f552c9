"""Python runs this at its start, where it is on its path: names have the addresses that a file says, read each time.

So a proxy on loopback finds replicas as it finds them in a cluster, by one name, with the same ports, as they come and
go. The file, JSON, is named by TIDEGATE_NAMES; a name that it gives no address is unknown.
"""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import uvloop

_found = socket.getaddrinfo


def _getaddrinfo(host: Any, port: Any, *args: Any, **more: Any) -> Any:
    names = json.loads(Path(os.environ["TIDEGATE_NAMES"]).read_text("utf-8"))
    if host not in names:
        return _found(host, port, *args, **more)
    if not names[host]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [found for address in names[host] for found in _found(address, port, *args, **more)]


socket.getaddrinfo = _getaddrinfo
uvloop.run = asyncio.run  # type: ignore[assignment]  # asyncio's own loop asks Python for addresses, and uvloop the system
