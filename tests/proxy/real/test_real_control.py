import http.client
import json
import uuid
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from tidegate_contracts.triton import INDEX_PATH, LIVE_PATH
from tidegate_proxy.settings import Tunables
from tidegate_proxy.upstream import probe

from ..rigs.pytest_rigs import Front
from ..test_paths import CONTROL, TRICKS

pytestmark = pytest.mark.thorough
Call = Callable[[Any, dict[str, str]], object]
CALLS: tuple[Call, ...] = (
    lambda c, h: c.load_model("add_sub", headers=h),
    lambda c, h: c.unload_model("add_sub", headers=h),
    lambda c, h: c.get_system_shared_memory_status(headers=h),
    lambda c, h: c.register_system_shared_memory("a", "/a", 1, headers=h),
    lambda c, h: c.unregister_system_shared_memory(headers=h),
    lambda c, h: c.get_cuda_shared_memory_status(headers=h),
    lambda c, h: c.update_trace_settings(settings={"trace_level": ["OFF"]}, headers=h),
    lambda c, h: c.get_log_settings(headers=h),
)
INDEX: Call = lambda c, h: c.get_model_repository_index(headers=h)  # noqa: E731
SPELLINGS = [path for path in (*CONTROL, *TRICKS[:20]) if path.isascii() and path[:1] == "/"] + [
    "/v2/models/add_sub/%2e%2e/%2e%2e/repository/index",
    "/%76%32/repository/index",
    "/v2/repository/index?x=1",
]


def _post(host: str, path: str, body: Any) -> None:
    asking = http.client.HTTPConnection(host, timeout=10)
    asking.request("POST", path, json.dumps(body))
    asking.getresponse().read()
    asking.close()


def _queries(front: Front, start: int, began: float) -> list[str]:
    """Return the requests in Triton's log from byte `start` on, without the proxy's own."""
    log, mark = front.triton.process.log, f"mark-{uuid.uuid4().hex}"
    _post(front.triton.http, f"/v2/models/{mark}/infer", {})  # once this is logged, all earlier requests are too
    front.triton.process.wait_until(lambda: mark in log.read_text("utf-8", "replace"), 10)
    most = 1 + int((monotonic() - began) / (Tunables.index_seconds * (1 - probe.JITTER)))
    lines = [line.rstrip('"') for line in log.read_bytes()[start:].decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if "request" in line.lower() and mark not in line and not line.endswith(LIVE_PATH)]
    own = [line for line in lines if line.endswith(INDEX_PATH)][:most]
    return [line for line in lines if line not in own]


def test_control_fails_and_does_not_reach_triton(front: Front) -> None:
    import tritonclient.grpc as over_grpc
    import tritonclient.http as over_http
    from tritonclient.utils import InferenceServerException

    _post(front.triton.http, "/v2/logging", {"log_verbose_level": 1})
    start, began = front.triton.process.log.stat().st_size, monotonic()
    for server in ("", "/servers/triton"):
        with over_http.InferenceServerClient(front.proxy.http + server) as each:
            for call in (*CALLS, INDEX):
                with pytest.raises(InferenceServerException, match="There is no address") as error:
                    call(each, front.credential)
                assert error.value.status() == "404"
    with over_grpc.InferenceServerClient(front.proxy.grpc) as each:
        for call in (*CALLS, INDEX):
            with pytest.raises(InferenceServerException) as error:
                call(each, front.credential)
            assert error.value.status() == "StatusCode.UNIMPLEMENTED"
    for method, path in ((method, path) for method in ("GET", "POST") for path in SPELLINGS):
        asking = http.client.HTTPConnection(front.proxy.http, timeout=10)
        asking.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (front.credential | {"content-length": "0"}).items():
            asking.putheader(name, value)
        asking.endheaders()
        assert asking.getresponse().status in (400, 404, 405), path
        asking.close()
    assert _queries(front, start, began) == []
    with over_http.InferenceServerClient(front.proxy.http) as each:
        each.get_model_config("echo", headers=front.credential)
    assert [line for line in _queries(front, start, began) if "/v2/models/echo/config" in line]
    _post(front.triton.http, "/v2/logging", {"log_verbose_level": 0})
