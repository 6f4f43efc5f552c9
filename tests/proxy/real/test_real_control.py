"""What controls a Triton is out of reach: it fails through the proxy, and Triton hears nothing of it."""

import http.client
import json
import uuid
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from tidegate_contracts.triton import INDEX_PATH, LIVE_PATH
from tidegate_proxy.upstream import load_watch, question

from ..rigs.pytest_rigs import Front
from ..test_paths import CONTROL, TRICKS

CALLS: dict[str, Callable[[Any, dict[str, str]], Any]] = {
    "index": lambda c, h: c.get_model_repository_index(headers=h),
    "load": lambda c, h: c.load_model("add_sub", headers=h),
    "load another": lambda c, h: c.load_model("x", headers=h, config="{}", files={"file:1/model.py": b""}),
    "unload": lambda c, h: c.unload_model("add_sub", headers=h),
    "shared memory": lambda c, h: c.get_system_shared_memory_status(headers=h),
    "shared memory of a region": lambda c, h: c.get_system_shared_memory_status("a", headers=h),
    "register shared memory": lambda c, h: c.register_system_shared_memory("a", "/a", 1, headers=h),
    "unregister shared memory": lambda c, h: c.unregister_system_shared_memory(headers=h),
    "GPU memory": lambda c, h: c.get_cuda_shared_memory_status(headers=h),
    "register GPU memory": lambda c, h: c.register_cuda_shared_memory("a", b"x", 0, 1, headers=h),
    "unregister GPU memory": lambda c, h: c.unregister_cuda_shared_memory("a", headers=h),
    "trace": lambda c, h: c.get_trace_settings(headers=h),
    "trace of a model": lambda c, h: c.get_trace_settings("add_sub", headers=h),
    "set the trace": lambda c, h: c.update_trace_settings(settings={"trace_level": ["OFF"]}, headers=h),
    "set the trace of a model": lambda c, h: c.update_trace_settings("add_sub", {"trace_level": ["OFF"]}, headers=h),
    "log": lambda c, h: c.get_log_settings(headers=h),
    "set the log": lambda c, h: c.update_log_settings({"log_verbose_level": 0}, headers=h),
}
SPELLINGS = [
    path for path in (*CONTROL, *TRICKS[:20]) if path.isascii() and path[:1] == "/" and path != "/v2/models/stats"
] + [
    "/v2/models/add_sub/../../repository/index",
    "/v2/models/add_sub/%2e%2e/%2e%2e/repository/index",
    "/v2/models/add_sub/versions/1/../../../../repository/index",
    "/%76%32/repository/index",
    "/v2/repository/index?x=1",
    "/servers/triton/../v2/repository/index",
    "/v2/models/add_sub/versions/1/unload",
]


@pytest.fixture
def heard(front: Front) -> Iterator[Callable[[], str]]:
    """What Triton itself says that it was asked since the test began: its log, at its most talkative."""
    log = front.triton.process.log
    _direct(front, "/v2/logging", {"log_verbose_level": 1})
    start, began = log.stat().st_size, monotonic()

    def said() -> str:
        # When it has told of the last, it has told of all before.
        mark = f"mark-{uuid.uuid4().hex}"
        _direct(front, f"/v2/models/{mark}/infer", {})
        text = ""
        front.triton.process.wait_until(lambda: mark in log.read_text("utf-8", "replace"), 10)
        text = log.read_bytes()[start:].decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if "request" in line.lower() and mark not in line]
        return "\n".join(_without_looks(lines, monotonic() - began))

    yield said
    _direct(front, "/v2/logging", {"log_verbose_level": 0})


def _without_looks(lines: list[str], seconds: float) -> list[str]:
    """Leave out health checks, and as many questions for the index as the proxy itself may have asked in this time."""
    own = 1 + int(seconds / (load_watch.LOOK_SECONDS * (1 - question.JITTER)))
    looks = [line for line in lines if line.rstrip('"').endswith(INDEX_PATH)][:own]
    return [line for line in lines if line not in looks and not line.rstrip('"').endswith(LIVE_PATH)]


def _direct(front: Front, path: str, body: Any) -> None:
    asking = http.client.HTTPConnection(front.triton.http, timeout=10)
    asking.request("POST", path, json.dumps(body))
    asking.getresponse().read()
    asking.close()


def test_triton_tells_what_it_was_asked(front: Front, heard: Callable[[], str]) -> None:
    import tritonclient.http as client

    with client.InferenceServerClient(front.proxy.http) as each:
        each.get_model_config("echo", headers=front.credential)
    assert "/v2/models/echo/config" in heard()


@pytest.mark.parametrize("server", ["", "/servers/triton"])
def test_control_fails_and_does_not_reach_triton(front: Front, heard: Callable[[], str], server: str) -> None:
    import tritonclient.http as client
    from tritonclient.utils import InferenceServerException

    with client.InferenceServerClient(front.proxy.http + server) as each:
        for call in CALLS.values():
            with pytest.raises(InferenceServerException) as error:
                call(each, front.credential)
            assert error.value.status() == "404"
            assert "Nothing is called" in error.value.message()
    assert heard() == ""


OVER_GRPC = [
    "index", "load", "unload", "shared memory", "register shared memory", "unregister shared memory",
    "GPU memory", "set the trace", "log",
]  # fmt: skip


def test_control_over_grpc_has_no_method(front: Front, heard: Callable[[], str]) -> None:
    import tritonclient.grpc as client
    from tritonclient.utils import InferenceServerException

    with client.InferenceServerClient(front.proxy.grpc) as each:
        for name in OVER_GRPC:
            with pytest.raises(InferenceServerException) as error:
                CALLS[name](each, front.credential)
            assert error.value.status() == "StatusCode.UNIMPLEMENTED"
    assert heard() == ""


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_spelling_reaches_control(front: Front, heard: Callable[[], str], method: str) -> None:
    for path in SPELLINGS:
        asking = http.client.HTTPConnection(front.proxy.http, timeout=10)
        asking.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (front.credential | {"content-length": "0"}).items():
            asking.putheader(name, value)
        asking.endheaders()
        answer = asking.getresponse()
        assert answer.status in (400, 404, 405), path
        assert answer.getheader("content-type") == "application/problem+json"
        asking.close()
    assert heard() == ""
