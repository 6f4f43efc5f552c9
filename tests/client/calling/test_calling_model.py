import json
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from tidegate.calling.credentials import Credential
from tidegate.calling.model import Model
from tidegate.calling.proxy import ProxyClient
from tidegate.errors import NotFoundError, RefusedError, UnreachableError, UsageError
from tidegate_proxy.problems import CONTENT_TYPE, Problem, ProblemType

from tests.proxy.http.upstream import Received, Upstream, replying, response, running_upstream


class Triton:
    """Replaces a proxy whose model has one input, the type of which can change."""

    def __init__(self) -> None:
        self.takes = "FP32"
        self.config: bytes | ProblemType | None = None
        """The response to a request for the configuration, instead of the real one."""
        self.requested: list[str] = []
        self.turns_after: int | None = None  # number of requests after which the type changes
        self.pause = 0.0  # seconds before each response

    def reply(self, received: Received) -> bytes:
        if self.turns_after is not None and len(self.requested) >= self.turns_after:
            self.takes = "INT64"
        self.requested.append(received.path)
        time.sleep(self.pause)
        if received.path.endswith("/config"):
            if isinstance(self.config, ProblemType):
                return response(Problem(self.config, "no").body("r"), self.config.status, CONTENT_TYPE)
            tensor = {"name": "X", "data_type": f"TYPE_{self.takes}", "dims": [1]}
            return response(self.config or json.dumps({"input": [tensor], "output": []}).encode())
        length = int(received.headers["inference-header-content-length"])
        [described], values = json.loads(received.body[:length])["inputs"], received.body[length:]
        if described["datatype"] != self.takes:
            return response(b'{"error":"another data-type is expected"}', 400)
        outputs = [described | {"name": "Y"}]
        head = json.dumps({"model_name": "m", "model_version": "1", "outputs": outputs}).encode()
        return response(head + values, inference_header_content_length=str(len(head)))


@pytest.fixture
def triton() -> Triton:
    return Triton()


@pytest.fixture
def behind(triton: Triton) -> Iterator[Upstream]:
    with running_upstream(replying(triton.reply)) as running:
        yield running


def model(behind: Upstream, **more: Any) -> Model:
    return Model(ProxyClient(f"http://{behind.http}", Credential()), "m", **more)


def configs(triton: Triton) -> int:
    return sum(path.endswith("/config") for path in triton.requested)


def test_a_signature_is_requested_once_and_again_after_a_refusal(behind: Upstream, triton: Triton) -> None:
    called = model(behind)
    for _ in range(3):
        called.predict({"X": [1]})
    assert configs(triton) == 1
    triton.takes = "INT64"
    with pytest.raises(UsageError, match="another data-type"):
        called.predict({"X": [1]})
    for _ in range(2):
        assert called.predict({"X": [1]})["Y"].dtype == numpy.int64
    assert configs(triton) == 2


def test_rows_that_were_answered_are_counted_when_the_model_changes(behind: Upstream, triton: Triton) -> None:
    called = model(behind)
    rows = [{"X": [number]} for number in range(5)]
    called.predict(rows)
    triton.turns_after = len(triton.requested) + 3
    with pytest.raises(UnreachableError, match=r"changed while its rows were sent(.|\n)*before the change: 3"):
        called.predict(rows)
    assert len([path for path in triton.requested if path.endswith("/infer")]) == 5 + 4
    assert called.predict(rows)["Y"].dtype == numpy.int64


@pytest.mark.parametrize("deadline", ["5", -1, float("nan"), float("inf"), [1]])
def test_a_deadline_that_is_no_time_is_refused(behind: Upstream, triton: Triton, deadline: Any) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        model(behind).predict({"X": [1]}, {"deadline": deadline})
    assert triton.requested == []


@pytest.mark.parametrize(
    "config",
    [b"{}", b'{"input":[{"dims":[1]}]}', b'{"input":[1]}', b'{"max_batch_size":"x"}', b'{"max_batch_size":1e400}',
     ProblemType.UNKNOWN, ProblemType.DENIED],
)  # fmt: skip
def test_a_configuration_is_found_once_it_is_one(behind: Upstream, triton: Triton, config: bytes | ProblemType) -> None:
    triton.config = config
    called = model(behind)
    with pytest.raises((UnreachableError, UsageError, NotFoundError, RefusedError)):
        called.predict({"X": [1]})
    triton.config = None
    assert called.predict({"X": [1]})["Y"].tolist() == [1]


def test_each_version_has_a_separate_signature(behind: Upstream, triton: Triton) -> None:
    called = model(behind, version=3, server="gpu")
    called.predict({"X": [1]})
    called.predict({"X": [1]}, {"version": 4})
    requested = [f"{version}/{what}" for version in (3, 4) for what in ("config", "infer")]
    assert triton.requested == [f"/servers/gpu/v2/models/m/versions/{each}" for each in requested]


def test_one_deadline_is_for_all_requests_that_a_call_takes(behind: Upstream, triton: Triton) -> None:
    called = model(behind)
    called.predict({"X": [1]})
    triton.pause = 0.2
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="timed out"):
        called.predict([{"X": [number]} for number in range(20)], {"deadline": 1.0})
    assert time.monotonic() - begun < 3  # all of them take 4


def test_a_model_that_streams_is_called_by_other_means(behind: Upstream, triton: Triton) -> None:
    triton.config = b'{"model_transaction_policy": {"decoupled": true}}'
    with pytest.raises(UsageError, match=r"streams its responses(.|\n)*tritonclient\.grpc"):
        model(behind).predict({"X": [1]})
    assert configs(triton) == len(triton.requested)
