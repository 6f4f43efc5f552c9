"""`up --cluster` and `down --cluster` around the engine. tests/cluster has tests with real clusters."""

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from rollout import engines, preflight, tools
from rollout.engines import Bundle
from rollout.render import Rendered, render
from rollout.tools.programs import Program
from stacks.command import CommandError
from stacks.stack import Definition, Stack

from .conftest import Call, Edit, Patch


class Engine:
    """Replaces an engine: records its calls, and ends as configured. It removes nothing."""

    name = "stand-in"
    title = "Stand-in 1.0"

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.adopts: list[bool] = []
        self.rendered: list[str] = []
        self.ends: BaseException | None = None
        self.stands: tuple[str, ...] = ()

    def render(self, stacks: Sequence[Stack], definition: Definition) -> list[Rendered]:
        self.rendered += [stack.name for stack in stacks]
        return [render(stack, definition) for stack in stacks]

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        name = bundle.stack.name
        assert bundle.read_from is None
        assert bundle.rendered.stack == name
        assert wait
        self.calls.append((name, bundle.definition.name))
        if self.ends:
            raise self.ends
        return name not in self.stands

    def found(self, adopt: bool) -> "Engine":
        self.adopts.append(adopt)
        return self


@pytest.fixture
def up_in(call: Call, pinned: Path) -> Call:
    return partial(call, "up", pinned, "--cluster")


@pytest.fixture
def down(call: Call, pinned: Path) -> Call:
    return partial(call, "down", pinned)


@pytest.fixture
def engine(monkeypatch: Patch) -> Engine:
    """The fake engine, with clusters that do not exist and so lack nothing."""
    found = Engine()
    monkeypatch.setattr(engines, "FINDERS", {"other": lambda _: None, "stand-in": found.found})
    monkeypatch.setattr(preflight, "ensure_ready", lambda *_, **__: None)
    return found


@pytest.mark.parametrize(("cluster", "stack"), [("kind-lab", "dev-lab"), ("lab", "dev-lab"), ("east", "prod-east")])
def test_the_stacks_of_that_context_or_data_plane_are_brought_up(
    up_in: Call, engine: Engine, cluster: str, stack: str
) -> None:
    ended = up_in(cluster, code=0)

    assert engine.calls == [(stack, "two.yaml")]
    assert engine.rendered.count(stack) == 1, "once, for the guardrails and for the engine alike"
    assert "with Stand-in 1.0" in ended.err


@pytest.fixture
def both_in_lab(edit: Edit) -> None:
    edit("environments: [dev]}", "environments: [dev, prod]}")
    edit("  - {name: east, environments: [prod]}\n", "")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("kind-lob", 'has the context kind-lob. Did you mean "kind-lab"? There are: kind-lab, east.'),
        ("nope", "has the context nope. There are: kind-lab, east."),
        ("kind-lab --stack prod-east", "stack prod-east does not live in kind-lab, but in east"),
    ],
)
def test_an_unknown_cluster_or_stack_is_refused(up_in: Call, engine: Engine, where: str, message: str) -> None:
    ended = up_in(*where.split())
    assert (ended.code, engine.calls) == (2, [])
    assert message in ended.err


def test_only_local_environments_may_run_images_without_a_digest(
    call: Call, definition: Path, engine: Engine, edit: Edit
) -> None:
    edit("{name: dev}", "{name: dev, local: true}")
    assert call("up", definition, "--cluster", "kind-lab").code == 0
    ended = call("up", definition, "--cluster", "east", code=1)

    for part in ("registry.test/proxy:1 (prod-east)", "Someone can move a tag", f"tidegate pin {definition}"):
        assert part in ended.err
    assert [stack for stack, _ in engine.calls] == ["dev-lab"]


@pytest.mark.usefixtures("both_in_lab")
@pytest.mark.parametrize(
    ("stop", "code", "message"),
    [
        (None, 0, ""),
        (CommandError("it cannot."), 1, "stack dev-lab is not up: it cannot.\nNot tried: prod-lab.\n"),
        (KeyboardInterrupt(), 130, "stopped: stack dev-lab may be partly up. Run the same command again\n"),
    ],
)
def test_a_failed_or_stopped_stack_ends_the_run_with_a_report_of_each_stack(
    up_in: Call, engine: Engine, stop: BaseException | None, code: int, message: str
) -> None:
    engine.ends, engine.stands = stop, ("prod-lab",)
    ended = up_in("kind-lab", code=code)
    assert [name for name, _ in engine.calls] == ["dev-lab", *([] if stop else ["prod-lab"])]
    assert ended.err.endswith(message)
    assert ended.out == (
        "" if stop else "Nothing changed: prod-lab is as declared.\nUp in kind-lab: dev-lab, prod-lab.\n"
    )


def test_engine_and_adopt_are_those_of_the_command_line(up_in: Call, monkeypatch: Patch) -> None:
    first, second = Engine(), Engine()
    monkeypatch.setattr(engines, "FINDERS", {"pulumi": first.found, "helm": second.found})
    monkeypatch.setattr(preflight, "ensure_ready", lambda *_, **__: None)
    assert up_in("kind-lab").code == 0
    assert up_in("kind-lab", "--engine", "helm", "--adopt").code == 0
    assert (first.adopts, second.adopts) == ([False], [True])


def test_pulumi_is_the_first_choice_and_helm_the_second(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = engines.find_engine()
    assert found.name == "helm"
    assert found.title.startswith("Helm 4.")
    pulumi = tmp_path / "pulumi"
    pulumi.write_text("#!/bin/sh\necho v3.260.0\n", "utf-8")
    pulumi.chmod(0o755)
    assert engines.find_engine().name == "pulumi"
    assert engines.find_engine("helm").name == "helm"
    pulumi.unlink()
    with pytest.raises(CommandError, match="there is no `pulumi` on the PATH"):
        engines.find_engine("pulumi")


def test_a_missing_engine_is_reported_with_a_remedy_and_a_separate_exit_code(
    up_in: Call, pinned: Path, monkeypatch: Patch
) -> None:
    def none(program: Program) -> tools.Found:
        raise tools.ToolError(f"building {program.name} failed")

    monkeypatch.setattr(engines, "FINDERS", {**engines.FINDERS, "pulumi": lambda _: None})
    monkeypatch.setattr(tools, "find", none)
    ended = up_in("kind-lab", "--stack", "dev-lab", code=6)

    assert f"tidegate render {pinned} --stack dev-lab\n" in ended.err
    for part in ("building helm failed", "Install Pulumi", "kubectl --context kind-lab apply --server-side", "Helm"):
        assert part in ended.err


def test_a_mandatory_guardrail_stops_everything_before_an_engine_runs(up_in: Call, engine: Engine, edit: Edit) -> None:
    severities = "{access-rules-name-servers-or-models: mandatory}"
    edit("  - {name: dev}\n", f"  - {{name: dev, guardrails: {{severities: {severities}}}}}\n")
    ended = up_in("kind-lab")
    assert (ended.code, engine.calls) == (1, []), ended.err
    assert "mandatory" in ended.err
    assert "nothing was changed" in ended.err


def test_production_is_not_taken_down_without_its_name(down: Call, pinned: Path, engine: Engine, edit: Edit) -> None:
    edit("  - name: prod\n", "  - name: prod\n    production: true\n")
    ended = down("--cluster", "east", "--engine", "helm", code=2)
    assert engine.calls == []
    assert ended.err.endswith(f"tidegate down {pinned} --cluster east --engine helm --yes\n")


@pytest.mark.parametrize("command", ["up", "down", "rollout"])
def test_every_command_refuses_an_unknown_engine_with_the_same_message(call: Call, command: str) -> None:
    assert "'foo' is not one of 'pulumi', 'helm'" in call(command, "--engine", "foo", code=2).err


@pytest.mark.parametrize("command", ["down", "preflight"])
def test_without_a_cluster_the_error_lists_the_contexts(call: Call, definition: Path, command: str) -> None:
    assert call(command, definition, code=2).err == ("Add a cluster: --cluster <context>, one of kind-lab, east.\n")


def test_clean_keeps_the_journals_of_rollouts(tmp_path: Path) -> None:
    """--resume and --back need them. Everything else can be made again."""
    shutil.copy(Path(__file__).resolve().parents[2] / "Makefile", tmp_path)
    journal = "build/rollout/prod/0001/rollout.json"
    for name in (journal, "build/rendered/dev-lab/a.yaml", ".venv/x", "a/__pycache__/b"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x", "utf-8")
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, timeout=60)
    left = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == ["Makefile", journal]
