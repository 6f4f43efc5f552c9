"""A replica in a process of its own, which answers as the model is called: `hang`, `slow`, `large`, others at once."""

import asyncio
import json
from typing import Any

import grpc.aio
import uvloop
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)

from lab.local_plane.process import HOST

from ..http.upstream import Upstream, answering, hang, only, raw, upstream

LARGE = bytes(4 << 20)
SLOW_SECONDS = 0.1
MODELS = tuple(f"model-{number:05}" for number in range(10_000))  # That nobody calls.
_TIMES = {name: {"count": 1000, "ns": 123_456_789} for name in ("success", "fail", "queue", "compute_infer")}
STATISTICS = json.dumps(
    {"model_stats": [{"name": name, "version": "1", "inference_stats": _TIMES} for name in MODELS]}
).encode()
_EVENTS = raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", *[b"data: %b\n\n" % LARGE[:60_000]] * 200)
_ENDLESS = (1 << 31) - 1
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # It is slower than the servers it stands for: else it would cancel calls of which too many wait.
    ("grpc.server.max_pending_requests", _ENDLESS),
    ("grpc.server.max_pending_requests_hard_limit", _ENDLESS),
)
begun = 0  # Calls over gRPC that have come.
answers = only("/sequence/config", answering(b'{"sequence_batching":{}}'))
answers = only("/slow/", answering(seconds=SLOW_SECONDS), only("/stream/", _EVENTS, answers))
answers = only("/v2/models/stats", answering(STATISTICS), answers)
answers = only("/large/", answering(LARGE), only("/hang/", hang, answers))


class Replica(GRPCInferenceServiceServicer):  # type: ignore[misc]  # it has no types
    async def ModelInfer(self, request: Any, _context: Any) -> Any:
        global begun
        begun += 1
        if request.model_name in ("hang", "slow"):
            await asyncio.sleep(3600 if request.model_name == "hang" else SLOW_SECONDS)
        raw = [LARGE] if request.model_name == "large" else []
        return pb.ModelInferResponse(model_name=request.model_name, raw_output_contents=raw)


async def main() -> None:
    server = grpc.aio.server(options=OPTIONS)
    add_GRPCInferenceServiceServicer_to_server(Replica(), server)
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    made: Upstream
    tell = answering(lambda _: b"%d" % (begun + made.begun - 1))
    async with upstream(only("/begun", tell, answers)) as made:
        print(f"ready http={made.port} grpc={port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
