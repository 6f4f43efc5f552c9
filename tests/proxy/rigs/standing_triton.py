"""A stand-in for Triton as a separate process, which can be killed, or suspended so that it hangs.

`python -m tests.proxy.rigs.standing_triton <host> <HTTP port> <gRPC port>`
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from lab.local_plane.process import Process, python_variables, running

from ..http.upstream import Received, answering, head, only, raw, upstream

MODELS = ("a", "cold")
BROKEN = "broken"  # A model that failed to load. tests/proxy/real compares its responses with a real Triton's.


@contextmanager
def standing_triton(folder: Path, host: str, ports: tuple[int, int]) -> Iterator[Process]:
    """Run a stand-in at a loopback address. It answers calls of its models, but reports the last one as not ready."""
    command = [sys.executable, "-m", __name__, host, *map(str, ports)]
    variables = os.environ | python_variables("proxy", "contracts", "service")
    with running("a Triton's stand-in", command, folder / f"{host}.log", variables) as process:
        yield process


def statistics(received: Received) -> bytes:
    models = [model for model in MODELS if f"/{model}/" in received.line] or MODELS
    return json.dumps({"model_stats": [{"name": model, "version": "1"} for model in models]}).encode()


async def serve(host: str, http_port: int, grpc_port: int) -> None:
    async def model_ready(request: bytes, _context: object) -> bytes:
        return b"" if BROKEN.encode() in request else b"\x08\x01"

    methods: dict[str, Any] = {"ModelReady": grpc.unary_unary_rpc_method_handler(model_ready)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)])
    server.add_insecure_port(f"{host}:{grpc_port}")
    await server.start()
    refused, unknown = (raw(head(b"content-length: 0", status=status)) for status in (b"400 -", b"404 -"))
    act = only("/stats", answering(statistics), only(f"/{MODELS[-1]}/ready", refused))
    act = only(f"/{BROKEN}/", refused, act)
    async with upstream(only(f"/{BROKEN}/infer", unknown, act), host, http_port) as made:
        made.index = [{"name": BROKEN, "version": "1", "state": "UNAVAILABLE", "reason": "no such library"}]
        made.index += [{"name": name, "version": "1", "state": "READY"} for name in MODELS]
        print(f"ready http={http_port} grpc={grpc_port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], *map(int, sys.argv[2:])))
