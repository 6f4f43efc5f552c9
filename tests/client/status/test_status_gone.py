"""Real Tritons that are killed, or hang: what `tidegate status`, probes and callers are told, and how soon."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from tidegate.calling.credentials import Credential
from tidegate.status import KnownProxy, PlaneStatus, collect
from tidegate_contracts import routing
from tidegate_contracts.proxy_process import SERVER_READY_PATH

from lab.local_plane import environment as local
from lab.local_plane.environment import LocalEnvironment
from lab.local_plane.repository import publish
from rollout.tools.running import repeating
from tests.proxy.rigs.pytest_rigs import not_run

from .conftest import BATCHED, LATE

pytestmark = pytest.mark.thorough
MODELS = (
    routing.Model(name="batched", server=local.PRELOAD, pool=local.POOL),
    routing.Model(name="late", server=local.ON_DEMAND, pool=local.POOL, footprint_bytes=100 << 20),
)
TO_AGREE_SECONDS = 3.0
ROWS = json.dumps({"inputs": [{"name": "INPUT", "shape": [1, 3], "datatype": "FP32", "data": [1.0] * 3}]}).encode()
ROW = json.dumps({"inputs": [{"name": "INPUT", "shape": [3], "datatype": "FP32", "data": [1.0] * 3}]}).encode()
BODIES = {"batched": ROWS, "late": ROW}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEnvironment]:
    made = LocalEnvironment(tmp_path_factory.mktemp("gone"), local.Plan("gone", MODELS, idle_seconds=3600))
    publish(BATCHED, made.repository(local.PRELOAD), made.staging(local.PRELOAD))
    publish(LATE, made.repository(local.ON_DEMAND), made.staging(local.ON_DEMAND))
    with not_run("AN ENVIRONMENT OF REAL PROCESSES"), local.local_environment(made):
        yield made


def ask(here: LocalEnvironment, path: str, body: bytes | None = None) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of an answer of the proxy's."""
    request = urllib.request.Request(f"{here.url}{path}", body, {"X-API-Key": here.keys["visitor"]})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


def probe(here: LocalEnvironment, server: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{here.proxies[0].admin}{SERVER_READY_PATH}/{server}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def status(here: LocalEnvironment) -> dict[str, str]:
    """Return the state of each model, as `tidegate status` has it."""
    plane = here.facts().planes[0]
    credential = Credential("a test", ("X-API-Key", here.keys["visitor"]))
    found: list[PlaneStatus] = collect([KnownProxy("gone", "here", here.url, credential, plane)])
    assert not found[0].error, "it never fails whole"
    for at, whys in found[0].away.items():
        assert at.endswith(f"/{local.POOL}")
        [why] = whys
        assert "gets no calls: " in why, "of a pool that is away it is said once, and not of each of its models"
    return {each.model: each.state for each in found[0].models}


def seconds_until(true: Callable[[], bool], most: float = TO_AGREE_SECONDS) -> float:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < most
        time.sleep(0.02)
    return time.monotonic() - began


def test_a_cold_load_is_no_alarm(here: LocalEnvironment) -> None:
    found: set[int] = set()
    with repeating(lambda: found.add(ask(here, "/v2/health/ready")[0]), pause=0.05):
        assert ask(here, "/v2/models/late/infer", ROW)[0] == 200
    assert found == {200}
    assert "gets no calls" not in here.proxies[0].process.log.read_text()


EACH = pytest.mark.parametrize(
    ("server", "model", "other"), [("preload", "batched", "late"), ("on-demand", "late", "batched")]
)


@EACH
def test_one_that_hangs_is_told_and_refused_within_three_seconds_and_used_again(
    here: LocalEnvironment, server: str, model: str, other: str
) -> None:
    triton = here.parts[server]
    assert {ask(here, f"/v2/models/{each}/infer", BODIES[each])[0] for each in BODIES} == {200}
    os.killpg(triton.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert status(here)[other] == "resident", "asked before anybody can know"
        assert time.monotonic() - began < TO_AGREE_SECONDS + 1
        seconds_until(lambda: probe(here, server)[0] == 503, TO_AGREE_SECONDS - (time.monotonic() - began))
        print(f"{server} hangs: {time.monotonic() - began:.2f} s to know, status included")
        check_gone(here, server, model, other, "there is no answer")
    finally:
        os.killpg(triton.pid, signal.SIGCONT)
    seconds_until(lambda: probe(here, server)[0] == 200)
    assert ask(here, f"/v2/models/{model}/infer", BODIES[model])[0] == 200


@EACH
def test_one_that_is_killed_is_told_and_refused_within_three_seconds_and_used_again(
    here: LocalEnvironment, server: str, model: str, other: str
) -> None:
    os.killpg(here.parts[server].pid, signal.SIGKILL)
    print(f"{server} is killed: {seconds_until(lambda: probe(here, server)[0] == 503):.2f} s to know")
    check_gone(here, server, model, other, "connections are refused")
    here.start_again(server)
    seconds_until(lambda: probe(here, server)[0] == 200)
    seconds_until(lambda: ask(here, f"/v2/models/{model}/infer", BODIES[model])[0] == 200, 30)


def check_gone(here: LocalEnvironment, server: str, model: str, other: str, why: str) -> None:
    """Check that all agree that a server is gone, and a call is refused at once; the other server is as ever."""
    began = time.monotonic()
    refused, headers = ask(here, f"/v2/models/{model}/infer", BODIES[model])
    assert (refused, time.monotonic() - began < TO_AGREE_SECONDS) == (503, True)
    assert 1 <= int(headers["retry-after"]) <= 30
    assert ask(here, f"/v2/models/{model}/ready")[0] == 503
    assert ask(here, "/v2/health/ready")[0] == 400
    assert why in probe(here, server)[1]
    assert why in (here.proxies[0].process.log).read_text()
    assert status(here) == {model: "unreachable", other: "resident"}
    assert ask(here, f"/v2/models/{other}/infer", BODIES[other])[0] == 200
