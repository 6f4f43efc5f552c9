"""Hands an engine's metrics to Prometheus at a port of its own, and nothing else of what the engine answers.

It runs in the engine's image. Arguments: the address to listen on, such as :8002, then the URLs of the metrics.
"""

import sys
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import ProxyHandler, build_opener


class Handler(BaseHTTPRequestHandler):
    """Answers /metrics, and every other path, such as a probe's, with nothing."""

    def do_GET(self) -> None:
        """Answer with 200: an engine that is still loading has no metrics, and is no target that is down."""
        up, parts = 1, list[bytes]()
        if self.path == "/metrics":
            for url in sys.argv[2:]:
                try:
                    with build_opener(ProxyHandler({})).open(url, timeout=4) as answer:
                        parts.append(answer.read())
                except (OSError, HTTPException):
                    up = 0
            parts.append(b"# TYPE tidegate_engine_up gauge\ntidegate_engine_up %d\n" % up)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"\n".join(parts))

    def log_message(self, *_: object) -> None:
        """Log no request."""


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
