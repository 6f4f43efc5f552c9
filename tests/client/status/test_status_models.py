"""What `tidegate models` and `tidegate why` make of the answers of proxies; one that gives none hides no other."""

import json
from pathlib import Path

import pytest
from tidegate import Tidegate
from tidegate.cli.app import app
from tidegate.errors import NotFoundError
from tidegate_contracts import environments as facts
from tidegate_contracts import lease
from tidegate_contracts.whereabouts import Place, VersionFailure, VisibleModel, Whereabouts
from typer.testing import CliRunner

from lab.local_plane.process import HOST, free_ports
from tests.proxy.rigs.upstream import Caller, upstream

WHY = "unable to find backend library for backend 'onnxruntime'"
SINCE = "2026-03-01T10:00:00Z"
BROKEN = Place.model_validate({
    "replica": "10.0.0.1:8000", "state": "failed", "why": WHY, "since": SINCE,
    "failures": [VersionFailure.model_validate({"version": 2, "why": WHY, "since": SINCE})],
})  # fmt: skip
HELD = Place.model_validate({
    "replica": "10.0.0.2:8000", "state": "resident", "versions": [1], "waiters": 3, "evictable_in": 0.0,
    "leases": [lease.LeaseOf(holder="proxy-1", seconds_left=9, in_flight=2)],
})  # fmt: skip
COLD = Place.model_validate({"replica": "10.0.0.3:8000", "state": "cold"})
SHUNNED = Place.model_validate({"replica": "10.0.0.4:8000", "state": "quarantined", "why": "no memory"})
ABOUT = {"server": "gpu", "pool": "main", "loading": "preload"}
TOLD = Whereabouts.model_validate({
    "environment": "prod",
    "models": [
        VisibleModel.model_validate({"model": "churn", "state": "failed", "why": WHY, "places": [BROKEN]} | ABOUT),
        VisibleModel.model_validate({"model": "fraud", "state": "resident", "versions": [1], "places": [HELD]} | ABOUT),
        VisibleModel.model_validate({"model": "rare", "state": "cold", "places": [COLD, SHUNNED]} | ABOUT),
        VisibleModel.model_validate({"model": "lone", "state": "unreachable", "why": "no replica is there"} | ABOUT),
    ],
})  # fmt: skip
CONFIG = b'{"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [4]}], "output": [], "max_batch_size": 8}'


def answer(caller: Caller) -> None:
    path = caller.request.path.removeprefix("/models")
    models = [each for each in TOLD.models if path in ("", f"/{each.model}")]
    if caller.request.path == "/servers/gpu/v2/models/fraud/config":
        caller.answer(CONFIG)
    elif models:
        caller.answer(TOLD.model_copy(update={"models": tuple(models)}).model_dump_json(by_alias=True).encode())
    else:
        problem = {"type": "https://tidegate.dev/problems/unknown", "detail": "There is no such model."}
        caller.answer(json.dumps(problem | {"status": 404}).encode(), 404, "application/problem+json")


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DOMINO_INFERENCE_PROXY", "DOMINO_API_PROXY", "DOMINO_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIDEGATE_API_KEY", "tgk_1")
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
    return tmp_path / "environments.json"


def write(file: Path, *ports: int) -> None:
    planes = tuple(
        facts.Plane(name=f"plane-{number}", proxy_url=f"http://{HOST}:{port}", servers=())
        for number, port in enumerate(ports)
    )
    prod = facts.Environment(name="prod", planes=planes)
    file.write_text(facts.Environments(environments=(prod,)).model_dump_json(by_alias=True))


def test_models_are_listed_with_state_since_and_why_and_the_plane_that_is_down(known: Path) -> None:
    with upstream(answer) as here:
        write(known, here.port, *free_ports(1))
        said = CliRunner().invoke(app, ["models", "--json"])
        assert said.exit_code == 6
        churn, fraud, lone, _ = json.loads(said.stdout)
        assert (churn["state"], churn["why"], churn["plane"]) == ("failed", WHY, "plane-0")
        assert (fraud["inputs"], fraud["maxBatch"], fraud["versions"]) == (["X FP32[4]"], 8, [1])
        assert (lone["state"], lone["places"]) == ("unreachable", [])
        table = CliRunner().invoke(app, ["models"])
        assert f"churn (prod plane-0): {WHY}" in table.stdout
        assert "prod plane-1: " in table.stderr


def test_why_tells_each_place_with_what_failed_who_holds_it_and_who_waits(known: Path) -> None:
    with upstream(answer) as here:
        write(known, here.port)
        said = CliRunner().invoke(app, ["why", "fraud"])
        assert "proxy-1 (2 in flight)" in said.stdout
        assert "│ not while calls are in flight" in said.stdout
        said = CliRunner().invoke(app, ["why", "churn"])
        assert f"10.0.0.1:8000: version 2 failed (known since 2026-03-01 10:00:00 UTC): {WHY}" in said.stdout
        assert "gpu/main: no replica is there" in CliRunner().invoke(app, ["why", "lone"]).stdout
        said = CliRunner().invoke(app, ["why", "rare"])
        assert "10.0.0.3:8000: it is not in memory, and its next call loads it\n" in said.stdout
        assert "10.0.0.4:8000: it failed too often, and is not loaded until" in said.stdout
        assert "MODEL, in the pod's container eviction-policy): no memory\n" in said.stdout


def test_what_a_newer_proxy_says_besides_is_passed_over(known: Path) -> None:
    def newer(caller: Caller) -> None:
        said = TOLD.models[1].model_dump(mode="json", by_alias=True) | {"state": "thawing", "colour": "red"}
        said["places"][0] |= {"state": "thawing", "rack": 7}
        said["places"][0]["leases"][0] |= {"since": 1}
        caller.answer(json.dumps({"environment": "prod", "models": [said], "page": 1}).encode())

    with upstream(newer) as here:
        write(known, here.port)
        said = CliRunner().invoke(app, ["why", "fraud"])
    assert (said.exit_code, "thawing" in said.stdout, "proxy-1" in said.stdout) == (0, True, True)


def test_a_model_that_no_plane_has_is_none(known: Path) -> None:
    with upstream(answer) as here, Tidegate(environments=known) as tidegate:
        write(known, here.port)
        with pytest.raises(NotFoundError, match="there is no model 'nothing'"):
            tidegate.why("nothing")
        shown = [each.model for plane in tidegate.models() for each in plane.models]
        assert shown == ["churn", "fraud", "rare", "lone"]
