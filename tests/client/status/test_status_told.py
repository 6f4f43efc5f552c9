"""What is told of a model that is not deployed, and of counts that do not belong together."""

import json
from pathlib import Path
from typing import Any

import pytest
from tidegate import Tidegate
from tidegate.cli.calls import _cells, models, status
from tidegate.status.collect import _version
from tidegate_contracts.environments import Environment, Environments, ModelFacts
from tidegate_proxy.problems import CONTENT_TYPE, Kind, Problem
from typer import Typer
from typer.testing import CliRunner

from tests.proxy.rigs.upstream import Caller, upstream

from .test_status_proxies import plane

WHO = {"environment": "dev", "principal": "me", "source": "api-keys"}


def proxy(caller: Caller) -> None:
    """Answer as a proxy whose Triton has one of three models; one of the others has an alias that nobody set."""
    path = caller.request.path
    if path == "/whoami":
        caller.answer(json.dumps(WHO).encode())
    elif path.endswith("/models/stats"):
        caller.answer(b'{"model_stats": [{"name": "there", "version": "1", "inference_stats": {}}]}')
    elif "/there" in path:
        caller.answer(b"{}")
    elif "/aliased" in path:
        problem = Problem(Kind.BUSY, "which version the alias stands for is not known", retry_after=1.0)
        caller.answer(problem.body("r"), problem.kind.status, CONTENT_TYPE)
    else:
        caller.answer(b'{"error": "unknown model"}', 400)


def test_what_nobody_has_deployed_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with upstream(proxy) as here:
        facts = (
            ModelFacts(name="there", server="gpu", pool="main"),
            ModelFacts(name="plain", server="gpu", pool="main"),
            ModelFacts(name="aliased", server="gpu", pool="main", alias="champion"),
        )
        only = plane("lab", 1).model_copy(update={"models": facts, "proxy_url": f"http://{here.http}"})
        known = Environments(environments=(Environment(name="dev", planes=(only,)),))
        (tmp_path / "environments.json").write_text(known.model_dump_json(by_alias=True))
        monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
        monkeypatch.setenv("TIDEGATE_API_KEY", "key")
        app = Typer()
        for command in (models, status):
            app.command()(command)
        said = CliRunner().invoke(app, ["status", "--watch", "0"])
        assert (said.exit_code, said.stdout.count("not deployed")) == (0, 2), said.output
        assert "busy" not in said.output
        assert said.stderr.count("nobody has deployed it here") == 2
        table = CliRunner().invoke(app, ["models"]).stdout
        assert (table.count("not deployed"), table.count("not in memory")) == (2, 0)
        found = json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)
        assert {each["model"]: each["state"] for each in found} == {
            "there": "ready", "plain": "absent", "aliased": "absent",
        }  # fmt: skip
        monkeypatch.delenv("TIDEGATE_ENVIRONMENTS")
        with Tidegate(environments=tmp_path / "environments.json") as tidegate:
            [dev] = tidegate.status("plain", environment="dev")
        assert [each.state for each in dev.models] == ["absent"]


def counted(requests: int) -> dict[str, Any]:
    return {"inference_stats": {"success": {"count": requests, "ns": requests * 1000}}}


def test_a_rate_is_what_was_counted_meanwhile() -> None:
    assert _version("1", True, counted(10), counted(30), 2.0).per_second == 10


@pytest.mark.parametrize("before", [None, counted(1000)])
def test_counts_of_another_replica_or_load_are_no_rate(before: dict[str, Any] | None) -> None:
    found = _version("1", True, before, counted(30), 2.0)
    assert (found.requests, found.per_second, found.busy) == (30, None, None)
    assert _cells(found, watched=True)[3:5] == ("", "")
