"""The eviction policy's image on a real kubelet, with a stand-in for Triton, as the components declare it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from tidegate_contracts import eviction_process, lease, proxy_process, triton

from tests.processes import until

from .environment import Environment, container_status

ENVIRONMENT = "kept"
POD, CONTAINER = "ondemand-main-0", "eviction-policy"
KEEP = "tests.tidegate.example/kept"  # A finalizer that keeps an ended pod for inspection.
PRE_STOP, DRAIN = 10, 1
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


def python(kept: Environment, program: str, *arguments: str, check: bool = True) -> str:
    return kept.run(POD, CONTAINER, "python", "-c", program, *arguments, check=check).strip()


def request(kept: Environment, url: str, *headers: str, method: str = "GET") -> tuple[int, str]:
    status, _, body = kept.request(POD, CONTAINER, url, *headers, method=method)
    return status, body


def admin(path: str) -> str:
    return f"http://127.0.0.1:{eviction_process.ADMIN_PORT}{path}"


def secret(kept: Environment) -> str:
    return kept.run(POD, "triton", "cat", eviction_process.CONTROL_SECRET_FILE)


def test_it_starts_before_triton_and_logs_it_and_lists_the_models_of_the_components(environment: Environment) -> None:
    """It writes only to its volumes."""
    pod = environment.pod(POD)
    status = container_status(pod, CONTAINER)
    assert status["started"]
    assert status["restartCount"] == 0
    for path in (eviction_process.STARTED_PATH, eviction_process.LIVE_PATH, eviction_process.METRICS_PATH):
        assert request(environment, admin(path))[0] == HTTPStatus.OK, path
    logged = [json.loads(line) for line in environment.log(pod, CONTAINER).lines()]
    (serving,) = [line for line in logged if line["message"] == "serving"]
    assert datetime.fromisoformat(serving["time"]) < environment.log(pod, "triton").wait("started").at
    metrics = request(environment, admin(eviction_process.METRICS_PATH))[1]
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(values['tidegate_eviction_bytes{kind="capacity"}']) == 100 << 20
    assert float(values['tidegate_eviction_model_footprint_bytes{from="declared",model="digits"}']) == 50 << 20
    (policy,) = pod["spec"]["initContainers"]
    assert policy["restartPolicy"] == "Always"
    for place in ("/tmp", eviction_process.SETTINGS_ROOT, triton.REPOSITORY_ROOT):
        assert "Read-only file system" in python(environment, f"open('{place}/written', 'w')", check=False), place


def test_its_secret_is_for_its_own_user_and_group_and_opens_the_model_control_of_triton(
    environment: Environment,
) -> None:
    file = eviction_process.CONTROL_SECRET_FILE
    mode, user, text = json.loads(python(environment, LOOK, file))[file]
    assert (mode, user) == (0o640, 1000)
    assert len(text) == 64
    assert secret(environment) == text
    assert request(environment, INDEX, f"{triton.RESTRICTED_KEY}: {text}", method="POST") == (HTTPStatus.OK, "[]\n")
    for wrong in ((), (f"{triton.RESTRICTED_KEY}: {text[:-1]}",)):
        assert request(environment, INDEX, *wrong, method="POST")[0] == HTTPStatus.FORBIDDEN
    assert text not in environment.kubectl("logs", POD, "--all-containers")


def test_the_lease_port_accepts_the_tokens_of_the_proxies_of_its_environment_only(
    environment: Environment, environments: Mapping[str, Environment]
) -> None:
    """No program enforces network policies here, so every pod reaches the port."""
    listing = f"http://127.0.0.1:{eviction_process.LEASE_PORT}{lease.MODELS_PATH}"

    def status(token: str, url: str = listing, method: str = "GET") -> int:
        return request(environment, url, *([f"authorization: Bearer {token}"] if token else []), method=method)[0]

    def proxy_token(one: Environment) -> str:
        file = f"{proxy_process.LEASE_TOKEN_ROOT}/{proxy_process.LEASE_TOKEN_FILE}"
        return one.run(one.proxy(), "proxy", "cat", file)

    own = proxy_token(environment)
    assert status(own) == HTTPStatus.OK
    environments["trial"].wait_until_ready()
    policy_token = environment.run(POD, CONTAINER, "cat", f"{eviction_process.CLUSTER_ROOT}/token")
    for other in ("", proxy_token(environments["trial"]), policy_token, own[:-6] + "AAAAAA"):
        assert status(other) == HTTPStatus.UNAUTHORIZED
        for path in (lease.ACQUIRE_PATH, lease.RENEW_PATH, lease.RELEASE_PATH):
            url = listing.replace(lease.MODELS_PATH, path)
            assert status(other, url, "POST") == HTTPStatus.UNAUTHORIZED, path
    assert request(environment, admin(lease.MODELS_PATH))[0] == HTTPStatus.NOT_FOUND


def test_a_triton_that_it_wants_restarted_is_started_again_once_and_it_goes_on_itself(environment: Environment) -> None:
    pod, before = environment.pod(POD), secret(environment)
    server, policy = container_status(pod, "triton"), container_status(pod, CONTAINER)
    first = environment.log(pod, "triton", server["restartCount"])
    python(environment, RECYCLE)
    first.wait("sigterm", 20)
    # Startup and readiness take longer than several checks of the file, which is older than this Triton.
    environment.log(pod, "triton", server["restartCount"] + 1).wait("started")
    environment.wait_until_ready()
    now = environment.pod(POD)
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert container_status(now, "triton")["restartCount"] == server["restartCount"] + 1
    assert container_status(now, "triton")["lastState"]["terminated"]["exitCode"] == 0
    assert first.names()[-1] == "exit", "it ended what was under way"
    assert container_status(now, CONTAINER)["containerID"] == policy["containerID"], "the policy was not touched"
    assert request(environment, admin(eviction_process.LIVE_PATH))[0] == HTTPStatus.OK
    assert secret(environment) == before
    assert request(environment, INDEX, f"{triton.RESTRICTED_KEY}: {before}", method="POST")[0] == HTTPStatus.OK


def test_a_pod_that_goes_leaves_the_names_first_then_triton_drains_and_the_policy_goes_last(
    environment: Environment,
) -> None:
    pod, host = environment.pod(POD), f"ondemand-main-headless.{environment.namespace}.svc"
    address, grace = pod["status"]["podIP"], pod["spec"]["terminationGracePeriodSeconds"]
    server = environment.log(pod, "triton", container_status(pod, "triton")["restartCount"])
    policy = environment.log(pod, CONTAINER)
    assert address in environment.addresses()[host]
    hold(environment, KEEP)
    try:
        deleted_at = datetime.now(UTC)
        environment.kubectl("delete", "pod", POD, "--wait=false")
        until(f"{host} without {address}", lambda: address not in environment.addresses()[host])
        left = datetime.now(UTC)
        assert environment.answers(pod), "it serves callers that have not noticed yet"
        ended = until("both to have ended", lambda: exit_codes(environment))
    finally:
        hold(environment)
    assert ended == {"triton": 0, CONTAINER: 0}
    stopped, gone = server.wait("sigterm"), server.wait("exit")
    assert left < stopped.at, "SIGTERM came while DNS still had it"
    assert PRE_STOP <= (stopped.at - deleted_at).total_seconds() < grace
    assert (gone.at - stopped.at).total_seconds() >= DRAIN
    logged = [json.loads(line) for line in policy.lines()]
    (stopping,) = [line for line in logged if line["message"].startswith("stopping")]
    assert gone.at < datetime.fromisoformat(stopping["time"]), "the policy stops after its Triton"
    assert logged[-1]["message"] == "stopped"
    assert (datetime.fromisoformat(logged[-1]["time"]) - deleted_at).total_seconds() < grace
    environment.wait_until_ready()
    assert environment.pod(POD)["metadata"]["uid"] != pod["metadata"]["uid"]


def hold(kept: Environment, *finalizers: str) -> None:
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    kept.kubectl("patch", "pod", POD, "--type=merge", f"--patch={patch}")


def exit_codes(kept: Environment) -> dict[str, int]:
    pod = kept.pod(POD)
    states = {name: container_status(pod, name)["state"].get("terminated") for name in ("triton", CONTAINER)}
    return {name: state["exitCode"] for name, state in states.items()} if all(states.values()) else {}
