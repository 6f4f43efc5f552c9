"""Export an engine's metrics on a separate port, and nothing else of the engine.

It runs in the engine's image. Arguments: the address to listen on, such as :8002, then the URLs of the metrics.
"""

import sys
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import ProxyHandler, build_opener


class Handler(BaseHTTPRequestHandler):
    """Returns metrics for /metrics, and an empty response for all other paths, such as that of a probe."""

    def do_GET(self) -> None:
        """Return 200 always: an engine that still loads has no metrics, but it is not a target that is down."""
        up, parts = 1, list[bytes]()
        if self.path == "/metrics":
            for url in sys.argv[2:]:
                try:
                    with build_opener(ProxyHandler({})).open(url, timeout=4) as response:
                        parts.append(response.read())
                except (OSError, HTTPException):
                    up = 0
            parts.append(b"# TYPE tidegate_engine_up gauge\ntidegate_engine_up %d\n" % up)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"\n".join(parts))

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
