import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.processes import programs

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "contracts")])}
"""Of processes that run this checkout."""

Call = Callable[..., Any]
Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Edit = Callable[[str, str], None]
Tree = Callable[[Path], dict[str, bytes]]

DEFINITION = """\
images:
  - {name: triton, repository: registry.test/triton, tag: "1"}
  - {name: proxy, repository: registry.test/proxy, tag: "1"}
  - {name: eviction-policy, repository: registry.test/eviction-policy, tag: "1"}
datasets:
  - {name: models, kind: nfs, server: nfs.test, path: /models}
servers:
  - name: small
    repository: {dataset: models}
    pools: [{name: main, loading: {mode: on-demand}, replicas: 1}]
proxy:
  replicas: 1
  auth: {apiKeys: {secret: keys}}
  access: [{name: all, principals: [ci]}]
models:
  - {name: one, server: small}
network:
  callers: [{name: ci, namespaceLabels: {kubernetes.io/metadata.name: ci}}]
environments:
  - {name: dev}
  - name: prod
    datasets: [{name: models, path: /prod}]
    proxy: {replicas: null, autoscaling: {min: 3, max: 12}}
dataPlanes:
  - {name: lab, context: kind-lab, environments: [dev]}
  - {name: east, environments: [prod]}
"""

LOCK = "images:\n" + "".join(
    f"  - {{image: 'registry.test/{name}:1', digest: 'sha256:{'0' * 64}'}}\n"
    for name in ("eviction-policy", "proxy", "triton")
)


def made(kind: str, name: str = "it", **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns"}, **parts}


def reported(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    """Return the report about an object that changes, appears or disappears."""
    from rollout.changes.compare import compare  # not at the top: every process collects this file
    from rollout.changes.report import report

    return report({"stack": compare([old] if old else [], [new] if new else [])}).plain


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def gone(pids: Path) -> bool:
    """Whether the recorded processes have ended, even if they are zombies."""
    for pid in pids.read_text("utf-8").split():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if stat.rpartition(")")[2].split()[0] != "Z":
            return False
    return True


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    path = tmp_path / "definition" / "two.yaml"
    path.parent.mkdir()
    path.write_text(DEFINITION, "utf-8")
    return path


@pytest.fixture
def pinned(definition: Path) -> Path:
    (definition.parent / "images.lock").write_text(LOCK, "utf-8")
    return definition


@pytest.fixture
def edit(definition: Path) -> Edit:
    return partial(change, definition)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "build" / "rendered"


@pytest.fixture
def call() -> Callable[..., Ended]:
    """Run the command line in process. It must end with this exit code."""

    def run(*arguments: object, code: int | None = None) -> Ended:
        from cli.app import app

        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code or code is None, result.stderr
        return Ended(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def up(call: Call, definition: Path, out: Path) -> Call:
    return partial(call, "render", definition, "--out", out)


@pytest.fixture
def preview(call: Call, definition: Path, rendered: Path, tmp_path: Path, monkeypatch: Patch) -> Call:
    """Preview against a revision with the rendering in `rendered`."""
    monkeypatch.setattr("rollout.preview.rendering_of", lambda *_: nullcontext(("c0ffee", rendered)))
    return partial(call, "preview", definition, "--base", "main", "--summary", tmp_path / "build" / "preview.md")


@pytest.fixture
def rendered(up: Call, out: Path) -> Path:
    up(code=0)
    return out


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start the command line as a process, which ends at the end of the test at the latest."""
    with programs("cli", ENVIRONMENT) as begin:
        yield begin


@pytest.fixture
def run(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., Ended]:

    def finished(*arguments: object, code: int | None = None, **environment: str) -> Ended:
        process = start(*arguments, **environment)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code or code is None, err
        return Ended(process.returncode, out, err)

    return finished


@pytest.fixture
def tree() -> Tree:

    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
