import logging
from collections import Counter
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts import log_fields
from tidegate_proxy.telemetry.records import CLIENT_LEFT, FAILURES_A_SECOND, SLOW_A_SECOND, SUCCESS_EVERY, CallLog

from ..residency.estate import estate
from ..residency.standin import sites

MODELS = st.sampled_from([None, ("main", "ant"), ("main", "bee"), ("other", "ant")])
CALLS = st.lists(
    st.tuples(st.floats(0, 0.15), st.sampled_from([200, 200, 200, 404, 499, 503, 999]), MODELS), max_size=60
)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = vars(record)["data"]
    return found


@given(CALLS)
def test_every_call_of_a_model_is_logged_once_and_soon(calls: list[tuple[float, int, tuple[str, str] | None]]) -> None:
    logged: Counter[tuple[str, str]] = Counter()
    waiting: list[tuple[float, tuple[str, str]]] = []
    with Lines(1000) as lines:
        log, now = CallLog(), 0.0
        for pause, status, model in calls:
            now += pause
            log.flush(now)
            waiting += [(now, model)] if model is not None else []
            if log.wants(status, now, model):
                log.write(status, {"protocol": "http"})
            for record in lines.taken():
                for server, models in fields(record).get("calls", {}).items():
                    logged.update({(server, name): number for name, number in models.items()})
                waiting.clear()
            assert all(now - at < SUCCESS_EVERY + 0.15 for at, _ in waiting)
        log.flush(float("inf"))
        for record in lines.taken():
            for server, models in fields(record).get("calls", {}).items():
                logged.update({(server, name): number for name, number in models.items()})
    assert logged == Counter(model for _, _, model in calls if model is not None)


@pytest.mark.parametrize(
    ("noise", "stranger"),
    [(401, True), (503, True), (CLIENT_LEFT, False), (429, False)],
    ids=["no credential", "an issuer that hangs", "cancelled", "rate-limited"],
)
def test_the_lines_of_failures_are_not_used_up_by_calls_of_another_kind(noise: int, stranger: bool) -> None:
    with Lines(1000) as lines:
        log = CallLog()
        for _ in range(10 * FAILURES_A_SECOND):
            if log.wants(noise, 5.0, None if stranger else ("main", "bee"), stranger=stranger):
                log.write(noise, {"protocol": "http"})
        assert len(lines.taken()) == FAILURES_A_SECOND
        for _ in range(FAILURES_A_SECOND):
            assert log.wants(500, 5.0, ("main", "ant"))
            log.write(500, {"protocol": "http"})
        records = lines.taken()
        assert len(records) == FAILURES_A_SECOND
        assert fields(records[0])["notLogged"] == 9 * FAILURES_A_SECOND


class Lines(BufferingHandler):
    def taken(self) -> list[logging.LogRecord]:
        found, self.buffer = self.buffer, []
        return found

    def __enter__(self) -> "Lines":
        log = logging.getLogger("tidegate_proxy.calls")
        log.addHandler(self)
        log.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("tidegate_proxy.calls").removeHandler(self)


@pytest.mark.anyio
async def test_a_line_has_the_wait_of_the_call_for_its_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.calls")
    async with sites(load_seconds=0.3) as [site], estate(tmp_path, [site]) as here:
        assert (await here.call("a")).status == 200
        assert (await here.call("a")).status == 200
        here.proxy.shared.call_log.flush(float("inf"))
    first, second = (fields(record) for record in caplog.records)
    assert 0.3 <= first["waitedSeconds"] <= first["seconds"]
    assert "waitedSeconds" not in second
    assert [each["calls"] for each in (first, second)] == [{"vision": {"a": 1}}] * 2


TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.mark.anyio
async def test_a_call_is_found_by_its_id_and_its_trace_at_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.calls")
    async with sites(load_seconds=0.3) as [site], estate(tmp_path, [site]) as here:  # so each is logged
        assert (await here.call("a", x_request_id="order-8", traceparent=PARENT)).status == 200
        assert (await here.call("b", x_request_id="order-9", traceparent="nonsense")).status == 200
    served = {each.headers["x-request-id"]: each.headers for each in site.triton.requests if "infer" in each.line}
    assert served["order-8"]["traceparent"] == PARENT
    assert all(fields(each).keys() <= FIELDS for each in caplog.records)
    assert [(each["requestId"], each.get("traceId")) for each in map(fields, caplog.records)] == [
        ("order-8", TRACE),
        ("order-9", None),
    ]


def test_a_call_that_waited_for_its_model_is_logged_however_many_went_well_just_before() -> None:
    log = CallLog()
    assert log.wants(200, 5.0)
    assert not log.wants(200, 5.01)
    assert not log.wants(200, 5.02, seconds=0.5, waited=0.01), "its model was in memory"
    assert log.wants(200, 5.02, seconds=0.5, waited=0.5)
    assert log.wants(200, 5.03, seconds=1.5), "it was slow, wherever that was"


def test_waiting_calls_use_none_of_the_lines_of_failed_ones() -> None:
    log = CallLog()
    assert sum(log.wants(200, 5.0, seconds=1.0, waited=1.0) for _ in range(500)) == SLOW_A_SECOND + 1, (
        "and one that went well"
    )
    assert sum(log.wants(503, 5.0) for _ in range(500)) == FAILURES_A_SECOND


FIELDS = log_fields.ALWAYS.keys() | log_fields.FIELDS.keys()
