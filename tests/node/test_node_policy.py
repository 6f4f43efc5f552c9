"""The eviction policy's own image on a real kubelet, beside a stand-in for Triton, as the components declare it."""

import json
import stat
from datetime import datetime
from http import HTTPStatus
from typing import Any

import pytest
from tidegate_contracts import eviction_process, triton

from .built_images import POLICY, built_image, contents
from .environment import PATIENCE, Environment, container_status, made_once, until
from .keeper import ROOT
from .machine import Machine

IMAGE = "localhost/inference-eviction-policy:test"
NAMESPACE = "inference-kept"
DEFINITION = ROOT / "tests" / "definitions" / "real-policy.yaml"
POD, CONTAINER = "ondemand-main-0", "eviction-policy"
KEEP = "tests.tidegate.example/kept"
"""A finalizer: what has ended can be looked at as long as somebody holds it."""

ASK = """
import json, sys, urllib.error, urllib.request
url, method, *headers = sys.argv[1:]
headers = dict(header.split(": ", 1) for header in headers)
request = urllib.request.Request(url, b"{}" if method == "POST" else None, headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""
LOOK = """
import json, os, sys
found = {}
for file in sys.argv[1:]:
    about = os.stat(file)
    found[file] = [about.st_mode & 0o7777, about.st_uid, open(file).read()]
print(json.dumps(found))
"""
RECYCLE = f"open({eviction_process.RECYCLE_FILE!r}, 'w').write('a test wants it')"
INDEX = f"http://127.0.0.1:{triton.HTTP_PORT}/v2/repository/index"


@pytest.fixture(scope="package")
def kept(node: Machine) -> Environment:
    """An environment with a real policy, on the same node as the other ones."""
    shared = Environment(node, NAMESPACE, DEFINITION)
    made_once(shared.machine.folder / "kept", lambda: shared.install("statefulset/ondemand-main"))
    return shared


def python(kept: Environment, program: str, *arguments: str, check: bool = True) -> str:
    """Run a program in the policy's container; return what it says."""
    return kept.run(POD, CONTAINER, "python", "-c", program, *arguments, check=check).strip()


def ask(kept: Environment, url: str, *headers: str, method: str = "GET") -> tuple[int, str]:
    """Ask from inside the policy's container; return status and body."""
    status, body = json.loads(python(kept, ASK, url, method, *headers))
    return status, body


def admin(path: str) -> str:
    return f"http://127.0.0.1:{eviction_process.ADMIN_PORT}{path}"


def secret(kept: Environment) -> str:
    """Return the control secret as Triton's container sees it."""
    return kept.run(POD, "triton", "cat", eviction_process.CONTROL_SECRET_FILE)


@pytest.mark.usefixtures("node")
def test_the_image_adds_the_policy_to_its_base_and_nothing_of_how_it_was_built() -> None:
    image = contents(built_image(POLICY, IMAGE))
    assert image.names == [IMAGE]
    assert image.configuration["User"] == "1000:1000"
    assert image.configuration["Cmd"] == ["python", "-m", eviction_process.MODULE, "serve"]
    assert not [setting for setting in image.configuration["Env"] if setting.startswith("PIP_")]
    assert "/opt/tidegate/tidegate_eviction/__main__.py" in image.added
    assert not [name for name in image.added if name.endswith(("pip.conf", "eviction.txt"))]
    assert not [name for name, file in image.added.items() if file.mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)]
    assert sum(file.size for file in image.added.values()) < 200 << 20


def test_the_image_holds_no_tool_that_installs_or_builds_and_runs_as_nobody_in_particular(kept: Environment) -> None:
    look = "import importlib.util as u; print([n for n in ('pip', 'setuptools', 'wheel') if u.find_spec(n)])"
    with kept.alone(POD):
        assert python(kept, look) == "[]"
        (policy,) = kept.pod(POD)["spec"]["initContainers"]
        assert policy["image"] == IMAGE
        assert policy["restartPolicy"] == "Always"
        assert policy["securityContext"]["readOnlyRootFilesystem"] is True
        status = python(kept, "print(open('/proc/1/status').read())")
        (user,) = [line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")]
        assert user == ["1000"] * 4
        for place in ("/opt/tidegate", "/tmp", eviction_process.SETTINGS_ROOT, triton.REPOSITORY_ROOT):
            said = python(kept, f"open('{place}/written', 'w')", check=False)
            assert "Read-only file system" in said, place


def test_it_starts_before_triton_and_says_so_and_lists_the_models_of_the_components(kept: Environment) -> None:
    with kept.alone(POD):
        pod = kept.pod(POD)
        status = container_status(pod, CONTAINER)
        assert status["started"]
        assert status["restartCount"] == 0
        for path in (eviction_process.STARTED_PATH, eviction_process.LIVE_PATH, eviction_process.METRICS_PATH):
            assert ask(kept, admin(path))[0] == HTTPStatus.OK, path
        said = [json.loads(line) for line in kept.log(pod, CONTAINER).lines()]
        (serving,) = [line for line in said if line["message"] == "serving"]
        assert datetime.fromisoformat(serving["time"]) < kept.log(pod, "triton").wait("started").at
        listed = json.loads(kept.run(POD, CONTAINER, "python", "-m", eviction_process.MODULE, "list", "--json"))
        assert listed["capacityBytes"] == 100 << 20
        (digits,) = [model for model in listed["models"] if model["model"] == "digits"]
        assert (digits["footprintBytes"], digits["footprintFrom"]) == (50 << 20, "declared")


def test_its_secret_is_for_its_own_user_and_group_and_opens_the_model_control_of_triton(kept: Environment) -> None:
    file = eviction_process.CONTROL_SECRET_FILE
    with kept.alone(POD):
        mode, user, text = json.loads(python(kept, LOOK, file))[file]
        assert (mode, user) == (0o640, 1000)
        assert len(text) == 64
        assert secret(kept) == text
        assert ask(kept, INDEX, f"{triton.RESTRICTED_KEY}: {text}", method="POST") == (HTTPStatus.OK, "[]\n")
        for wrong in ((), (f"{triton.RESTRICTED_KEY}: {text[:-1]}",)):
            assert ask(kept, INDEX, *wrong, method="POST")[0] == HTTPStatus.FORBIDDEN
        assert text not in kept.kubectl("logs", POD, "--all-containers")


def test_a_triton_that_it_wants_restarted_is_started_again_once_and_it_goes_on_itself(kept: Environment) -> None:
    with kept.alone(POD):
        pod, before = kept.pod(POD), secret(kept)
        server, policy = container_status(pod, "triton"), container_status(pod, CONTAINER)
        first = kept.log(pod, "triton", server["restartCount"])
        python(kept, RECYCLE)
        first.wait("sigterm", 20)
        until(lambda: restarts(kept) == server["restartCount"] + 1, PATIENCE, "a new Triton")
        # Start-up and readiness are longer than several looks at the file, which is older than this Triton.
        kept.log(pod, "triton", server["restartCount"] + 1).wait("started")
        until(lambda: container_status(kept.pod(POD), "triton")["ready"], PATIENCE, "a Triton that is ready")
        now = kept.pod(POD)
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        assert container_status(now, "triton")["restartCount"] == server["restartCount"] + 1
        assert container_status(now, "triton")["lastState"]["terminated"]["exitCode"] == 0
        assert first.names()[-1] == "exit", "it ended what was under way"
        assert container_status(now, CONTAINER)["containerID"] == policy["containerID"], "the policy was not touched"
        assert ask(kept, admin(eviction_process.LIVE_PATH))[0] == HTTPStatus.OK
        assert secret(kept) == before
        assert ask(kept, INDEX, f"{triton.RESTRICTED_KEY}: {before}", method="POST")[0] == HTTPStatus.OK


def restarts(kept: Environment) -> int:
    return int(container_status(kept.pod(POD), "triton")["restartCount"])


def test_told_to_go_it_leaves_after_triton_and_nobody_has_to_kill_it(kept: Environment) -> None:
    with kept.alone(POD):
        pod = kept.pod(POD)
        server = kept.log(pod, "triton", container_status(pod, "triton")["restartCount"])
        policy = kept.log(pod, CONTAINER)
        finalizers(kept, KEEP)
        try:
            kept.kubectl("delete", "pod", POD, "--wait=false")
            ended = until(lambda: both_ended(kept.pod(POD)), PATIENCE, "both to have ended")
        finally:
            finalizers(kept)
        assert ended == {"triton": 0, CONTAINER: 0}, "exit codes"
        said = [json.loads(line) for line in policy.lines()]
        (stopping,) = [line for line in said if line["message"].startswith("stopping")]
        assert said[-1]["message"] == "stopped"
        assert server.wait("exit").at < datetime.fromisoformat(stopping["time"])
        kept.wait_until_ready(POD)


def finalizers(kept: Environment, *names: str) -> None:
    patch = json.dumps({"metadata": {"finalizers": names}})
    kept.kubectl("patch", "pod", POD, "--type=merge", f"--patch={patch}")


def both_ended(pod: dict[str, Any]) -> dict[str, int]:
    """Return the exit codes of both containers once there are two."""
    states = {name: container_status(pod, name)["state"].get("terminated") for name in ("triton", CONTAINER)}
    return {name: state["exitCode"] for name, state in states.items()} if all(states.values()) else {}
