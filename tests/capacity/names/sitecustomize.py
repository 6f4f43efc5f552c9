"""Python runs this at its start, where it is on its path: a name `replicas-2` has the addresses 127.0.0.1 and .2.

So a proxy on loopback finds replicas as it finds them in a cluster, by one name, with the same ports.
"""

import asyncio
import re
import socket
from typing import Any

import uvloop

_found = socket.getaddrinfo


def _getaddrinfo(host: Any, port: Any, *args: Any, **more: Any) -> Any:
    if isinstance(host, str) and (match := re.fullmatch(r"replicas-([0-9]+)", host)):
        addresses = (f"127.0.0.{number}" for number in range(1, int(match[1]) + 1))
        return [found for address in addresses for found in _found(address, port, *args, **more)]
    return _found(host, port, *args, **more)


socket.getaddrinfo = _getaddrinfo
uvloop.run = asyncio.run  # type: ignore[assignment]  # asyncio's own loop asks Python for addresses, and uvloop the system
