import re
from pathlib import Path
from typing import Any

import pytest

from rollout.live import Live
from rollout.render import Rendered
from rollout.waves.journal import Journal
from rollout.waves.worker import Task, TooLong
from stacks.command import CommandError

from .conftest import Call, Edit, Patch

THREE = """\
dataPlanes:
  - {name: lab, environments: [dev]}
  - {name: east, environments: [prod], wave: 1}
  - {name: west, environments: [prod], wave: 2}
  - {name: north, environments: [prod], wave: 2}
"""


class Doubles:
    """Replace a worker's engine and the gate. Keep the replicas of `small` that each plane got."""

    def __init__(self) -> None:
        self.fails: set[str] = set()
        self.sick: set[str] = set()
        self.order: list[str] = []
        self.stands: dict[str, str] = {}
        self.engines: set[str] = set()

    def bring_up(self, task: Task, log: Path, lock: int, seconds: float, *_: object) -> None:
        assert lock >= 0
        assert seconds == 3600
        self.order.append(task.plane)
        self.engines.add(task.engine)
        if task.plane in self.fails:
            raise CommandError("exceeded quota: gpus")
        found = re.search(r"mode: on-demand}, replicas: (\d)", Path(task.read_from).read_text("utf-8"))
        assert found
        self.stands[task.plane] = found[1]
        log.write_text("Release has been upgraded.\n", "utf-8")

    def await_health(self, look: Any, *_: object) -> None:
        if look.kubectl.context in self.sick:
            raise CommandError("not passed within 900 s")


@pytest.fixture
def doubles(monkeypatch: Patch) -> Doubles:
    made = Doubles()
    monkeypatch.setattr("rollout.waves.command.worker.bring_up", made.bring_up)
    monkeypatch.setattr("rollout.waves.command.await_health", made.await_health)
    return made


@pytest.fixture
def planes(definition: Path) -> Path:
    """A definition with three data planes of prod, where images may lack digests."""
    text = definition.read_text("utf-8").split("dataPlanes:\n")[0]
    definition.write_text(text.replace("- name: prod\n", "- name: prod\n    local: true\n") + THREE, "utf-8")
    return definition


@pytest.fixture
def roll(call: Call, planes: Path, doubles: Doubles, tmp_path: Path) -> Call:  # noqa: ARG001

    def run(*arguments: object, code: int | None = None) -> Any:
        where = ("--journals", tmp_path / "rollout")
        return call("rollout", planes, "--environment", "prod", "--engine", "helm", *where, *arguments, code=code)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rollout" / "prod"


def replicas(edit: Edit, old: int, new: int) -> None:
    edit(f"mode: on-demand}}, replicas: {old}", f"mode: on-demand}}, replicas: {new}")


def row(text: str, plane: str) -> str:
    return next(line for line in text.splitlines() if re.match(rf"[│┃|] {plane} ", line))


# ---- forward ----


def test_every_plane_is_applied_and_the_report_lists_it(roll: Call, doubles: Doubles, folder: Path) -> None:
    ended = roll(code=0)
    assert doubles.order[0] == "east"
    assert set(doubles.order[1:]) == {"west", "north"}
    assert doubles.engines == {"helm"}
    assert "1. canary\n     east (context east)\n     then the health gate: workloads available" in ended.out
    assert "succeeded: 3 of 3 planes passed.\n" in ended.out
    assert Journal(folder / "0001").record.outcome == "succeeded"


def test_a_failure_stops_a_rollout_with_the_state_of_each_plane_and_the_next_command(
    roll: Call, doubles: Doubles, planes: Path
) -> None:
    doubles.fails.add("west")
    ended = roll(code=1)
    assert "FAILED" in row(ended.out, "west")
    assert "applying it: exceeded quota" in ended.out
    assert "Rollout 1 of prod failed: 2 of 3 planes passed." in ended.err
    assert f"  tidegate rollout {planes} --environment prod --resume " in ended.err


def test_an_engine_timeout_is_a_failure_with_the_planes_missing_objects(
    roll: Call, doubles: Doubles, monkeypatch: Patch
) -> None:
    def hang(*_: object) -> None:
        raise TooLong("it was interrupted because it did not end within 3600 s")

    monkeypatch.setattr("rollout.waves.command.worker.bring_up", hang)
    monkeypatch.setattr("rollout.health.lacking", lambda *_: ["StatefulSet small-main: 0 of 1 pods"])
    monkeypatch.setattr("rollout.health.warnings", lambda *_: {"StatefulSet small-main: exceeded quota": "now"})
    ended = roll(code=1)
    assert doubles.order == []
    for part in ("it was interrupted", "small-main: 0 of 1 pods", "small-main: exceeded quota"):
        assert part in ended.out


def test_a_canary_that_is_not_well_keeps_every_other_plane_untouched(roll: Call, doubles: Doubles) -> None:
    doubles.sick.add("east")
    ended = roll()
    assert (ended.code, doubles.order) == (1, ["east"])
    assert "not started" in row(ended.out, "west")
    assert "health gate: not passed within 900 s" in ended.out


def test_a_dry_run_without_reachable_planes_shows_the_plan_and_ends_as_the_rollout_would(
    roll: Call, doubles: Doubles, folder: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    ended = roll("--dry-run", code=1)
    assert "2. wave 2\n     west (context west)\n     north (context north)\n" in ended.out
    assert "The rollout would fail:\n  east: there is no context east in the kubeconfig." in ended.err
    assert ended.err.endswith("This was a dry run: nothing was changed.\n")
    assert doubles.order == []
    assert not folder.exists()


POOL = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "small-main", "namespace": "n"}}


@pytest.mark.parametrize(
    ("live", "refuses", "message"),
    [
        (Live([], []), "", ""),
        (Live([], [], refused=("services x was refused by the quota tight",)), "", "the quota tight"),
        (Live([], []), "The namespace n is there already", "west: The namespace n is there already"),
        (Live([{**POOL, "spec": {"serviceName": "a"}}], [{**POOL, "spec": {"serviceName": "b"}}]), "",
         "west: StatefulSet small-main cannot be changed in place (spec.serviceName)"),
    ],
    ids=["nothing", "the API server", "the engine", "immutable"],
)  # fmt: skip
def test_a_dry_run_of_a_refused_rollout_has_its_exit_code_and_reason(
    roll: Call, doubles: Doubles, monkeypatch: Patch, live: Live, refuses: str, message: str
) -> None:
    def check(_: object, __: object, rendered: Rendered) -> None:
        if refuses and rendered.stack == "prod-west":
            raise CommandError(refuses)

    monkeypatch.setattr("rollout.waves.command.live_objects", lambda _, rendering: {rendering[0].stack: live})
    monkeypatch.setattr("rollout.waves.command.lacks", lambda _, wanted: {stack.name: [] for stack, _ in wanted})
    monkeypatch.setattr("rollout.engines.helm.Helm.check", check)
    ended = roll("--dry-run")
    assert ended.code == bool(message)
    assert "1. canary\n" in ended.out
    assert message or "west: nothing would change." in ended.out
    assert message in ended.err
    assert ended.err.endswith("This was a dry run: nothing was changed.\n")
    assert doubles.order == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--resume", "--back"), "Remove --resume or --back"),
        (("--environment", "prd"), 'There is no environment prd. Did you mean "prod"?'),
        (("--environment", ""), "Add an environment: --environment <name>, one of dev, prod."),
        (("--environment", "../prod"), "There is no environment ../prod"),
    ],
)
def test_contradictory_options_are_refused_with_exit_code_two(
    roll: Call, doubles: Doubles, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in roll(*arguments, code=2).err
    assert doubles.order == []
    assert not list(tmp_path.glob("rollout/*/0001"))
    assert not (tmp_path / "rollout" / "prd").exists(), "a slip of the pen leaves no folder"


def test_images_without_a_digest_keep_a_rollout_from_beginning(
    roll: Call, doubles: Doubles, edit: Edit, folder: Path
) -> None:
    edit("- name: prod\n    local: true\n", "- name: prod\n")
    assert "images.lock has no digest" in roll(code=1).err
    assert doubles.order == []
    assert not (folder / "0001").exists()


# ---- resume ----


def test_resume_goes_on_with_its_texts_even_if_the_files_were_edited(roll: Call, doubles: Doubles, edit: Edit) -> None:
    doubles.fails.add("west")
    roll()
    doubles.fails.clear()
    replicas(edit, 1, 2)
    assert "was edited since, but this rollout uses the earlier texts" in roll("--resume", code=0).err
    assert doubles.stands == {"east": "1", "west": "1", "north": "1"}
    assert roll().code == 0
    assert doubles.stands == {"east": "2", "west": "2", "north": "2"}


def test_resume_needs_a_rollout_that_was_not_finished_and_keeps_its_engine(roll: Call, doubles: Doubles) -> None:
    assert "no rollout of prod" in roll("--resume", code=1).err
    doubles.fails.add("east")
    roll(code=1)
    assert "started with helm" in roll("--resume", "--engine", "pulumi", code=2).err
    doubles.fails.clear()
    roll("--resume", code=0)
    assert "rollout 1 of prod succeeded" in roll("--resume", code=1).err


def test_rollouts_of_another_definition_are_not_mixed_in(
    roll: Call, call: Call, planes: Path, tmp_path: Path, doubles: Doubles
) -> None:
    assert roll().code == 0
    other = planes.with_name("other.yaml")
    other.write_bytes(planes.read_bytes())
    doubles.order.clear()
    ended = call(
        "rollout", other, "--environment", "prod", "--engine", "helm", "--journals", tmp_path / "rollout", code=1
    )
    assert f"contains the rollouts of {planes}, not of {other}" in ended.err
    assert doubles.order == []


# ---- roll back ----


@pytest.fixture
def twice(roll: Call, doubles: Doubles, edit: Edit) -> Call:
    """Roll out, and again with two replicas. The second rollout ends as configured."""

    def run(fails: str = "", sick: str = "") -> Any:
        assert roll().code == 0
        replicas(edit, 1, 2)
        doubles.fails, doubles.sick = {fails}, {sick}
        ended = roll()
        doubles.fails, doubles.sick = set(), set()
        doubles.order.clear()
        return ended

    return run


@pytest.mark.parametrize(
    ("fails", "sick", "touched"), [("", "", "west north east"), ("north", "", "west north east"), ("", "east", "east")]
)
def test_back_returns_every_changed_plane_to_its_last_good_state_and_only_once(
    roll: Call, twice: Call, doubles: Doubles, fails: str, sick: str, touched: str
) -> None:
    assert twice(fails, sick).code == (1 if fails or sick else 0)
    ended = roll("--back", code=0)
    assert doubles.stands == {"east": "1", "west": "1", "north": "1"}
    assert sorted(doubles.order) == sorted(touched.split())
    assert doubles.order[-1] == "east", "the latest planes go back first"
    assert "east (context east, back to rollout 1)" in ended.out
    count = len(touched.split())
    assert f"Rollout 3 of prod, which rolls back rollout 2, succeeded: {count} of {count} planes passed." in ended.out
    assert (
        "There is nothing to roll back: rollout 3 of prod has already rolled back rollout 2."
        in roll("--back", code=1).err
    )


def test_guardrails_stop_a_rollout_but_never_its_reversal(
    roll: Call, twice: Call, doubles: Doubles, monkeypatch: Patch
) -> None:
    twice("north")

    def enforce(*_: object, **__: object) -> None:
        raise CommandError("a waiver has run out meanwhile")

    monkeypatch.setattr("rollout.waves.prepare.enforce", enforce)
    assert "a waiver has run out meanwhile" in roll("--resume", code=1).err
    assert not doubles.order
    assert roll("--back").code == 0


def test_planes_without_an_earlier_success_stay_and_the_report_lists_them(
    roll: Call, doubles: Doubles, edit: Edit
) -> None:
    doubles.fails.add("east")
    roll(code=1)
    assert "no earlier rollout" in roll("--back", code=1).err
    doubles.fails.clear()
    new = "  - {name: north, environments: [prod], wave: 2}\n"
    edit(new, "")
    roll(code=0)
    edit("wave: 2}\n", f"wave: 2}}\n{new}")
    replicas(edit, 1, 2)
    roll(code=0)
    assert "no earlier rollout of it" in roll("--back", code=0).out
    assert doubles.stands == {"east": "1", "west": "1", "north": "2"}


def test_a_plane_that_cannot_be_brought_back_keeps_no_other_from_it_and_can_be_tried_again(
    roll: Call, twice: Call, doubles: Doubles, edit: Edit
) -> None:
    """Even if the definition is broken."""
    assert twice().code == 0
    edit("kind: nfs", "kind: nsf")
    doubles.fails.add("west")
    assert roll("--back").code == 1
    assert doubles.stands == {"east": "1", "west": "2", "north": "1"}
    doubles.fails.clear()
    doubles.order.clear()
    assert roll("--back").code == 0
    assert doubles.order == ["west"]
    assert set(doubles.stands.values()) == {"1"}
