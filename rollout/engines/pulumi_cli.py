"""The user's own Pulumi: runs the program with `pulumi up`, against the user's backend and cluster.

Environment variables of the user are handed on as they are: PULUMI_BACKEND_URL, PULUMI_ACCESS_TOKEN, PULUMI_HOME,
PULUMI_CONFIG_PASSPHRASE (or …_FILE) and KUBECONFIG. What a run needs beyond them stands in `PulumiCli.environment`.
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

from stacks.command import CommandError
from stacks.problems import escaped, listed
from stacks.stack import StackId

from .. import processes
from ..kubectl import KubernetesObject, explained, in_words
from ..terminal import note, tidegate

ROOT = Path(__file__).resolve().parents[2]
_HERE = Path("Pulumi.yaml")
PROJECT = Path.cwd() if _HERE.is_file() and "name: tidegate\n" in _HERE.read_text("utf-8", "replace") else ROOT
"""Folder of the Pulumi project: that of a platform of one's own (`tidegate init`), else the root of the checkout."""
DEFAULT_DEFINITION = "stacks/inference.yaml"  # What the program reads when a stack's configuration names no definition.
OLDEST = (3, 219, 0)  # The first version that reads `requiredPulumiVersion`, which stands in Pulumi.yaml too.
GET_PULUMI = "How to install Pulumi: https://www.pulumi.com/docs/install"
UP = ("up", "--yes", "--skip-preview", "--refresh")
"""Refreshed first: Pulumi compares with its state, and a hand may have changed the cluster."""
DESTROY = ("destroy", "--yes", "--skip-preview", "--refresh", "--exclude-protected")
"""All but datasets and what holds them."""

_PROGRESS = re.compile(
    r"@ |[ +~-]{4}(?:(?P<program>pulumi:pulumi:Stack \S+ )|\S+:\S+ \S+ )(?:\w+ing (?:\([\d.]+s\) )?|\*\*[^*]+\*\* )?"
)
"""What a line begins with that shows the progress of a resource: of the program's own, or of another."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_SHORT_SECONDS = 120.0  # What commands may take that only look at the backend or at a stack's configuration.


@dataclass(frozen=True)
class PulumiCli:
    """A `pulumi` that is new enough."""

    path: str
    version: str
    folder: Path | None = None  # Folder of the Pulumi project; PROJECT without.
    environment: Mapping[str, str] = field(default_factory=lambda: {"PULUMI_SKIP_UPDATE_CHECK": "true"})
    """Environment variables of this run, beside the user's: a roll-out is no moment to ask for a newer version."""

    def __str__(self) -> str:
        """Return name, version and path of the program, for messages."""
        return f"Pulumi {self.version} ({self.path})"


def find() -> PulumiCli | None:
    """Return the `pulumi` on the PATH, or None; raise CommandError for one that is too old or does not answer."""
    path = shutil.which("pulumi")
    if path is None:
        return None
    code, said = _run(PulumiCli(path, ""), [path, "version"], _SHORT_SECONDS)
    match = re.search(r"^v?(\d+)\.(\d+)\.(\d+)\S*$", said, re.MULTILINE)
    if code != 0 or match is None:
        raise CommandError(f"{path} does not work: `pulumi version`: {in_words(said)}. {GET_PULUMI}")
    version = match[0].removeprefix("v")
    if tuple(map(int, match.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise CommandError(f"{path} is Pulumi {version}, and Tidegate needs {oldest} or later. {GET_PULUMI}")
    return PulumiCli(path, version)


def stacks(cli: PulumiCli, stack: StackId) -> dict[str, int]:
    """Return the stacks that there are, and how many resources each has."""
    with understanding("stack ls"):
        found = json.loads(ask(cli, stack, ["stack", "ls", "--json"]))
        return {item["name"].rpartition("/")[2]: int(item.get("resourceCount") or 0) for item in found}


def operate(
    cli: PulumiCli, stack: StackId, definition: Path, command: Sequence[str], resources: Mapping[str, int] | None = None
) -> int:
    """Run `UP`, `DESTROY` or `preview` for a stack, showing what Pulumi says, and return its exit code.

    The stack is made where there is none. `resources` are those of `stacks`, where they are known. Raises CommandError
    where it is known why Pulumi failed.
    """
    _prepare(cli, stack, definition, stacks(cli, stack) if resources is None else resources, command)
    whole = [cli.path, *command, "--stack", stack.name, "--non-interactive"]
    code, said, held = _show(cli, whole)
    if code != 0 and _is_readable_again(cli, said):
        code, said, held = _show(cli, whole)
    if code != 0 and _is_locked_by_the_dead(said):
        note(f"stack {stack.name} was locked by a run that was killed; going on …")
        ask(cli, stack, ["cancel", "--yes", stack.name])
        code, said, held = _show(cli, whole)
    if code != 0 and (why := _explanation(said, stack)):
        raise CommandError(why)
    sys.stdout.write(held)
    return code


def ask(cli: PulumiCli, stack: StackId, arguments: Sequence[str]) -> str:
    """Return what a short command says; raise CommandError when it fails."""
    whole = [cli.path, *arguments, "--non-interactive"]
    code, said = _run(cli, whole, _SHORT_SECONDS)
    if code != 0 and _is_readable_again(cli, said):
        code, said = _run(cli, whole, _SHORT_SECONDS)
    if code != 0:
        command = " ".join(arguments[:2])
        raise CommandError(_explanation(said, stack) or f"`pulumi {command}` failed: {in_words(said)}.")
    return said


def _prepare(
    cli: PulumiCli, stack: StackId, definition: Path, resources: Mapping[str, int], command: Sequence[str]
) -> None:
    """Make the stack where there is none, and let its configuration say what it is brought up from.

    It is written down, in stacks/Pulumi.<stack>.yaml, because a plain `pulumi up` must do the same later.
    """
    if stack.name not in resources:
        ask(cli, stack, ["stack", "init", stack.name, "--no-select"])
    if is_configured(cli, stack, definition):
        return
    with understanding("config"):
        configuration = json.loads(ask(cli, stack, ["config", "--json", "--stack", stack.name]))
        now = {key.removeprefix("tidegate:"): item.get("value") for key, item in configuration.items()}
    wanted = _configuration(cli, stack, definition)
    if now or command != DESTROY:  # of one that is to go its file may be gone before
        now.setdefault("definition", DEFAULT_DEFINITION)
    if resources.get(stack.name, 0) > 1 and now.get("definition", wanted["definition"]) != wanted["definition"]:
        raise CommandError(
            f"stack {stack.name} was brought up from {escaped(str(now['definition']))}: from {wanted['definition']}"
            " it would lose every object that only the former describes.\n    If that is meant, say so first:"
            f" pulumi config set definition {wanted['definition']} --stack {stack.name}"
        )
    changed = [f"{key}={value}" for key, value in wanted.items() if now.get(key) != value]
    if changed and command != DESTROY:  # which reads the state alone
        values = [part for item in changed for part in ("--plaintext", item)]
        ask(cli, stack, ["config", "set-all", *values, "--stack", stack.name])


def _configuration(cli: PulumiCli, stack: StackId, definition: Path) -> dict[str, str]:
    """Return what a stack's configuration has to say."""
    path = definition.resolve()
    ours = cli.folder is None and path.is_relative_to(PROJECT)  # where Pulumi runs the program
    wanted = {
        "environment": stack.environment.name,
        "dataPlane": stack.data_plane.name,
        "definition": str(path.relative_to(PROJECT) if ours else path),
    }
    return wanted if cli.folder is None else {**wanted, "context": stack.data_plane.context_name}


def is_configured(cli: PulumiCli, stack: StackId, definition: Path) -> bool:
    """Return whether the file of a stack's configuration says what it is brought up from; Pulumi is not asked."""
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
    """Raise CommandError if what Pulumi prints is not what its versions of today print."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise CommandError(f"the output of `pulumi {command}` is not the expected JSON. {GET_PULUMI}") from None


def _is_readable_again(cli: PulumiCli, said: str) -> bool:
    """Remove what keeps Pulumi from reading its state after a run that was killed; return whether there was anything.

    Where state is kept in files, each has its attributes beside it. Pulumi does without them, but while one such file
    is empty, as a Pulumi that was killed leaves it, every command ends with "EOF".
    """
    if not re.search(r": EOF$", said.strip()):
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
        raise CommandError(f"Pulumi's state in {escaped(str(state))} cannot be mended: {error.strerror}.") from None
    if empty:
        note(f"a run that was killed left Pulumi's state in {escaped(str(state))} unreadable; mended, and going on …")
    return bool(empty)


# ---- running it ----


def _run(cli: PulumiCli, command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run a short command; return its exit code and its output, or what it complained of."""
    try:
        done = processes.run(command, seconds=seconds, cwd=cli.folder or PROJECT, environment=cli.environment)
    except CommandError as error:
        raise CommandError(f"{error} {GET_PULUMI}") from None
    except subprocess.TimeoutExpired:
        asked = " ".join(["pulumi", *command[1:3]])
        raise CommandError(f"`{asked}` gave no answer within {seconds:g} seconds, and was stopped.") from None
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr or done.stdout


def _show(cli: PulumiCli, command: Sequence[str]) -> tuple[int, str, str]:
    """Run a long command, and show what it says while it says it.

    Returns its exit code, all that it said, and the tracebacks in it, which are held back: where the API server refuses
    an object, the language host ends with one, and it says nothing that the refusal does not say better.
    """
    said: list[str] = []
    tracebacks = _Tracebacks()
    with (
        processes.started(command, cwd=cli.folder or PROJECT, env={**os.environ, **cli.environment}) as process,
        processes.showing_life(_life(process.pid)),
    ):

        def show() -> None:
            for line in process.stdout or ():
                said.append(line)
                if not tracebacks.has(line):
                    sys.stdout.write(line)
                    sys.stdout.flush()

        try:
            show()
        except KeyboardInterrupt:
            # The terminal told Pulumi too: it ends what it has begun, writes its state and gives up its lock.
            show()
            raise
    return process.returncode, "".join(said), "".join(tracebacks.held)


class _Tracebacks:
    """Finds the Python tracebacks in Pulumi's output: their frames, their errors, and those that led to them.

    Each stands there twice: line by line behind the progress of the program's own resource, between lines about others,
    and once more as a whole among the diagnostics.
    """

    def __init__(self) -> None:
        self.held: list[str] = []
        self._depths: dict[bool, int | None] = {}  # Where "Traceback …" begins, in progress lines and in others.

    def has(self, line: str) -> bool:
        """Return whether a line belongs to a traceback; call this for each line in its order."""
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


# ---- what it says when it fails ----


def _is_locked_by_the_dead(said: str) -> bool:
    if "the stack is currently locked" not in said:
        return False
    locks = re.findall(r"created by \S*@(\S+) \(pid (\d+)\) at (\S+)", said)
    return bool(locks) and all(host == socket.gethostname() and _has_died(int(pid), at) for host, pid, at in locks)


def _has_died(pid: int, locked_at: str) -> bool:
    """Return whether the Pulumi that locked a stack was started by a run on this machine, and both have ended.

    Another container can have this host's name. This machine then has no file for that process and that time.
    """
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
    """Return why Pulumi makes no objects that are there already, and what to do."""
    shown = listed((f"{item['kind']} {item['metadata']['name']}" for item in objects), most=6)
    which = f" ({shown})" if objects else ""
    adopt = tidegate("up", cluster=stack.data_plane.context_name, stack=stack.name, engine="pulumi", adopt=True)
    return (
        f"objects of stack {stack.name} are in the cluster, and not in Pulumi's state{which}."
        f" To adopt them as they are: {adopt}"
    )


def _explanation(said: str, stack: StackId) -> str | None:
    context = stack.data_plane.context_name
    known = {
        "PULUMI_ACCESS_TOKEN must be set": (
            "Pulumi does not know where to keep its state. Run `pulumi login` once (`pulumi login --local` keeps it on"
            " this machine), or set PULUMI_BACKEND_URL."
        ),
        "passphrase must be set": (
            "Pulumi has no passphrase for the secrets of its state. Set PULUMI_CONFIG_PASSPHRASE, or"
            " PULUMI_CONFIG_PASSPHRASE_FILE; the empty one is a choice too."
        ),
        "incorrect passphrase": f"stack {stack.name} has another passphrase. Correct PULUMI_CONFIG_PASSPHRASE.",
        "the stack is currently locked|Another update is currently in progress": (
            f"stack {stack.name} is locked: somebody else is bringing it up, or was stopped while doing so. Wait;"
            f" if you are sure that nobody is, `pulumi cancel {stack.name}` takes the lock away."
        ),
        "as it is currently marked for protection|because it is protected": (
            f"a dataset of stack {stack.name} would be replaced or deleted, and datasets are protected. Instead of"
            " changing one, add a dataset of another name and move the servers to it. To give one up, run"
            " `pulumi state unprotect` for it, as Pulumi says above; its volume and its claim stay in the cluster."
        ),
        "The resource already exists in the cluster": not_in_state(stack),
        "no resource plugin 'pulumi-resource-kubernetes": (
            "Pulumi has no Kubernetes provider and could not fetch it: `pulumi plugin install resource kubernetes`."
        ),
    }
    found = next((explanation for words, explanation in known.items() if re.search(words, said)), None)
    if (why := found or explained(said, context)) is None and "configured Kubernetes cluster is unreachable" in said:
        return (
            f"stack {stack.name}'s cluster cannot be reached. Does `kubectl --context {context} get namespaces` work?"
        )
    return why
