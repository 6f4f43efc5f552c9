import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tidegate import Tidegate
from tidegate.cli.app import app
from tidegate.errors import ExitCode, NotFoundError, UsageError
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH
from tidegate_proxy.problems import CONTENT_TYPE, Problem, ProblemType
from typer.testing import CliRunner, Result

from tests.proxy.http.upstream import Received, response

from . import proxies

SINCE = "2026-03-01T10:20:30Z"
HELD = {
    "replica": "10.0.0.1:8000", "state": "resident", "since": SINCE, "versions": [3], "idleSeconds": 2.0,
    "evictableIn": 28.4, "leases": [{"holder": "proxy-a.1", "secondsLeft": 9.0, "inFlight": 4}],
}  # fmt: skip
WAITING = {
    "replica": "10.0.0.3:8000", "state": "queued", "why": "there is no room", "waiters": 2, "evictableIn": 0.0,
}  # fmt: skip
COLD = {"replica": "10.0.0.4:8000", "state": "cold"}
SHUNNED = {"replica": "10.0.0.5:8000", "state": "quarantined", "why": "no memory"}
BROKEN = {
    "replica": "10.0.0.2:8000", "state": "resident",
    "failures": [{"version": 4, "why": "no backend library", "since": SINCE}],
}  # fmt: skip
UNKNOWN = Problem(ProblemType.UNKNOWN, "There is no model 'fraud', or it is not for you to see.")


def reply(answer: Any, received: Received) -> bytes:
    message = answer if received.path.startswith(f"{WHEREABOUTS_PATH}/") else UNKNOWN
    if isinstance(message, Problem):
        return response(message.body("r-1"), message.type.status, CONTENT_TYPE)
    about = {"model": received.path.rpartition("/")[2], "server": "gpu", "pool": "small", "loading": "on-demand"}
    models = [about | {"state": "resident", "why": "no replica is there", "places": message}]
    return response(json.dumps({"environment": "prod", "models": models, "page": 1}).encode())


planes = partial(proxies.planes, reply)  # their proxies have this of any model: places, a problem


def why(*words: str) -> Result:
    return CliRunner().invoke(app, ["why", *words], env={"COLUMNS": "200"})


def test_why_shows_a_models_replicas_holders_waits_and_failures(tmp_path: Path) -> None:
    with planes(tmp_path, east=[HELD, BROKEN], west=[WAITING, COLD, SHUNNED]):
        message = why("fraud")
        assert message.exit_code == 0, message.output
        for text in ("prod on east", "prod on west", "gpu/small", "10.0.0.1:8000", "resident", "2026-03-01 10:20:30"):
            assert text in message.stdout
        assert "proxy-a.1 (4 in flight)" in message.stdout
        assert "not while calls are in flight" in message.stdout
        assert "10.0.0.1:8000: it is loaded and answers calls\n" in message.stdout
        assert "10.0.0.3:8000: it is requested, but not in memory yet: there is no room" in message.stdout
        assert "10.0.0.2:8000: version 4 failed (known since 2026-03-01 10:20:30" in message.stdout
        assert "no backend library" in message.stdout
        assert "10.0.0.4:8000: it is not in memory, and the next call loads it\n" in message.stdout
        assert "10.0.0.5:8000: it failed too often: it is loaded again after it changes" in message.stdout
        found = json.loads(why("fraud", "--json").stdout)
        assert [(each["plane"], len(each["models"][0]["places"])) for each in found] == [("east", 2), ("west", 3)]
        assert found[0]["models"][0]["places"][1]["failures"][0]["version"] == 4


def test_a_model_without_a_replica_and_fields_of_a_newer_proxy_are_accepted(tmp_path: Path) -> None:
    lease = HELD["leases"][0] | {"since": 1}  # type: ignore[index]
    newer = HELD | {"state": "thawing", "rack": 7, "leases": [lease]}
    with planes(tmp_path, east=[], west=[newer]):
        message = why("fraud")
    assert "gpu/small: no replica is there" in message.stdout
    assert (message.exit_code, "thawing" in message.stdout, "proxy-a.1" in message.stdout) == (0, True, True)


def test_a_model_on_no_plane_is_reported_once_with_a_remedy(tmp_path: Path) -> None:
    with planes(tmp_path, east=UNKNOWN, west=UNKNOWN):
        message = why("fraud")
        assert message.exit_code == ExitCode.NOT_FOUND.value, message.output
        assert message.output.count("there is no model 'fraud'") == 1
        assert "tidegate status" in message.output
        assert "Traceback" not in message.output
        with Tidegate() as tidegate, pytest.raises(NotFoundError):
            tidegate.why("fraud")


def test_a_plane_with_the_version_counts_if_another_lacks_it(tmp_path: Path) -> None:
    with planes(tmp_path, east=UNKNOWN, west=[HELD]):
        message = why("fraud", "--json")
        assert (message.exit_code, [each["plane"] for each in json.loads(message.stdout)]) == (0, ["west"])


@pytest.mark.parametrize("name", ["../secret", "a//b", "a/../b", "", ".hidden", "x" * 256, "a b"])
def test_an_invalid_name_is_refused_before_any_request(tmp_path: Path, name: str) -> None:
    with planes(tmp_path, east=None, west=None):
        message = why(name)
        assert message.exit_code == ExitCode.USAGE.value, message.output
        assert message.output.count("is not a valid name of a model") == 1
        with Tidegate() as tidegate, pytest.raises(UsageError):
            tidegate.why(name)


def test_an_invalid_response_is_reported(tmp_path: Path) -> None:
    with planes(tmp_path, east=[{"server": 1}]):
        message = why("fraud")
        assert message.exit_code not in (0, 1), message.output
        assert "prod on east: " in message.stderr
        assert "Traceback" not in message.output
