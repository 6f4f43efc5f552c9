"""The user's own Pulumi: runs the program in the root with `pulumi up`, against the user's backend and cluster.

Environment variables, which are the user's and are handed on as they are:

    PULUMI_BACKEND_URL           where state is kept, when not where `pulumi login` said
    PULUMI_ACCESS_TOKEN          logs in to Pulumi Cloud
    PULUMI_CONFIG_PASSPHRASE     opens the secrets of stacks in other backends (or PULUMI_CONFIG_PASSPHRASE_FILE)
    PULUMI_HOME                  Pulumi's own folder: credentials, plugins
    KUBECONFIG                   where contexts are found

Set for Pulumi here: PULUMI_SKIP_UPDATE_CHECK, because a roll-out is no moment to ask for a newer version. What a single
run needs beyond that stands in `PulumiCli.environment`.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from stacks.command import CommandError
from stacks.problems import escaped
from stacks.stack import Stack

from ..contexts import context_of
from ..terminal import note
from .pulumi_words import explanation, is_locked_by_the_dead, last_line

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_DEFINITION = "stacks/inference.yaml"
"""What the program reads when a stack's configuration names no definition."""
OLDEST = (3, 219, 0)
"""The first version that reads `requiredPulumiVersion`, which stands in Pulumi.yaml and says the same."""
GET_PULUMI = "How to install Pulumi: https://www.pulumi.com/docs/install"

_VERSION_SECONDS = 20.0
_SHORT_SECONDS = 120.0
"""What commands may take that only look at the backend or at a stack's configuration."""


@dataclass(frozen=True)
class PulumiCli:
    """A `pulumi` that is new enough."""

    path: str
    version: str
    folder: Path | None = None
    """Folder of the Pulumi project; the root of the checkout without."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of this run, beside the user's."""

    def __str__(self) -> str:
        """As a user knows it."""
        return f"Pulumi {self.version} ({self.path})"


def find() -> PulumiCli | None:
    """Return the `pulumi` on the PATH, or None; raise CommandError for one that is too old or does not answer."""
    path = shutil.which("pulumi")
    if path is None:
        return None
    code, said = _run(PulumiCli(path, ""), [path, "version"], _VERSION_SECONDS)
    match = re.search(r"^v?(\d+)\.(\d+)\.(\d+)\S*$", said, re.MULTILINE)
    if code != 0 or match is None:
        raise CommandError(f"{path} does not work: `pulumi version` says {last_line(said)}. {GET_PULUMI}")
    version = match[0].removeprefix("v")
    if tuple(map(int, match.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise CommandError(f"{path} is Pulumi {version}, and Tidegate needs {oldest} or later. {GET_PULUMI}")
    return PulumiCli(path, version)


def up(cli: PulumiCli, stack: Stack, definition: Path) -> int:
    """Bring a stack up, showing what Pulumi says, and return Pulumi's exit code."""
    # Refreshed first: Pulumi compares with its state, and a hand may have changed the cluster.
    return _operate(cli, stack, definition, ["up", "--yes", "--skip-preview", "--refresh"])


def preview(cli: PulumiCli, stack: Stack, definition: Path) -> int:
    """Show what `up` would do, and return Pulumi's exit code."""
    return _operate(cli, stack, definition, ["preview"])


def destroy(cli: PulumiCli, stack: Stack, definition: Path) -> int:
    """Delete what a stack has, without datasets and what holds them, and return Pulumi's exit code."""
    return _operate(cli, stack, definition, ["destroy", "--yes", "--skip-preview", "--refresh", "--exclude-protected"])


def _operate(cli: PulumiCli, stack: Stack, definition: Path, command: list[str]) -> int:
    _prepare(cli, stack, definition)
    whole = [cli.path, *command, "--stack", stack.name, "--non-interactive"]
    code, said = _show(cli, whole)
    if code != 0 and _is_readable_again(cli, said):
        code, said = _show(cli, whole)
    if code != 0 and is_locked_by_the_dead(said):
        note(f"stack {stack.name} was locked by a run that was killed; going on …")
        ask(cli, stack, ["cancel", "--yes", stack.name])
        code, said = _show(cli, whole)
    why = explanation(said, stack) if code != 0 else None
    if why is not None:
        raise CommandError(why)
    return code


def _prepare(cli: PulumiCli, stack: Stack, definition: Path) -> None:
    """Make the stack where there is none, and let its configuration say what it is brought up from.

    It is written down, in stacks/Pulumi.<stack>.yaml, because a plain `pulumi up` must do the same later.
    """
    resources = stacks(cli, stack)
    if stack.name not in resources:
        ask(cli, stack, ["stack", "init", stack.name, "--no-select"])
    with _understanding("config"):
        configuration = json.loads(ask(cli, stack, ["config", "--json", "--stack", stack.name]))
        now = {key.removeprefix("tidegate:"): item.get("value") for key, item in configuration.items()}
    path = definition.resolve()
    wanted = {
        "environment": stack.environment.name,
        "dataPlane": stack.data_plane.name,
        "definition": str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path),
    }
    if cli.folder is not None:
        wanted["context"] = context_of(stack.data_plane)
    now.setdefault("definition", DEFAULT_DEFINITION)
    if resources.get(stack.name, 0) > 1 and now["definition"] != wanted["definition"]:
        raise CommandError(
            f"stack {stack.name} was brought up from {escaped(str(now['definition']))}: from {wanted['definition']}"
            " it would lose every object that only the former describes.\n    If that is meant, say so first:"
            f" pulumi config set definition {wanted['definition']} --stack {stack.name}"
        )
    changed = [f"{key}={value}" for key, value in wanted.items() if now.get(key) != value]
    if changed:
        values = [part for item in changed for part in ("--plaintext", item)]
        ask(cli, stack, ["config", "set-all", *values, "--stack", stack.name])


def stacks(cli: PulumiCli, stack: Stack) -> dict[str, int]:
    """Return the stacks that there are, and how many resources each has."""
    with _understanding("stack ls"):
        found = json.loads(ask(cli, stack, ["stack", "ls", "--json"]))
        return {item["name"].rpartition("/")[2]: int(item.get("resourceCount") or 0) for item in found}


@contextmanager
def _understanding(command: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise CommandError(f"what `pulumi {command} --json` answers cannot be understood. {GET_PULUMI}") from None


def ask(cli: PulumiCli, stack: Stack, arguments: Sequence[str]) -> str:
    """Return what a short command says."""
    whole = [cli.path, *arguments, "--non-interactive"]
    code, said = _run(cli, whole, _SHORT_SECONDS)
    if code != 0 and _is_readable_again(cli, said):
        code, said = _run(cli, whole, _SHORT_SECONDS)
    if code != 0:
        command = " ".join(arguments[:2])
        raise CommandError(explanation(said, stack) or f"`pulumi {command}` failed: {last_line(said)}.")
    return said


def _is_readable_again(cli: PulumiCli, said: str) -> bool:
    """Remove what keeps Pulumi from reading its state after a run that was killed; return whether there was anything.

    Where state is kept in files, each has its attributes beside it. Pulumi does without them, but while one such file
    is empty, as a Pulumi that was killed leaves it, every command ends with "EOF".
    """
    if not re.search(r": EOF$", said.strip()):
        return False
    code, answer = _run(cli, [cli.path, "whoami", "--json", "--non-interactive"], _SHORT_SECONDS)
    with _understanding("whoami"):
        url = str(json.loads(answer)["url"]) if code == 0 else ""
    if not url.startswith("file://"):
        return False
    place = unquote(url.removeprefix("file://").partition("?")[0])
    state = (cli.folder or ROOT) / Path(place).expanduser() / ".pulumi"
    try:
        empty = [path for path in state.rglob("*.attrs") if path.stat().st_size == 0]
        for path in empty:
            path.unlink()
    except OSError as error:
        raise CommandError(f"Pulumi's state in {escaped(str(state))} cannot be mended: {error.strerror}.") from None
    if empty:
        note(f"a run that was killed left Pulumi's state in {escaped(str(state))} unreadable; mended, and going on …")
    return bool(empty)


def _run(cli: PulumiCli, command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run a short command in the root; return its exit code and its output, or what it complained of."""
    try:
        process = subprocess.Popen(
            command,
            cwd=cli.folder or ROOT,
            env=_environment(cli),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"{command[0]} cannot be run: {error.strerror}. {GET_PULUMI}") from None
    try:
        output, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        asked = " ".join(["pulumi", *command[1:3]])
        raise CommandError(f"`{asked}` gave no answer within {seconds:g} seconds, and was stopped.") from None
    return process.returncode, output if process.returncode == 0 else complaints or output


def _show(cli: PulumiCli, command: Sequence[str]) -> tuple[int, str]:
    """Run a long command in the root, and show what it says while it says it."""
    said: list[str] = []
    with subprocess.Popen(
        command,
        cwd=cli.folder or ROOT,
        env=_environment(cli),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:

        def show() -> None:
            for line in process.stdout or ():
                said.append(line)
                sys.stdout.write(line)
                sys.stdout.flush()

        try:
            show()
        except KeyboardInterrupt:
            # The terminal told Pulumi too: it ends what it has begun, writes its state and gives up its lock.
            show()
            raise
    return process.returncode, "".join(said)


def _environment(cli: PulumiCli) -> dict[str, str]:
    return {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true", **cli.environment}
