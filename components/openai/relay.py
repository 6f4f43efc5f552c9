"""What runs beside an engine, out of its image: the relay that hands its metrics out."""

from typing import Final

import pulumi_kubernetes as k8s
from tidegate_contracts import openai
from tidegate_contracts.metrics import ENGINE

from stacks.definition.base import Resources
from stacks.definition.pods import Pods

from .. import pods
from ..args import ServerArgs

HOME: Final = {"HOME": "/tmp", "USER": "engine"}
"""The root file system is read-only, so home is elsewhere; and the user's number has a name in no image."""
NO_GPU: Final = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""For what runs beside an engine: its image asks for every GPU of the node, and gets them from some runtimes."""
_UP = ENGINE["up"].series_name
# What it hands out on a port of its own is the engine's metrics and nothing else of what the engine answers. An engine
# has none while it loads, which may take long: that is said, and is no target that is down.
RELAY: Final = f"""\
import http.client, http.server, sys
from urllib.request import ProxyHandler, build_opener
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        up, parts = 1, []
        for address in sys.argv[2:] if self.path == "/metrics" else ():
            try:
                parts.append(build_opener(ProxyHandler({{}})).open(address, timeout=4).read())
            except (OSError, http.client.HTTPException):
                up = 0
        if self.path == "/metrics":
            parts.append(b"# TYPE {_UP} gauge\\n{_UP} %d\\n" % up)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"\\n".join(parts))
    def log_message(self, *_):
        pass
host, _, port = sys.argv[1].rpartition(":")
http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"""
_RESOURCES, _DISK = Resources(cpu="10m", memory="64Mi"), "64Mi"


def relay(server: ServerArgs, every_pod: Pods, addresses: list[str]) -> k8s.core.v1.ContainerArgs:
    """Return the container that hands an engine's metrics to Prometheus, which may not reach the API's own port."""
    return pods.container(
        "metrics",
        server.image,
        every_pod,
        {"metrics": openai.METRICS_PORT},
        pods.variables({**HOME, **NO_GPU}),
        command=["python3", "-c", RELAY],
        args=[f":{openai.METRICS_PORT}", *addresses],
        restart_policy="Always",
        resources=pods.container_resources(_RESOURCES, _DISK),
        startup_probe=pods.http_probe("/", "metrics", 1, failures=60),
        liveness_probe=pods.http_probe("/", "metrics", 10, failures=6),
    )
