"""Pulumi's real engine on a copy of the checkout, with a separate backend, without network and cluster."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from lab.bench import iac
from tests.processes import HOW, marked
from tests.rollout.conftest import Ended

ROOT = Path(__file__).resolve().parents[2]
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
Object = dict[str, Any]
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Engine:
    pulumi: str
    plugins: Path | None  # Directory of installed plugins. None if the provider is on the PATH.


def find_engine() -> Engine | str:
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        return "there is no `pulumi` on the PATH"
    if shutil.which("pulumi-resource-kubernetes"):
        return Engine(pulumi, None)
    plugins = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi") / "plugins"
    wanted = version("pulumi-kubernetes")
    installed = [folder.name for folder in plugins.glob("resource-kubernetes-v*") if folder.is_dir()]
    if any(_numbers(found) >= _numbers(wanted) for found in installed):
        return Engine(pulumi, plugins)
    return f"`pulumi` is there, but not its provider: run `pulumi plugin install resource kubernetes {wanted}`"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = 1800) -> Ended:
    """Run a command. On a timeout, kill it with its child processes. On a busy machine each takes minutes."""
    process = subprocess.Popen(command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, **HOW)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"{command} took more than {seconds} s\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)


@dataclass(frozen=True)
class Project:
    """A copy of the checkout, next to a backend and a PULUMI_HOME. It can be moved and copied."""

    engine: Engine
    root: Path

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            "PULUMI_HOME": str(self.root / "home"),
            "PULUMI_BACKEND_URL": (self.root / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
            # No cluster: a person's kubeconfig must not be found.
            "KUBECONFIG": str(self.root / "no-kubeconfig"),
        }

    @classmethod
    def create(cls, engine: Engine, root: Path, write: Callable[[Path], object] = iac.checkout) -> "Project":
        project = cls(engine, root)
        write(root)
        for folder in ("home", "state"):
            (root / folder).mkdir()
        if engine.plugins is not None:
            (root / "home" / "plugins").symlink_to(engine.plugins)
        return project

    def copy(self, root: Path) -> "Project":
        shutil.copytree(self.root, root, symlinks=True)
        return Project(self.engine, root)

    def pulumi(self, *arguments: str, code: int | None = 0, **environment: str | None) -> Ended:
        """Run `pulumi` in the checkout. With `code` None, any exit code is allowed."""
        changed = {**self.environment, **environment}
        result = run(
            [self.engine.pulumi, *arguments, "--non-interactive"],
            self.checkout,
            {name: value for name, value in changed.items() if value is not None},
        )
        assert code is None or result.code == code, result.text
        return result

    def end_processes(self) -> None:
        """Kill Pulumi's remaining processes. If it stops early, it leaves its language host."""
        for process in marked(f"PULUMI_HOME={self.root / 'home'}\0"):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def add_rendering_stack(self, stack: str, environment: str, data_plane: str, **more: str) -> str:
        config = {"environment": environment, "dataPlane": data_plane, "renderTo": f"build/rendered/{stack}"}
        return self.configure(f"{stack}-rendered", {**config, **more})

    def configure(self, stack: str, config: Mapping[str, str]) -> str:
        """Make a stack if there is none, and set its configuration."""
        file = self.checkout / "stacks" / f"Pulumi.{stack}.yaml"
        tree = yaml.safe_load(file.read_text()) if file.exists() else {}
        file.write_text(yaml.safe_dump({**tree, "config": {f"tidegate:{key}": config[key] for key in config}}))
        self.pulumi("stack", "select", "--create", stack)
        return stack

    def up(self, stack: str, *arguments: str) -> Ended:
        return self.pulumi("up", "--yes", "--skip-preview", "--suppress-progress", "--stack", stack, *arguments)

    def changes(self, stack: str) -> set[tuple[str, str]]:
        """Return the changes of a preview: operations and names of resources, without unchanged ones."""
        result = self.pulumi("preview", "--json", "--stack", stack)
        steps = json.loads(result.out)["steps"]
        return {(step["op"], step["urn"].rpartition("::")[2]) for step in steps if step["op"] != "same"}

    def rendered(self, stack: str) -> dict[Key, Object]:
        objects = [yaml.safe_load(path.read_text()) for path in self.rendered_files(stack)]
        found = {key(item): item for item in objects}
        assert len(found) == len(objects)
        return found

    def rendered_files(self, stack: str) -> list[Path]:
        folder = self.checkout / "build" / "rendered" / stack.removesuffix("-rendered")
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def state(self, stack: str) -> list[dict[str, Any]]:
        deployment = json.loads(self.pulumi("stack", "export", "--stack", stack).out)["deployment"]
        resources: list[dict[str, Any]] = deployment.get("resources") or []
        return resources

    def edit(self, old: str, new: str, file: str = "stacks/inference.yaml") -> None:
        path = self.checkout / file
        text = path.read_text()
        assert old in text, f"{file} has changed: there is no {old!r} any more"
        path.write_text(text.replace(old, new, 1))


def key(item: Object) -> Key:
    return item["apiVersion"], item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def made_once(folder: Path, make: Callable[[Path], object]) -> None:
    """Make a directory that several test processes share. The first process makes it, and the others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = folder.with_suffix(".complete")
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            complete.touch()
