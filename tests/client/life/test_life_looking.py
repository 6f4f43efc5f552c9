"""Verifying, comparing, pruning: what there is to see of environments, with a real registry and real repositories."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tidegate.cli import life
from tidegate.errors import BusyError, ExitCode, NotFoundError
from tidegate.life.audit import Found, diff, prune, unserved, verify
from tidegate.life.deploy import deploy, promote
from typer import Exit

from .entries import CONFIG, write_entry
from .worlds import World

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def three(world: World, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Three versions of a model, each deployed to dev; prod has the first of them."""
    context, numbers = world.context(), []
    for factor in (3, 5, 7):
        entry = write_entry(tmp_path_factory.mktemp("entry") / "pruned", factor)
        if factor == 7:
            (entry / "config.pbtxt").write_text(CONFIG.format(name="pruned", batch=4) + "dynamic_batching {}\n")
            (entry / "labels.txt").write_text("one\nzwei\n")
        numbers.append(context.registry.register(entry, registered_by="anna").number)
        deploy(context, "pruned", "dev")
        if factor == 3:
            promote(context, "pruned", "prod")
    return numbers


@pytest.fixture
def copied(world: World, three: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have dev's dataset copied, for a Triton that meets such things polls no more; return the model's folder."""
    assert three == [1, 2, 3]
    dataset = Path(shutil.copytree(world.dev.dataset, tmp_path / "dataset"))
    monkeypatch.setenv("TIDEGATE_DATASETS", f"dev/models={dataset},prod/models={world.prod.dataset}")
    return dataset / "preload" / "models" / "pruned"


def found_by(world: World, environment: str = "dev") -> list[tuple[str, str]]:
    found = verify(world.context(), environment, ["pruned"]).found
    return [(each.kind, each.what) for each in found]


def test_what_was_published_is_as_it_was_registered(world: World, three: list[int]) -> None:
    said = verify(world.context(), "dev", ["pruned"])
    assert (said.found, said.versions) == ((), len(three))
    assert said.bytes > 0
    assert found_by(world, "prod") == []


def _tamper(model: Path) -> None:
    (model / "3" / "factor").write_text("9 ")


def _lose(model: Path) -> None:
    (model / "3" / "model.py").unlink()


def _leave(model: Path) -> None:
    (model / "3" / "notes").write_text("mine")
    (model / "copy of config.pbtxt").write_text("")


def _stray(model: Path) -> None:
    (model / "77").mkdir()
    (model / "77" / "model.py").write_text("")


def _edit(model: Path) -> None:
    config = model / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 4", "max_batch_size: 8"))


def _forget(model: Path) -> None:
    (model / "config.pbtxt").unlink()


@pytest.mark.parametrize(
    ("spoil", "kinds", "said"),
    [
        (_tamper, ["content"], "3/factor"),
        (_lose, ["content"], "3/model.py is not there"),
        (_leave, ["content", "stray", "stray"], "copy of config.pbtxt"),
        (_stray, ["stray"], "version 77 is not registered"),
        (_edit, ["config"], "max_batch_size: 4 → 8"),
        (_forget, ["config", "missing", "stray"], "should have version 3"),
    ],
)
def test_what_is_otherwise_is_found(
    world: World, copied: Path, spoil: Callable[[Path], None], kinds: list[str], said: str
) -> None:
    assert found_by(world) == []
    spoil(copied)
    found = found_by(world)
    assert sorted({kind for kind, _ in found}) == sorted(set(kinds)), found
    assert any(said in what for _, what in found), found


def test_a_folder_that_nobody_registered_is_a_stray(world: World, copied: Path) -> None:
    (copied.parent / "old-copy" / "1").mkdir(parents=True)
    found: tuple[Found, ...] = verify(world.context(), "dev", ["old-copy"]).found
    assert [(each.kind, each.model) for each in found] == [("stray", "old-copy")] * 2


def test_the_commands_say_what_they_found_by_their_exit_codes(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    life.verify("dev", ["pruned"], json=True)
    assert json.loads(capsys.readouterr().out)["found"] == []
    (copied / "1" / "factor").write_text("4 ")
    with pytest.raises(Exit) as ended:
        life.verify("dev", ["pruned"])
    assert ended.value.exit_code == ExitCode.INTEGRITY
    assert "1/factor" in capsys.readouterr().out
    with pytest.raises(Exit) as ended:
        life.diff("dev", "prod", "pruned")
    assert ended.value.exit_code == ExitCode.FOUND
    assert "version 3" in capsys.readouterr().out
    life.diff("dev", "dev", "pruned", json=True)
    assert json.loads(capsys.readouterr().out) == []
    life.history("pruned", "dev", json=True)
    told = json.loads(capsys.readouterr().out)
    assert [(each["what"], each["version"], each["previous"]) for each in told] == [
        ("deploy", 3, 2), ("deploy", 2, 1), ("deploy", 1, None)
    ]  # fmt: skip
    life.history("pruned")
    assert "promote" in capsys.readouterr().out
    life.prune("dev", "pruned")
    assert "1 version that nobody serves" in capsys.readouterr().out
    assert (copied / "1").is_dir()
    with pytest.raises(Exit) as ended:
        life.diff("dev", "prd")
    assert ended.value.exit_code == ExitCode.NOT_FOUND
    assert "did you mean prod" in capsys.readouterr().err


def test_what_differs_between_environments_is_told_down_to_the_field(world: World, three: list[int]) -> None:
    context = world.context()
    found = {each.what: (each.one, each.other) for each in diff(context, "dev", "prod", "pruned")}
    assert found["version"] == ("version 3", "version 1")
    assert found["config.pbtxt dynamic_batching"] == ("{}", "nothing")
    assert {"file 1/factor", "file config.pbtxt", "file labels.txt"} <= found.keys()
    assert "file 1/model.py" not in found
    assert diff(context, "dev", "dev") == []
    with pytest.raises(NotFoundError):
        diff(context, "dev", "prod", "nobody")
    assert three


def test_versions_that_nobody_serves_are_shown_and_then_removed_and_can_be_brought_back(
    world: World, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = world.context()
    one, two, _ = three
    shown = unserved(context, "dev", "pruned")
    assert [each.version for each in shown] == [one]  # two is what a rollback goes back to
    assert shown[0].bytes > 0
    assert unserved(context, "prod", "pruned") == []
    with pytest.raises(BusyError, match="may still be loading"):
        prune(context, "dev", shown)
    monkeypatch.setattr("tidegate.life.audit.LOADED_SECONDS", 0.0)
    assert prune(context, "dev", shown) == shown
    assert not (world.dev.repository("preload") / "pruned" / str(one)).exists()
    assert prune(context, "dev", shown) == []
    outcome = deploy(context, f"pruned@{one}", "dev")
    assert (outcome.version, outcome.previous) == (one, 3)
    assert [each.version for each in unserved(context, "dev", "pruned")] == [two]
    deploy(context, "pruned@3", "dev")
