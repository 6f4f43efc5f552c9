import subprocess
import sys
from pathlib import Path

import pytest
from tidegate.errors import IntegrityError, NotFoundError, RefusedError
from tidegate.registry.artifacts import Artifacts
from tidegate.registry.manifest import manifest_of

from .conftest import WAYS, World
from .entries import contents, entry, noise, program, registered
from .relay import Answer, Relay


def test_an_interrupted_registration_is_finished_by_the_next(
    world: World, before: Relay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = entry(tmp_path, "killed", {f"1/{number}.part": noise(number, 300_000) for number in range(12)})
    upload = Artifacts.upload

    def interrupted(artifacts: Artifacts, local: Path, path: str) -> None:
        if path.endswith("1/9.part"):
            raise KeyboardInterrupt
        upload(artifacts, local, path)

    with monkeypatch.context() as patch:
        patch.setattr(Artifacts, "upload", interrupted)
        with pytest.raises(KeyboardInterrupt):
            registered(world.registry(), root)
    with pytest.raises(NotFoundError):  # no incomplete version is visible
        world.registry().versions("killed")
    there = {key.rpartition("/entry/")[2] for key in world.keys("/entry/1/")}
    assert "1/9.part" not in there
    version = registered(world.registry(uri=before.uri), root)
    sent = {path.rpartition("/entry/")[2] for path in before.sent("PUT", "/entry/")}
    assert "1/9.part" in sent
    assert len(sent) < 14
    registry = world.registry()
    registry.fetch(version, tmp_path / "fetched")
    assert contents(tmp_path / "fetched") == contents(root)
    assert len(registry.versions("killed")) == 1


@pytest.mark.thorough
def test_other_content_of_the_right_size_is_sent_again(world: World, before: Relay, tmp_path: Path) -> None:
    """An upload stopped between the files and the version. Another client then wrote other content into its run."""
    root = entry(tmp_path, "resumed")

    def refuse(_method: str, path: str, answer: Answer) -> None:
        if path.endswith("registered-models/create"):  # after the files, before the version
            answer.status, answer.body = 403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}'

    there = set(world.keys("/entry/1/model.py"))
    before.fault = refuse
    with pytest.raises(RefusedError):
        registered(world.registry(uri=before.uri), root)
    (key,) = set(world.keys("/entry/1/model.py")) - there
    world.store.client().put_object(Bucket="models", Key=key, Body=program(9))
    before.fault = None
    registry = world.registry(uri=before.uri)
    version = registered(registry, root)
    assert registry.read_file(version, "1/model.py") == program(1)


def test_a_file_is_fetched_for_all_to_read_and_one_that_could_be_run_can_be_run(world: World, tmp_path: Path) -> None:
    root = entry(tmp_path, "mode", {"1/triton_python_backend_stub": b"stub"})
    (root / "1/triton_python_backend_stub").chmod(0o755)
    version = registered(registry := world.registry(WAYS[2]), root)
    (stored,) = [each for each in (world.folder / "artifacts").rglob("model.py") if version.run_id in each.parts]
    stored.chmod(0o400)
    registry.fetch(version, tmp_path / "fetched")
    assert (tmp_path / "fetched/1/model.py").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "fetched/1/triton_python_backend_stub").stat().st_mode & 0o777 == 0o755


def test_an_entry_that_changes_meanwhile_is_not_registered(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    root = entry(tmp_path, "changing")
    manifest = manifest_of(root)
    (root / "1/model.py").write_bytes(program(7))
    with pytest.raises(IntegrityError, match="changed while it was being registered"):
        registry.register(root, registered_by="anna", manifest=manifest)
    with pytest.raises(NotFoundError):
        registry.versions("changing")


@pytest.mark.thorough
def test_memory_stays_flat_while_much_is_registered_and_fetched(world: World, tmp_path: Path) -> None:
    """The peak memory for 200 MB of files is about that for hardly any."""
    entry(tmp_path, "small-memory")
    large = entry(tmp_path, "large-memory")
    for number in range(2):
        with (large / "1" / f"{number}.bin").open("wb") as file:
            file.truncate(100 << 20)
    program = (
        "import pathlib, sys\n"
        "from tidegate.registry import Registry\n"
        "registry = Registry(sys.argv[1])\n"
        "for name in ('small-memory', 'large-memory'):\n"
        "    version = registry.register(pathlib.Path(sys.argv[2], name), registered_by='anna')\n"
        "    registry.fetch(version, pathlib.Path(sys.argv[2], 'fetched', name))\n"
        # Not ru_maxrss, which starts with the parent's memory at the fork.
        "    print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, world.server.uri, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True)
    small, much = map(int, done.stdout.split()[-2:])
    assert much - small < 60_000, (small, much)
