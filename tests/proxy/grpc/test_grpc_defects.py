from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate_proxy.grpc.call import Call
from tidegate_proxy.grpc.upstream_stream import UpstreamStream
from tidegate_proxy.routes import Route

from .harness import Rig, infer_request, method, refused, rig, until


def defective(monkeypatch: pytest.MonkeyPatch, place: type, name: str) -> None:
    original = getattr(place, name)

    def fail(self: Any, *given: Any) -> Any:
        forwarding: Any = self.forwarding if isinstance(self, Call) else getattr(self, "_forwarding", None)
        route = self if isinstance(self, Route) else forwarding.grant.route
        if route.name == "slow":
            raise ZeroDivisionError
        return original(self, *given)

    monkeypatch.setattr(place, name, fail)


@pytest.mark.parametrize(("place", "name"), [(Route, "version"), (UpstreamStream, "_take_headers"), (Call, "open")])
def test_an_internal_error_ends_one_call_but_no_other_on_its_connections(
    one: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: type, name: str
) -> None:
    defective(monkeypatch, place, name)
    infer = method(one.channel(), "ModelInfer")
    beside = infer.future(infer_request("hang"), metadata=one.metadata())
    until(lambda: bool(one.stubs[0].requests))
    for _ in range(3):
        error = refused(infer, infer_request("slow"), one.metadata())
        assert error.code() == grpc.StatusCode.INTERNAL
        assert "ZeroDivision" not in error.details()
    assert "failed with an internal error" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    one.stubs[0].release.set()
    assert beside.result().model_name == "hang"
    one.until(lambda: not one.proxy.shared.open_calls)
    assert one.proxy.shared.limiter.in_flight == 0


def test_an_internal_error_in_a_queued_call_does_not_end_the_call_that_released_the_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defective(monkeypatch, Call, "open")
    with rig(tmp_path, request_timeout_seconds=20, concurrency=1) as one:
        infer = method(one.channel(), "ModelInfer")
        before = infer.future(infer_request("hang"), metadata=one.metadata(), timeout=10)
        until(lambda: bool(one.stubs[0].requests))
        waiting = infer.future(infer_request("slow"), metadata=one.metadata(), timeout=10)
        one.until(lambda: one.proxy.shared.limiter.waiting == 1)
        one.stubs[0].release.set()
        assert before.result().model_name == "hang"
        assert waiting.code() == grpc.StatusCode.INTERNAL
        assert infer(infer_request(), metadata=one.metadata()).model_name == "echo"
