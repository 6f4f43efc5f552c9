"""The user's own Pulumi: runs the program with `pulumi up`, against the user's backend and cluster.

Pulumi gets the user's environment unchanged: PULUMI_BACKEND_URL, PULUMI_ACCESS_TOKEN, PULUMI_HOME,
PULUMI_CONFIG_PASSPHRASE (or …_FILE), KUBECONFIG. `PulumiCli.environment` has the additional variables.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

import yaml

from stacks.command import CommandError, for_stack
from stacks.problems import escaped, listed
from stacks.stack import StackId

from .. import processes
from ..kubectl import KubernetesObject, explained, in_words
from ..terminal import note

ROOT = Path(__file__).resolve().parents[2]
_HERE = Path("Pulumi.yaml")
PROJECT = Path.cwd() if _HERE.is_file() and "name: tidegate\n" in _HERE.read_text("utf-8", "replace") else ROOT
"""Directory of the Pulumi project: that of a platform (`tidegate init`), else the root of the checkout."""
DEFAULT_DEFINITION = "stacks/inference.yaml"  # The program's default, if a stack's configuration sets no definition.
OLDEST = (3, 219, 0)  # The first version that reads `requiredPulumiVersion`. The same is in Pulumi.yaml.
GET_PULUMI = "How to install Pulumi: https://www.pulumi.com/docs/install"
UP = ("up", "--yes", "--skip-preview", "--refresh")
"""Refreshes first, because Pulumi compares with its state, but someone may have changed the cluster."""
DESTROY = ("destroy", "--yes", "--skip-preview", "--refresh", "--exclude-protected")
"""Everything except datasets and what holds them."""

_PROGRESS = re.compile(
    r"@ |[ +~-]{4}(?:(?P<program>pulumi:pulumi:Stack \S+ )|\S+:\S+ \S+ )(?:\w+ing (?:\([\d.]+s\) )?|\*\*[^*]+\*\* )?"
)
"""Start of a line about the progress of a resource: the program's own resource, or another one."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_SHORT_SECONDS = 120.0  # Timeout of commands that only read the backend or a stack's configuration.


@dataclass(frozen=True)
class PulumiCli:
    """A `pulumi` of a suitable version."""

    path: str
    version: str
    folder: Path | None = None  # Directory of the Pulumi project. Default: PROJECT.
    environment: Mapping[str, str] = field(default_factory=lambda: {"PULUMI_SKIP_UPDATE_CHECK": "true"})
    """Additional environment variables. A rollout must not look for newer versions of Pulumi."""

    def __str__(self) -> str:
        return f"Pulumi {self.version} ({self.path})"


def find(seconds: float = _SHORT_SECONDS) -> PulumiCli | None:
    """Return the `pulumi` on the PATH, or None. Raise CommandError if it is too old or does not run."""
    path = shutil.which("pulumi")
    if path is None:
        return None
    code, output = _run(PulumiCli(path, ""), [path, "version"], seconds)
    match = re.search(r"^v?(\d+)\.(\d+)\.(\d+)\S*$", output, re.MULTILINE)
    if code != 0 or match is None:
        raise CommandError(f"{path} does not work: `pulumi version`: {in_words(output)}. {GET_PULUMI}")
    version = match[0].removeprefix("v")
    if tuple(map(int, match.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise CommandError(f"{path} is Pulumi {version}, but Tidegate needs {oldest} or later. {GET_PULUMI}")
    return PulumiCli(path, version)


def stacks(cli: PulumiCli, stack: StackId) -> dict[str, int]:
    """Return the names of all stacks, and the number of resources of each."""
    with understanding("stack ls"):
        found = json.loads(run(cli, stack, ["stack", "ls", "--json"]))
        return {item["name"].rpartition("/")[2]: int(item.get("resourceCount") or 0) for item in found}


def operate(
    cli: PulumiCli, stack: StackId, definition: Path, command: Sequence[str], resources: Mapping[str, int] | None = None
) -> int:
    """Run `UP`, `DESTROY` or `preview` for a stack, show Pulumi's output, and return its exit code.

    Creates the stack if there is none. `resources` is the result of `stacks`, if it is already known. Raises
    CommandError if Pulumi failed for a known reason.
    """
    _prepare(cli, stack, definition, stacks(cli, stack) if resources is None else resources, command)
    whole = [cli.path, *command, "--stack", stack.name, "--non-interactive"]
    code, output, held = _show(cli, whole)
    if code != 0 and _is_readable_again(cli, output):
        code, output, held = _show(cli, whole)
    if code != 0 and _is_locked_by_the_dead(output):
        note(f"stack {stack.name} was locked by a killed run. Continuing …")
        run(cli, stack, ["cancel", "--yes", stack.name])
        code, output, held = _show(cli, whole)
    if code != 0 and (why := _explanation(output, stack)):
        raise CommandError(why)
    sys.stdout.write(held)
    return code


def run(cli: PulumiCli, stack: StackId, arguments: Sequence[str]) -> str:
    """Return the output of a short command. Raise CommandError if it fails."""
    whole = [cli.path, *arguments, "--non-interactive"]
    code, output = _run(cli, whole, _SHORT_SECONDS)
    if code != 0 and _is_readable_again(cli, output):
        code, output = _run(cli, whole, _SHORT_SECONDS)
    if code != 0:
        command = " ".join(arguments[:2])
        raise CommandError(_explanation(output, stack) or f"`pulumi {command}` failed: {in_words(output)}.")
    return output


def _prepare(
    cli: PulumiCli, stack: StackId, definition: Path, resources: Mapping[str, int], command: Sequence[str]
) -> None:
    """Create the stack if there is none, and set its configuration. The configuration is in a file,
    stacks/Pulumi.<stack>.yaml, so that a plain `pulumi up` later does the same."""
    if stack.name not in resources:
        run(cli, stack, ["stack", "init", stack.name, "--no-select"])
    if is_configured(cli, stack, definition):
        return
    with understanding("config"):
        configuration = json.loads(run(cli, stack, ["config", "--json", "--stack", stack.name]))
        now = {key.removeprefix("tidegate:"): item.get("value") for key, item in configuration.items()}
    wanted = _configuration(cli, stack, definition)
    if now or command != DESTROY:  # the file of a stack to be destroyed may already be gone
        now.setdefault("definition", DEFAULT_DEFINITION)
    if resources.get(stack.name, 0) > 1 and now.get("definition", wanted["definition"]) != wanted["definition"]:
        raise CommandError(
            f"stack {stack.name} was applied from {escaped(str(now['definition']))}: with {wanted['definition']}"
            " it would lose every object that only the former describes.\n    To switch nevertheless, run:"
            f" pulumi config set definition {wanted['definition']} --stack {stack.name}"
        )
    changed = [f"{key}={value}" for key, value in wanted.items() if now.get(key) != value]
    if changed and command != DESTROY:  # which only reads the state
        values = [part for item in changed for part in ("--plaintext", item)]
        run(cli, stack, ["config", "set-all", *values, "--stack", stack.name])


def _configuration(cli: PulumiCli, stack: StackId, definition: Path) -> dict[str, str]:
    path = definition.resolve()
    ours = cli.folder is None and path.is_relative_to(PROJECT)  # where Pulumi runs the program
    wanted = {
        "environment": stack.environment.name,
        "dataPlane": stack.data_plane.name,
        "definition": str(path.relative_to(PROJECT) if ours else path),
    }
    return wanted if cli.folder is None else {**wanted, "context": stack.data_plane.context_name}


def is_configured(cli: PulumiCli, stack: StackId, definition: Path) -> bool:
    """Return whether the configuration file of a stack has the required values. Does not run Pulumi."""
    file = (cli.folder or PROJECT / "stacks") / f"Pulumi.{stack.name}.yaml"
    try:
        tree = yaml.safe_load(file.read_text("utf-8"))
        now = {key.removeprefix("tidegate:"): value for key, value in tree["config"].items()}
    except (OSError, yaml.YAMLError, UnicodeError, TypeError, KeyError, AttributeError):
        return False
    wanted = _configuration(cli, stack, definition)
    return {"definition": DEFAULT_DEFINITION, **now} == {**now, **wanted}


@contextmanager
def understanding(command: str) -> Iterator[None]:
    """Raise CommandError if Pulumi's output does not have the format of its present versions."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise CommandError(f"the output of `pulumi {command}` is not the expected JSON. {GET_PULUMI}") from None


def _is_readable_again(cli: PulumiCli, output: str) -> bool:
    """Remove empty files with which a killed run blocks Pulumi. Return whether there were any.

    A backend in files has a file of attributes next to each state. Pulumi can do without them, but if one is empty,
    every command fails with "EOF".
    """
    if not re.search(r": EOF$", output.strip()):
        return False
    code, answer = _run(cli, [cli.path, "whoami", "--json", "--non-interactive"], _SHORT_SECONDS)
    with understanding("whoami"):
        url = str(json.loads(answer)["url"]) if code == 0 else ""
    if not url.startswith("file://"):
        return False
    place = unquote(url.removeprefix("file://").partition("?")[0])
    state = (cli.folder or PROJECT) / Path(place).expanduser() / ".pulumi"
    try:
        empty = [path for path in state.rglob("*.attrs") if path.stat().st_size == 0]
        for path in empty:
            path.unlink()
    except OSError as error:
        raise CommandError(f"Pulumi's state in {escaped(str(state))} cannot be repaired: {error.strerror}.") from None
    if empty:
        note(f"a killed run left Pulumi's state in {escaped(str(state))} unreadable. Repaired it, continuing …")
    return bool(empty)


def _run(cli: PulumiCli, command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run a short command. Return its exit code and its output, or its errors if it failed."""
    try:
        done = processes.run(command, seconds=seconds, cwd=cli.folder or PROJECT, environment=cli.environment)
    except CommandError as error:
        raise CommandError(f"{error} {GET_PULUMI}") from None
    except subprocess.TimeoutExpired:
        words = " ".join(["pulumi", *command[1:3]])
        raise CommandError(f"`{words}` did not end within {seconds:g} seconds, and was stopped.") from None
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr or done.stdout


def _show(cli: PulumiCli, command: Sequence[str]) -> tuple[int, str, str]:
    """Run a long command, and show its output as it comes.

    Returns its exit code, its output, and the tracebacks in it, which are not shown. The language host prints one if
    the API server refuses an object, but the refusal itself is clearer.
    """
    output: list[str] = []
    tracebacks = _Tracebacks()
    with (
        processes.started(command, cwd=cli.folder or PROJECT, env={**os.environ, **cli.environment}) as process,
        processes.showing_life(_life(process.pid)),
    ):

        def show() -> None:
            for line in process.stdout or ():
                output.append(line)
                if not tracebacks.has(line):
                    sys.stdout.write(line)
                    sys.stdout.flush()

        try:
            show()
        except KeyboardInterrupt:
            # Pulumi got the interrupt too: it finishes its current step, writes its state and releases its lock.
            show()
            raise
    return process.returncode, "".join(output), "".join(tracebacks.held)


class _Tracebacks:
    """Finds the Python tracebacks in Pulumi's output: frames, errors, and the errors that caused them.

    Each appears twice: among the diagnostics, and line by line after the progress prefix of the program's own resource,
    between lines about other resources.
    """

    def __init__(self) -> None:
        self.held: list[str] = []
        self._depths: dict[bool, int | None] = {}  # Indentation of "Traceback …", in progress lines and in others.

    def has(self, line: str) -> bool:
        """Return whether a line belongs to a traceback. Call this for every line, in order."""
        progress = _PROGRESS.match(line)
        if progress is not None and progress["program"] is None:
            return False
        message = line if progress is None else line[progress.end() :]
        depth = self._depths.get(progress is not None)
        text, indent = message.strip(), len(message) - len(message.lstrip())
        if (begin := message.find("Traceback (most recent call last)")) >= 0:
            depth = begin
        elif depth is not None:
            is_error = indent == depth and re.match(r"[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b", text)
            if not (not text or indent > depth or is_error or text == ">" or text.startswith(_CHAINED)):
                depth = None
        self._depths[progress is not None] = depth
        if depth is not None:
            self.held.append(line)
        return depth is not None


def _is_locked_by_the_dead(output: str) -> bool:
    if "the stack is currently locked" not in output:
        return False
    locks = re.findall(r"created by \S*@(\S+) \(pid (\d+)\) at (\S+)", output)
    return bool(locks) and all(host == socket.gethostname() and _has_died(int(pid), at) for host, pid, at in locks)


def _has_died(pid: int, locked_at: str) -> bool:
    """Return whether the Pulumi that locked a stack was started by a run on this machine, and both have ended. Another
    container can have this host's name, but then this machine has no file for that process and that time."""
    if processes.lives(pid):
        return False
    try:
        began = processes.life_file(_life(pid)).stat().st_mtime
        locked = datetime.fromisoformat(locked_at).timestamp()
    except (OSError, ValueError):
        return False
    return abs(locked - began) < _SHORT_SECONDS and processes.has_died(_life(pid))


def _life(pid: int) -> str:
    return f"pulumi-{pid}"


def not_in_state(stack: StackId, objects: Sequence[KubernetesObject] = ()) -> str:
    """Return why Pulumi does not create objects that already exist, and what to do."""
    shown = listed((f"{item['kind']} {item['metadata']['name']}" for item in objects), most=6)
    which = f" ({shown})" if objects else ""
    adopt = for_stack("up", stack, engine="pulumi", adopt=True)
    return (
        f"objects of stack {stack.name} are in the cluster, but not in Pulumi's state{which}."
        f" To adopt them as they are, run {adopt}"
    )


def _explanation(output: str, stack: StackId) -> str | None:
    context = stack.data_plane.context_name
    known = {
        "PULUMI_ACCESS_TOKEN must be set": (
            "Pulumi does not know where to keep its state. Run `pulumi login` once (`pulumi login --local` keeps it on"
            " this machine), or set PULUMI_BACKEND_URL."
        ),
        "passphrase must be set": (
            "Pulumi has no passphrase for the secrets of its state. Set PULUMI_CONFIG_PASSPHRASE or"
            " PULUMI_CONFIG_PASSPHRASE_FILE. The passphrase may be empty."
        ),
        "incorrect passphrase": f"PULUMI_CONFIG_PASSPHRASE is wrong for stack {stack.name}. Correct it.",
        "the stack is currently locked|Another update is currently in progress": (
            f"stack {stack.name} is locked: another run is working on it, or was stopped. Wait. If you are sure that no"
            f" other run exists, remove the lock with `pulumi cancel {stack.name}`."
        ),
        "as it is currently marked for protection|because it is protected": (
            f"a dataset of stack {stack.name} would be replaced or deleted, but datasets are protected. Instead of"
            " changing one, add a dataset with another name and move the servers to it. To give one up, run"
            " `pulumi state unprotect` for it, as Pulumi shows above. Its volume and its claim stay in the cluster."
        ),
        "The resource already exists in the cluster": not_in_state(stack),
        "no resource plugin 'pulumi-resource-kubernetes": (
            "Pulumi has no Kubernetes provider and cannot download it: run `pulumi plugin install resource kubernetes`."
        ),
    }
    found = next((explanation for words, explanation in known.items() if re.search(words, output)), None)
    why = found or explained(output, context)
    if why is None and "configured Kubernetes cluster is unreachable" in output:
        do = f"Run `kubectl --context {context} get namespaces` to check"
        return f"the cluster of stack {stack.name} cannot be reached. {do}."
    return why
