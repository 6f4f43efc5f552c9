"""The command that starts Triton, run by a real shell. It needs a secret."""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tidegate_contracts import eviction_process, triton

from components import Environment
from components.evaluate import evaluate
from stacks.resolve import resolve
from stacks.validate import read_definition

from .objects import named, template

ROOT = Path(__file__).parents[2]
TRITON = '#!/bin/sh\nfor argument in "$@"; do printf "%s\\n" "$argument"; done\n'


SERVING = """#!/bin/sh
trap 'echo ended; exit 0' TERM
echo serving
touch "$0.serving"
for i in $(seq 200); do sleep 0.1; done
"""


def started(
    pool: str, folder: Path, path: str = "/usr/bin:/bin", program: str = TRITON
) -> subprocess.CompletedProcess[str]:
    """Run a pool's command as the kubelet would, with a tritonserver that prints its arguments."""
    definition = read_definition(ROOT / "stacks/inference.yaml")
    stack = definition.stacks[0]
    objects = evaluate(lambda: Environment(stack.name, resolve(stack, definition.lock)))
    (container,) = template(named(objects, "StatefulSet", pool))["spec"]["containers"]
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/tritonserver").write_text(program)
    (folder / "bin/tritonserver").chmod(0o755)
    command = [
        part.replace(eviction_process.CONTROL_ROOT, str(folder))
        .replace("/tmp/started", f"{folder}/started")
        .replace("/dev/shm", str(folder))
        .replace("$$", "$")  # As Kubernetes does.
        for part in container["command"]
    ]
    with subprocess.Popen(
        [*command, *container["args"]],
        env={"PATH": f"{folder}/bin:{path}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=30)
        finally:
            with suppress(ProcessLookupError):  # The other processes of a container end with its first one.
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_an_on_demand_triton_starts_with_the_policys_secret_and_a_clean_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("s3cret/+=\n")
    left = tmp_path / "triton_python_backend_shm_region_1f0a"
    left.touch()
    done = started("ondemand-small", tmp_path)
    assert done.returncode == 0, done.stderr
    arguments = done.stdout.splitlines()
    restriction = f"{','.join(triton.RESTRICTED_PROTOCOLS)}:{triton.RESTRICTED_KEY}=s3cret/+="
    assert arguments[-2:] == [f"--http-restricted-api={restriction}", f"--grpc-restricted-protocol={restriction}"]
    assert "--model-control-mode=explicit" in arguments
    assert not left.exists()


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_triton_is_not_started_without_a_secret(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "secret").write_text(content)
    for done in (
        started("ondemand-small", tmp_path),
        started("preload-main", tmp_path, path=str(tmp_path / "nowhere")),
    ):
        assert done.returncode != 0
        assert done.stdout == ""


def test_an_on_demand_triton_ends_at_its_policys_request_but_not_at_an_older_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    recycle = tmp_path / Path(eviction_process.RECYCLE_FILE).name
    recycle.touch()
    requests = []

    def ask() -> None:
        while not (tmp_path / "bin/tritonserver.serving").exists():
            time.sleep(0.05)
        time.sleep(3)  # It checks every two seconds.
        requests.append(True)
        recycle.touch()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    done = started("ondemand-small", tmp_path, program=SERVING)
    assert done.stdout == "serving\nended\n"
    assert done.returncode == 0
    assert requests


def test_a_preloading_triton_has_a_new_secret_at_each_start(tmp_path: Path) -> None:
    first, second = (started("preload-main", tmp_path).stdout.splitlines()[-1].partition("none") for _ in range(2))
    assert first != second
    secret = first[0].partition(f"{triton.RESTRICTED_KEY}=")[2]
    assert len(secret) >= 40
