import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from rollout.engines import pulumi_cli, pulumi_state
from stacks.command import CommandError
from stacks.validate import read_definition

from .conftest import ENVIRONMENT, ROOT, Capsys, Patch

Up = Callable[[str], int]
StandIn = Callable[[bytes], Path]
PULUMI = """#!/bin/sh
case "$1 $2" in
"version "*) echo v3.260.0 ;;
"stack ls") echo '[]' ;;
"stack init"|"config set-all") ;;
"config --json") echo '{{}}' ;;
"cancel --yes") touch "$0.cancelled" ;;
"up --yes") printf 'error: {output}\\n'; exit 255 ;;
*) exit 9 ;;
esac
"""


ANOTHER = "add a dataset with another name and move the servers to it"


def found() -> pulumi_cli.PulumiCli:
    cli = pulumi_cli.find()
    assert cli is not None
    return cli


@pytest.fixture
def up(edit: Callable[[str, str], None], definition: Path, tmp_path: Path, monkeypatch: Patch) -> Up:

    def run(script: str) -> int:
        edit("{name: dev}", "{name: dev, local: true}")
        program = tmp_path / "bin" / "pulumi"
        program.parent.mkdir()
        program.write_text(script, "utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return pulumi_cli.operate(found(), read_definition(definition).stacks[0], definition, pulumi_cli.UP)

    return run


@pytest.mark.parametrize(
    ("command", "before", "answer"),
    [
        *(("stack ls", "'[]'", answer) for answer in ("hello", "3", "[3]", "[{}]", '[{"name": 3}]')),
        *(("config", "'{}'", answer) for answer in ("", "[]", '{"a": 3}')),
    ],
)
def test_an_answer_that_cannot_be_understood_is_one_message(up: Up, command: str, before: str, answer: str) -> None:
    with pytest.raises(CommandError, match=f"the output of `pulumi {command}` is not the expected JSON."):
        up(PULUMI.format(output="").replace(f"echo {before}", f"echo '{answer}'"))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ('unable to replace resource "urn:x"\\nas it is currently marked for protection. To unprotect …', ANOTHER),
        ('resource "urn:x" cannot be deleted\\nbecause it is protected. To unprotect …', ANOTHER),
        ('services "a" is forbidden: exceeded quota: tight, requested: services=1, used: services=2',
         "services a was refused: exceeded quota: tight, requested: services=1"),
        ("The resource already exists in the cluster. This can happen when:",
         "--cluster kind-lab --stack dev-lab --engine pulumi --adopt"),
    ],
    ids=["replaced", "deleted", "the API server", "unknown to its state"],
)  # fmt: skip
def test_a_failure_is_no_riddle(up: Up, output: str, message: str, capsys: Capsys) -> None:
    with pytest.raises(CommandError, match=message):
        up(PULUMI.format(output=output))
    assert output.partition("\\n")[0] in capsys.readouterr().out


LOCKED = "the stack is currently locked by 1 lock(s).\\n  file:///x.json: created by me@{host} (pid {pid}) at {at}"


def locked_by(process: int, host: str = "", later: float = 0) -> str:
    """Pulumi's output about a locked stack, by default locked now by this host."""
    at = datetime.now(UTC) + timedelta(seconds=later)
    return LOCKED.format(host=host or socket.gethostname(), pid=process, at=at.isoformat(timespec="seconds"))


def killed() -> int:
    """Return the process id of a Pulumi that was started by a run on this machine, and killed with it."""
    code = "import sys; from rollout.engines.pulumi_cli import PulumiCli, _show; _show(PulumiCli('', ''), sys.argv[1:])"
    command = [sys.executable, "-c", code, "sh", "-c", "echo $$; sleep 60"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, cwd=ROOT, text=True, stdout=subprocess.PIPE, start_new_session=True
    ) as run:
        assert run.stdout
        process = int(run.stdout.readline())
        os.killpg(run.pid, signal.SIGKILL)
    return process


def test_the_lock_of_a_run_that_was_killed_here_is_taken_away(up: Up, tmp_path: Path, capsys: Capsys) -> None:
    output = locked_by(killed())
    script = PULUMI.format(output=output).replace('"up --yes")', '"up --yes") [ -e "$0.cancelled" ] && exit 0;')
    assert up(script) == 0
    assert (tmp_path / "bin" / "pulumi.cancelled").exists()
    assert "stack dev-lab was locked by a killed run. Continuing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "whose", ["of a run that lives", "of another machine", "of a container of this host's name", "of another time"]
)
def test_the_lock_of_another_run_stays(up: Up, tmp_path: Path, whose: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as lives, subprocess.Popen(["true"]) as ended:
        ended.wait()
        output = {
            "of a run that lives": lambda: locked_by(lives.pid),
            "of another machine": lambda: locked_by(killed(), "elsewhere"),
            "of a container of this host's name": lambda: locked_by(ended.pid),
            "of another time": lambda: locked_by(killed(), later=-86400),
        }[whose]()
        try:
            with pytest.raises(CommandError, match=re.escape("remove the lock with `pulumi cancel dev-lab`")):
                up(PULUMI.format(output=output))
        finally:
            lives.kill()
    assert not (tmp_path / "bin" / "pulumi.cancelled").exists()


def test_empty_attributes_of_a_killed_run_are_removed_and_nothing_else(up: Up, tmp_path: Path, capsys: Capsys) -> None:
    """Pulumi cannot read its state as long as there is such a file."""
    state = tmp_path / "the state"
    stacks = state / ".pulumi" / "stacks"
    stacks.mkdir(parents=True)
    for name, text in {"dev.json": "", "dev.json.attrs": "", "other.json.attrs": "{}"}.items():
        (stacks / name).write_text(text)
    reads = f"if [ -e '{stacks}/dev.json.attrs' ]; then echo 'error: EOF' >&2; exit 255; fi; echo '[]' ;;"
    script = PULUMI.format(output="no more").replace("echo '[]' ;;", reads)
    assert up(_who(script, state.as_uri())) == 255
    assert sorted(path.name for path in stacks.iterdir()) == ["dev.json", "other.json.attrs"]
    assert "Repaired it, continuing" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["https://app.pulumi.test/u", "file://{}"])
def test_an_end_of_file_with_another_cause_is_reported(up: Up, tmp_path: Path, url: str) -> None:
    script = PULUMI.format(output="").replace("echo '[]' ;;", "echo 'error: EOF' >&2; exit 255 ;;")
    with pytest.raises(CommandError, match='`pulumi stack ls` failed: "error: EOF"'):
        up(_who(script, url.format(tmp_path)))


def _who(script: str, url: str) -> str:
    return script.replace("*) exit 9", f"""'whoami --json') echo '{{"user": "u", "url": "{url}"}}' ;;\n*) exit 9""")


REFUSED = """\
Updating (dev-lab):
 +  pulumi:pulumi:Stack tidegate-dev-lab creating (0s)
 +  kubernetes:core/v1:Service small-main creating (1s) error: resource "tidegate-dev/small-main" was not successfully\
 created by the Kubernetes API server: services "small-main" is forbidden: exceeded quota: tight, requested:\
 count/services=1, used: count/services=2, limited: count/services=2
 +  pulumi:pulumi:Stack tidegate-dev-lab creating (2s) Traceback (most recent call last):
 +  pulumi:pulumi:Stack tidegate-dev-lab **creating failed** 1 error; 14 messages
Diagnostics:
  pulumi:pulumi:Stack (tidegate-dev-lab):
    error: update failed
    error: Program failed with an unhandled exception:
    Traceback (most recent call last):
      File "/opt/lib/python3.11/site-packages/pulumi/runtime/resource.py", line 1017, in do_register
        resp = await asyncio.get_event_loop().run_in_executor(None, do_rpc_call)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
    \tstatus = StatusCode.UNAVAILABLE
    \tdetails = "resource monitor shut down while waiting on step's done channel"
    >

    During handling of the above exception, another exception occurred:

    Traceback (most recent call last):
      File "/opt/bin/pulumi-language-python-exec", line 192, in <module>
        loop.run_until_complete(coro)
    Exception: resource monitor shut down while waiting on step's done channel

  kubernetes:core/v1:Service (small-main):
    error: resource "tidegate-dev/small-main" was not successfully created by the Kubernetes API server: services\
 "small-main" is forbidden: exceeded quota: tight, requested: count/services=1, used: count/services=2, limited:\
 count/services=2

Resources:
    + 9 created
"""
"""How `pulumi up` ends where the API server refuses an object: its program, which still runs, ends with a traceback."""


def printing(text: str, folder: Path) -> str:
    (folder / "output").write_text(text, "utf-8")
    return PULUMI.format(output="").replace("printf 'error: \\n'", f"cat {folder / 'output'}")


def test_a_refusal_is_shown_without_the_traceback_that_it_ends_the_program_with(
    up: Up, tmp_path: Path, capsys: Capsys
) -> None:
    with pytest.raises(
        CommandError, match=r"^services small-main was refused: exceeded quota: tight, requested: count/"
    ):
        up(printing(REFUSED, tmp_path))
    shown = capsys.readouterr().out
    lines = REFUSED.splitlines()
    assert shown.splitlines() == [*lines[:3], *lines[4:9], *lines[25:]]


STACK = " +  pulumi:pulumi:Stack tidegate-dev-lab creating (0s) "
BEHIND_PROGRESS = [
    f"{STACK}Traceback (most recent call last):",
    f'{STACK}  File "/opt/bin/pulumi-language-python-exec", line 232, in <module>',
    " +  kubernetes:core/v1:ConfigMap a creating (0s) ",
    f"{STACK}    loop.run_until_complete(coro)",
    "@ updating....",
    f"{STACK}           ^^^^^^^^^^^^^^^^^^",
    f"{STACK}KeyboardInterrupt",
    f"{STACK}During handling of the above exception, another exception occurred:",
    f"{STACK}Traceback (most recent call last):",
    f'{STACK}  File "/opt/lib/python3.11/threading.py", line 1139, in _wait_for_tstate_lock',
    " +  kubernetes:core/v1:ConfigMap a created (0.1s) ",
    f"{STACK}KeyboardInterrupt",
    f"{STACK}error: update failed",
]
"""Lines of a traceback, between lines about other resources, as Pulumi 3.260 prints them while it works."""


@pytest.mark.parametrize("does", [" +  {}creating (0s) ", " ~  {}updating (12s) ", "    {}running "])
def test_a_traceback_behind_the_progress_of_the_program_is_not_shown_and_all_else_is(
    up: Up, tmp_path: Path, capsys: Capsys, does: str
) -> None:
    (one,) = [line for line in REFUSED.splitlines() if line.startswith(" + ") and "Traceback" in line]
    lines = [line.replace(STACK, does.format("pulumi:pulumi:Stack tidegate-dev-lab ")) for line in BEHIND_PROGRESS]
    output = REFUSED.replace(one, "\n".join(lines))
    with pytest.raises(CommandError, match="refused: exceeded quota"):
        up(printing(output, tmp_path))
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line in shown] == [lines[at] for at in (2, 4, 10, 12)]
    assert not [line for line in shown if "File" in line or "Interrupt" in line or "^^" in line]


def test_a_traceback_that_nothing_explains_is_shown_whole(up: Up, tmp_path: Path, capsys: Capsys) -> None:
    output = REFUSED.replace("is forbidden: exceeded quota", "is not to our liking").replace("\n\n", "\n")
    assert up(printing(output, tmp_path)) == 255
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(output.splitlines())


# ---- Pulumi's actions ----


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: Patch) -> StandIn:

    def write(content: bytes) -> Path:
        (tmp_path / "pulumi").write_bytes(content)
        (tmp_path / "pulumi").chmod(0o755)
        return tmp_path / "pulumi"

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return write


@pytest.mark.parametrize("version", ["v3.219.0", "3.260.1", "v4.0.0-alpha.1+abc"])
def test_a_pulumi_that_is_new_enough_is_found(stand_in: StandIn, version: str) -> None:
    assert pulumi_cli.find() is None
    path = stand_in(f"#!/bin/sh\necho {version}; echo 'warning: something' >&2".encode())
    assert pulumi_cli.find() == pulumi_cli.PulumiCli(str(path), version.removeprefix("v"))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (b"#!/bin/sh\necho v3.218.9", "is Pulumi 3.218.9, but Tidegate needs 3.219.0 or later"),
        (b"#!/bin/sh\necho hello", 'does not work: `pulumi version`: "hello"'),
        (b"#!/bin/sh\nexit 7", "it printed nothing"),
        (b"#!/bin/sh\necho broken >&2; exit 1", '`pulumi version`: "broken"'),
        (b"#!/bin/sh\ntrap '' TERM; sleep 300 & wait; sleep 300", "`pulumi version` did not end within 2 seconds"),
        (b"\x7fELF nonsense, for another machine", "cannot be run"),
    ],
    ids=range(6),
)
def test_an_unsuitable_pulumi_is_refused(stand_in: StandIn, script: bytes, reason: str) -> None:
    stand_in(script)
    with pytest.raises(CommandError, match=re.escape(reason)):
        pulumi_cli.find(2)


def test_a_stack_gets_another_definition_only_on_request(up: Up, tmp_path: Path) -> None:
    script = PULUMI.format(output="").replace("echo '[]'", """echo '[{"name": "o/dev-lab", "resourceCount": 53}]'""")
    there = """echo '{"tidegate:environment": {"value": "dev"}, "tidegate:dataPlane": {"value": "lab"}}'"""
    script = script.replace("echo '{}'", there).replace("printf", f"touch {tmp_path}/upped; printf")
    with pytest.raises(CommandError, match=r"pulumi config set definition .*/two\.yaml --stack dev-lab"):
        up(script)
    assert not (tmp_path / "upped").exists()


def test_a_stack_is_taken_down_without_a_change_of_its_configuration(definition: Path, stand_in: StandIn) -> None:
    script = PULUMI.replace("echo '[]'", """echo '[{{"name": "o/dev-lab", "resourceCount": 53}}]'""")
    script = script.replace('"up --yes") printf', '"destroy --yes") exit 0 ;;\n"up --yes") printf')
    stand_in(script.replace('"stack init"|"config set-all")', '"stack init")').format(output="").encode())
    stack = read_definition(definition).stacks[0]
    assert pulumi_cli.operate(found(), stack, definition, pulumi_cli.DESTROY) == 0


QUERIED = """#!/bin/sh
echo "$1 $2" >> "$0.calls"
case "$1 $2" in
"version "*) echo v3.260.0 ;;
"stack export") echo "error: no stack named 'dev-lab' found" >&2; exit 255 ;;
"config --json") echo '{}' ;;
esac
"""


@pytest.mark.parametrize("is_configured", [False, True])
def test_known_facts_about_a_new_stack_are_not_queried(
    definition: Path, stand_in: StandIn, tmp_path: Path, monkeypatch: Patch, is_configured: bool
) -> None:
    """Each query takes Pulumi half a second."""
    program = stand_in(QUERIED.encode())
    monkeypatch.setattr(pulumi_cli, "PROJECT", tmp_path)
    cli, stack = found(), read_definition(definition).stacks[0]
    if is_configured:
        config = {"environment": "dev", "dataPlane": "lab", "definition": str(definition.relative_to(tmp_path))}
        (tmp_path / "stacks").mkdir(exist_ok=True)
        tree = {"config": {f"tidegate:{key}": value for key, value in config.items()}}
        (tmp_path / "stacks" / "Pulumi.dev-lab.yaml").write_text(yaml.safe_dump(tree), "utf-8")
    resources, state = pulumi_state.found(cli, stack)
    assert (resources, state) == ({}, pulumi_state.State({}))
    resources = pulumi_state.import_renamed_stack(cli, stack, resources)
    assert pulumi_cli.operate(cli, stack, definition, pulumi_cli.UP, resources) == 0
    configures = [] if is_configured else ["config --json", "config set-all"]
    calls = (program.parent / "pulumi.calls").read_text("utf-8").splitlines()
    assert calls[1:] == ["stack export", "stack init", *configures, "up --yes"]


def test_the_oldest_pulumi_is_that_of_the_project() -> None:
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    assert project["requiredPulumiVersion"] == ">=" + ".".join(map(str, pulumi_cli.OLDEST))
    assert (ROOT / pulumi_cli.DEFAULT_DEFINITION).is_file()


def test_a_state_of_a_former_name_gets_the_names_that_the_program_gives(
    edit: Callable[[str, str], None], definition: Path
) -> None:
    """Other names with the same beginning stay, and so do texts that are not resource names."""
    edit("{name: lab, ", "{name: labs, formerly: [lab], ")

    def state(stack: str, plane: str) -> dict[str, object]:
        begin = "urn:pulumi:dev-lab::tidegate::tidegate:components:Environment"
        provider = "urn:pulumi:dev-lab::tidegate::pulumi:providers:kubernetes::cluster"
        inside = {
            "urn": f"{begin}$kubernetes:core/v1:Namespace::{stack}-namespace",
            "type": "kubernetes:core/v1:Namespace",
            "parent": f"{begin}::{stack}",
            "provider": f"{provider}::6f1c",
            "dependencies": [f"{begin}$kubernetes:core/v1:Service::{stack}-a", f"{begin}::dev-labor-a"],
            "outputs": {"metadata": {"name": "dev-lab", "labels": {"dev-lab-a": "dev-lab"}}},
        }
        identified = {"clusterIdentifier": plane, "context": "lab"}
        made = {"urn": provider, "type": "pulumi:providers:kubernetes", "inputs": identified, "outputs": identified}
        return {"version": 3, "deployment": {"resources": [made, inside]}}

    now = read_definition(definition).stacks[0]
    assert now.name == "dev-labs"
    assert pulumi_state.renamed(state("dev-lab", "lab"), "dev-lab", now) == state("dev-labs", "labs")
    assert pulumi_state.renamed(state("dev-labs", "labs"), "dev-lab", now) == state("dev-labs", "labs"), "and again"
