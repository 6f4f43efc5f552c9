"""Trace context in metadata goes on to the replica, and calls have spans when asked."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from .harness import Rig, infer_request, method, rig

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
STATE = "a=" + "x" * 300
CONTEXT = (("traceparent", PARENT), ("tracestate", STATE))


def said(door: Rig) -> dict[str, Any]:
    [(_, _, metadata)] = door.stubs[0].asked
    return {name: metadata.get(name) for name in ("traceparent", "tracestate", "other")}


def kept(door: Rig) -> list[dict[str, Any]]:
    tracer = door.proxy.shared.tracer
    assert tracer is not None
    return list(tracer._waiting)


@pytest.mark.parametrize("name", ["ModelInfer", "ModelStreamInfer"])
def test_without_a_collector_the_context_goes_on_as_it_came(tmp_path: Path, name: str) -> None:
    with rig(tmp_path) as door:
        call, metadata = method(door.channel(), name), door.metadata(*CONTEXT)
        if name == "ModelInfer":
            call(infer_request(), metadata=metadata, timeout=5)
        else:
            list(call(iter([infer_request()]), metadata=metadata, timeout=5))
        assert said(door) == {"traceparent": PARENT, "tracestate": STATE, "other": None}


def test_a_sampled_call_has_a_span_between_the_callers_and_the_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate_proxy.telemetry.traces.EXPORT_SECONDS", 60)
    with rig(tmp_path, otlp_endpoint="http://127.0.0.1:1") as door:
        metadata = door.metadata(*CONTEXT, ("other", "y" * 200))
        infer = method(door.channel(), "ModelInfer")
        infer(infer_request(), metadata=metadata, timeout=5)
        [span] = kept(door)
        assert (span["traceId"], span["parentSpanId"], span["traceState"]) == (TRACE, PARENT[36:52], STATE)
        sent = {"traceparent": f"00-{TRACE}-{span['spanId']}-01", "tracestate": STATE, "other": "y" * 200}
        assert said(door) == sent
        assert (span["name"], span["status"]) == ("inference.GRPCInferenceService/ModelInfer", {})
        told = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
        assert (
            told.items()
            >= {
                "rpc.system": "grpc",
                "rpc.service": "inference.GRPCInferenceService",
                "rpc.method": "ModelInfer",
                "rpc.grpc.status_code": "0",
                "tidegate.server": "main",
                "tidegate.model": "echo",
            }.items()
        )
        with pytest.raises(grpc.RpcError):
            infer(infer_request("nothing"), metadata=metadata, timeout=5)
        assert kept(door)[1]["status"] == {}  # NOT_FOUND is the caller's error
        infer(infer_request(), metadata=door.metadata(), timeout=5)
        assert len(kept(door)) == 2
