import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console, Group
from tidegate.cli.app import app
from tidegate.cli.calls import end
from tidegate.cli.top import _shown, _that_fit
from tidegate.status import PlaneOverview
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH
from typer.testing import CliRunner

from tests.proxy.http.upstream import Received, response

from . import proxies

WIDE = 160
HELD = "; ".join(("3.0 MiB 2 (4 in flight) 5 min ago 2 waiting", "refused as busy in five minutes: 7"))
ROOM = {
    "server": "gpu", "pool": "small", "replica": "10.0.0.1:8000", "policy": "break-even", "pod": "gpu-small-0",
    "capacityBytes": 1600,
    "residentBytes": 1000, "loadingBytes": 200, "freeingBytes": 0, "leakedBytes": 160, "freeBytes": 240,
}  # fmt: skip


def model(name: str, state: str = "resident", **place: Any) -> dict[str, Any]:
    at = {"replica": "10.0.0.1:8000", "state": state} | place
    return {
        "model": name, "server": "gpu", "pool": "small", "loading": "on-demand", "state": state, "places": [at],
        "why": place.get("why", ""), "since": place.get("since"),
    }  # fmt: skip


def test_a_slice_is_a_bar_in_which_each_model_is_as_wide_as_its_share() -> None:
    models = model("ant", footprintBytes=600), model("bee", "loading", footprintBytes=200), model("cold", "cold")
    lines = lines_of([overview("east", *models)])
    assert lines[0] == "prod on east   1 resident, 1 loading, 1 cold"
    assert lines[1] == "gpu/small  gpu-small-0 (10.0.0.1:8000)  1.3 KiB of 1.6 KiB, 160 B leaked  break-even"
    bar = lines[2]
    assert len(bar) == WIDE
    where = [bar.index(each) for each in (" ant ", " bee ", " others ", " leaked ")]
    assert where == [0, 60, 80, 120]
    assert bar.count("·") == 24


def test_the_worst_problem_is_named_first_and_its_models_come_first() -> None:
    held = [{"holder": f"proxy-{calls}", "secondsLeft": 9.0, "inFlight": calls} for calls in (1, 3)]
    models = [
        model("cold", "cold"),
        model("broken", "quarantined", why="no such \x1b[31mlibrary"),
        model("held", leases=held, idleSeconds=300.0, waiters=2, busy=7, footprintBytes=3 << 20),
        model("ant"),
        model("failed", "cold", failures=[{"why": "no CUDA", "since": "2026-05-01T10:00:00Z"}]),
        *(model(f"cold-{number}", "cold") for number in range(11)),
    ]
    lines = lines_of([overview("east", *models, slices=[])])
    problems = "1 failed to load: broken", "1 refused as busy: held", "1 had a failed load: failed"
    assert lines[0] == "   ".join(("prod on east", *problems, "1 resident, 12 cold"))
    rows = [line.split() for line in lines[2:6]]
    assert [row[0] for row in rows] == ["broken", "held", "failed", "ant"]
    assert rows[0][2:] == ["quarantined", "no", "such", "�[31mlibrary"]
    assert rows[1] == ["held", "gpu/small", "resident", *HELD.split(" ")]
    assert rows[2][2:] == ["cold", "no", "CUDA"]
    assert "and 1 more: run `tidegate status`" in lines


def test_an_unreachable_plane_is_reported_and_hides_no_other(tmp_path: Path) -> None:
    def reply(_: object, received: Received) -> bytes:
        assert received.path == WHEREABOUTS_PATH
        return response(json.dumps({"environment": "prod", "models": [model("ant")]}).encode())

    with proxies.planes(reply, tmp_path, east=True, west=None):
        done = CliRunner().invoke(app, ["top"])
        message = json.loads(CliRunner().invoke(app, ["top", "--json"]).stdout)
    assert done.exit_code == 6
    assert "prod on west   unreachable" in done.stdout
    assert any(line.startswith("ant ") for line in done.stdout.splitlines())
    assert "prod on west: http://" in done.stderr
    assert "http://" not in done.stdout
    assert [(each["plane"], len(each["models"]), bool(each["error"])) for each in message] == [
        ("east", 1, False),
        ("west", 0, True),
    ]


def test_a_proxy_that_refuses_the_credential_is_not_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    error = "http://y/models: no credential was found"
    refused = PlaneOverview(environment="", plane="", proxy="http://y", error=error, exit_code=3)
    assert lines_of([refused])[0] == "http://y   refused"
    with pytest.raises(typer.Exit):
        end([refused], json=False)
    assert capsys.readouterr().err.count("http://y") == 1


def test_a_replica_with_unknown_contents_is_shown() -> None:
    silent = model("ant", "unseen", why="the policy is silent")
    assert "gpu/small  10.0.0.1:8000  the policy is silent" in lines_of([overview("east", silent)])


def test_parts_that_ensembles_share_do_not_push_the_rest_out_of_the_bar() -> None:
    bar = lines_of([overview("east", model("ant", footprintBytes=1100), model("bee", footprintBytes=1100))])[2]
    assert (bar.index(" ant "), bar.index(" leaked "), bar.count("·")) == (60, 120, 24)


FULL = "the memory is full: all resident models are in use, or were used too recently (whale, moose)"
LEASES = [{"holder": "proxy-1", "secondsLeft": 9.0, "inFlight": 3}]
WORDS: dict[str, Any] = {
    "leases": LEASES,
    "idleSeconds": 300.0,
    "footprintBytes": 144 << 20,
    "since": "2026-05-01T10:00:00Z",
}


def overview(plane: str, *models: dict[str, Any], **more: Any) -> PlaneOverview:
    message = {"environment": "prod", "plane": plane, "proxy": "x", "models": models, "slices": [ROOM]}
    return PlaneOverview.model_validate(message | more)


def lines_of(planes: list[PlaneOverview], width: int = WIDE, rows: int = 15, *, live: bool = False) -> list[str]:
    to = Console(file=io.StringIO(), width=width, height=40, force_terminal=True, color_system=None)
    to.print(Group(*_shown(planes, width, rows, live=live)))
    return [line.rstrip() for line in to.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("height", [24, 40])
def test_every_environment_and_the_legend_fit_into_the_terminal(height: int) -> None:
    models = [model(f"m-{number}", why=FULL, **WORDS) for number in range(30)]
    away = overview("away", slices=[], error="no answer in 3 s\n  do: wait")
    planes = [away, overview("east", *models), overview("west", *models)]
    lines = lines_of(planes, 80, _that_fit(planes, 80, height), live=True)
    assert height - 3 < len(lines) < height, "the clock is a line, too"
    assert [line.split()[2] for line in lines if line.startswith("prod on ")] == ["away", "east", "west"]
    assert sum(line.startswith("and ") for line in lines) == 2
    assert any(line.startswith("█ ▓ ▒") for line in lines)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 220])
def test_a_model_its_state_and_its_age_are_complete_at_every_width(width: int, live: bool) -> None:
    unicorn = model("unicorn", "quarantined", why=FULL, busy=79, **WORDS)
    lines = lines_of([overview("east", unicorn, model("ant", **WORDS))], width, 15, live=live)
    assert max(map(len, lines)) <= width
    assert any(line.startswith("█ ▓ ▒ separate models") for line in lines)
    [head] = [line for line in lines if line.startswith("MODEL")]
    [row] = [line for line in lines if line.startswith("unicorn ")]
    assert re.match(r"unicorn .*\bquarantined +\d+ d\b", row)
    assert head.split()[-1] == "WHY"
    assert width - head.index("WHY") >= 30
    assert row[head.index("WHY") :].startswith("the memory is full: ")
    assert ("SERVER" in head, "LAST USE" in head) == (width >= 80, width >= 120)


def test_unreachable_environments_come_first_and_pools_without_slices_have_a_line() -> None:
    preloaded = [model(name, state) | {"loading": "preload"} for name, state in (("a", "resident"), ("b", "failed"))]
    fine = PlaneOverview.model_validate({"environment": "fine", "plane": "e", "proxy": "x", "models": preloaded})
    away = PlaneOverview(environment="away", plane="e", proxy="y", error="no answer")
    lines = [str(each) for each in _shown([fine, away], WIDE, 9, live=True)]
    assert [line.split()[0] for line in lines if " on e " in line] == ["away", "fine"]
    assert "gpu/small  preload  1 failed, 1 resident" in lines
