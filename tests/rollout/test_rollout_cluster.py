"""`up --cluster`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout import engines
from stacks.stack import Stack

Call = Callable[..., Any]
Edit = Callable[[str, str], None]
LOCK = "".join(
    f"  - image: registry.test/{name}:1\n    digest: sha256:{'0' * 64}\n"
    for name in ("eviction-policy", "proxy", "triton")
)


class Engine:
    """Stands for an engine: notes what it is asked, and fails for the stacks it is told to."""

    title = "Stand-in 1.0"

    def __init__(self, fails: tuple[str, ...] = (), stopped: bool = False) -> None:
        self.asked: list[tuple[str, str]] = []
        self.fails = fails
        self.stopped = stopped

    def up(self, stack: Stack, definition: Path) -> int:
        self.asked.append((stack.name, definition.name))
        if self.stopped:
            raise KeyboardInterrupt
        return 7 if stack.name in self.fails else 0


@pytest.fixture
def pinned(definition: Path) -> Path:
    """The definition, with a digest for every image."""
    (definition.parent / "images.lock").write_text(f"images:\n{LOCK}", "utf-8")
    return definition


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine that is there."""
    found = Engine()
    monkeypatch.setattr(engines, "FINDERS", [lambda: None, lambda: found])
    return found


@pytest.mark.parametrize(("cluster", "stack"), [("kind-lab", "dev-lab"), ("lab", "dev-lab"), ("east", "prod-east")])
def test_the_stacks_of_that_context_or_data_plane_are_brought_up(
    call: Call, pinned: Path, engine: Engine, cluster: str, stack: str
) -> None:
    ended = call("up", pinned, "--cluster", cluster)
    assert ended.code == 0, ended.err
    assert engine.asked == [(stack, "two.yaml")]
    assert "with Stand-in 1.0" in ended.err


def test_an_unknown_cluster_lists_those_that_there_are(call: Call, pinned: Path, engine: Engine) -> None:
    ended = call("up", pinned, "--cluster", "kind-lob")
    assert ended.code == 2
    assert ended.err == (
        f"No data plane of {pinned} has the context kind-lob: did you mean kind-lab? There are: kind-lab, east.\n"
    )
    assert "context nope. There are: kind-lab, east.\n" in call("up", pinned, "--cluster", "nope").err
    assert engine.asked == []


def test_a_stack_of_another_cluster_is_refused(call: Call, pinned: Path, engine: Engine) -> None:
    ended = call("up", pinned, "--cluster", "kind-lab", "--stack", "prod-east")
    assert ended.code == 2
    assert "stack prod-east does not live in kind-lab, but in east" in ended.err
    assert engine.asked == []


def test_images_without_a_digest_are_refused(call: Call, definition: Path, engine: Engine) -> None:
    ended = call("up", definition, "--cluster", "kind-lab")
    assert ended.code == 1
    for part in ("registry.test/proxy:1 (dev-lab)", "A tag can be moved", f"make pin DEFINITION={definition}"):
        assert part in ended.err
    assert engine.asked == []


def test_local_environments_may_run_images_without_a_digest(
    call: Call, definition: Path, engine: Engine, edit: Edit
) -> None:
    edit("{name: dev}", "{name: dev, local: true}")
    assert call("up", definition, "--cluster", "kind-lab").code == 0
    assert call("up", definition, "--cluster", "east").code == 1
    assert [stack for stack, _ in engine.asked] == ["dev-lab"]


def test_a_stack_that_fails_stops_the_run_and_says_what_was_not_tried(
    call: Call, pinned: Path, monkeypatch: pytest.MonkeyPatch, edit: Edit
) -> None:
    edit("environments: [dev]}", "environments: [dev, prod]}")
    edit("  - {name: east, environments: [prod]}\n", "")
    failing = Engine(fails=("dev-lab",))
    monkeypatch.setattr(engines, "FINDERS", [lambda: failing])
    ended = call("up", pinned, "--cluster", "kind-lab")
    assert ended.code == 1
    assert "stack dev-lab is not up: Stand-in 1.0 ended with exit code 7" in ended.err
    assert "Not tried: prod-lab." in ended.err


def test_ctrl_c_says_which_stack_may_be_half_up(call: Call, pinned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "FINDERS", [lambda: Engine(stopped=True)])
    ended = call("up", pinned, "--cluster", "kind-lab")
    assert ended.code == 130
    assert ended.err.endswith("stopped; stack dev-lab may be partly up; run the same command again\n")


def test_without_an_engine_it_says_how_to_get_one_and_the_exit_code_is_three(
    call: Call, pinned: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = call("up", pinned, "--cluster", "kind-lab", "--stack", "dev-lab")
    assert ended.code == 3
    assert ended.err.endswith("Helm can do it too, as soon as there is a chart.\n")
    assert f"make up DEFINITION={pinned} STACK=dev-lab\n" in ended.err
    for part in ("install Pulumi", "kubectl --context kind-lab apply --server-side", "Helm"):
        assert part in ended.err
