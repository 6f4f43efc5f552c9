"""A candidate version gets copies of unary calls too; no caller ever notices."""

import threading
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import pytest
from tidegate_contracts import routing
from tidegate_proxy.mirror import MOST_BYTES, MOST_OF_A_MODEL
from tritonclient.grpc import service_pb2 as pb

from .harness import Rig, Stub, infer_request, method, rig, until

SERVED = (routing.VersionShare(version=1, weight=100),)
MODEL = routing.Model(
    name="echo", server="main", pool="one", versions=SERVED, mirror=routing.Mirror(version=3, percent=100)
)


def copies(running: Rig) -> list[Any]:
    return [
        request for name, request, _ in running.stubs[0].asked if name == "ModelInfer" and request.model_version == "3"
    ]


def outcomes(running: Rig) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for (_, _, outcome), number in running.proxy.meter.mirrored.items():
        counted[outcome] += number
    return dict(counted)


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
@pytest.mark.parametrize("size", [6, 300_000, MOST_BYTES])
def test_the_candidate_gets_what_the_served_version_got(tmp_path: Path, size: int, compression: Any) -> None:
    with rig(tmp_path, models=(MODEL,)) as door:
        request = infer_request("echo", b"x" * size, id="seven")
        metadata = door.metadata(("traceparent", "00-ab-cd-01"))
        answer = method(door.channel(), "ModelInfer")(request, metadata=metadata, timeout=5, compression=compression)
        assert (answer.model_version, bytes(answer.raw_output_contents[0])) == ("1", b"x" * size)
        if size == MOST_BYTES:
            until(lambda: outcomes(door) == {"too-large": 1})
            assert not copies(door)
        else:
            until(lambda: outcomes(door) == {"answered": 1})
            [copy] = copies(door)
            request.model_version = "3"
            assert copy == request
            assert {said.get("traceparent") for _, _, said in door.stubs[0].asked} == {"00-ab-cd-01"}
        until(lambda: door.proxy.shared.mirror.in_flight == door.proxy.shared.mirror.bytes == 0)


def test_streams_sequences_and_the_candidate_itself_are_not_copied(tmp_path: Path) -> None:
    with rig(tmp_path, models=(MODEL,)) as door:
        channel, metadata = door.channel(), door.metadata()
        infer = method(channel, "ModelInfer")
        assert infer(infer_request(model_version="3"), metadata=metadata, timeout=5).model_version == "3"
        in_sequence = infer_request()
        in_sequence.parameters["sequence_id"].int64_param = 7
        infer(in_sequence, metadata=metadata, timeout=5)
        list(method(channel, "ModelStreamInfer")(iter([infer_request()]), metadata=metadata, timeout=5))
        method(channel, "ModelReady")(pb.ModelReadyRequest(name="echo"), metadata=metadata, timeout=5)
        until(lambda: outcomes(door) == {"sequence": 1})
        assert len(copies(door)) == 1


def test_a_candidate_that_never_answers_costs_bounded_copies_and_no_caller_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, release = Stub.infer, threading.Event()

    def infer(stub: Stub, request: Any, context: Any) -> Any:
        answer = real(stub, request, context)
        if request.model_version == "3":
            release.wait(20)
        return answer

    monkeypatch.setattr(Stub, "infer", infer)
    with rig(tmp_path, models=(MODEL,), request_timeout_seconds=5, concurrency=1) as door:
        call = method(door.channel(), "ModelInfer")
        began = monotonic()
        for _ in range(MOST_OF_A_MODEL + 5):
            assert call(infer_request(), metadata=door.metadata(), timeout=5).model_version == "1"
        assert monotonic() - began < 4  # none waited for a copy's end
        until(lambda: outcomes(door) == {"too-many": 5, "late": MOST_OF_A_MODEL}, 15)
        release.set()
        [pool] = [pool for (server, _), pool in door.proxy.config.routes.pools.items() if server == "main"]
        [replica] = pool.replicas
        assert (replica.breaker.state(monotonic()), replica.failures, replica.in_flight) == ("closed", 0, 0)
        assert door.proxy.shared.mirror.bytes == door.proxy.shared.limiter.in_flight == 0
