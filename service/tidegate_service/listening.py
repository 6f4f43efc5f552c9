"""Where a process listens."""

import socket


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listener; no host is every address, IPv6 too where there is any, and a port of 0 any free one."""
    if not host and socket.has_dualstack_ipv6():
        made = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    else:
        made = socket.create_server((host, port), backlog=backlog)
    # Connections inherit it. uvloop sets it anyway, asyncio (the admin port's) not: its answers took 40 ms.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
