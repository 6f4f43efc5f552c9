"""The chart in Helm's hands on a real kubelet: `helm test` asks a proxy and, through it, each server."""

import time
from subprocess import CompletedProcess

import pytest
from tidegate_contracts.proxy_process import READY_PATH, server_ready_path
from tidegate_proxy.access.api_keys import hash_line

from charts import CHART, values_of
from charts.smoke_test_program import PATIENCE_SECONDS
from charts.values_file import values_text
from stacks.resolve import resolve
from stacks.validate import read_definition

from .environment import DEFINITION, PATIENCE, PROXIES, Environment, made_once, until

NAMESPACE, RELEASE = "inference-charted", "charted-node"
PRELOAD, ON_DEMAND = "statefulset/preload-main", "statefulset/ondemand-small"


@pytest.fixture(scope="package")
def charted(environment: Environment) -> Environment:
    """The environment that Helm has installed, on the same node as the other one."""
    shared = Environment(environment.machine, NAMESPACE)
    made_once(shared.machine.folder / "installed", lambda: install(shared))
    return shared


def install(charted: Environment) -> None:
    """Install the chart as docs/helm.md says, with what `make values` writes; the keys of its callers come first."""
    node = charted.machine
    definition = read_definition(DEFINITION)
    (stack,) = (stack for stack in definition.stacks if stack.name == RELEASE)
    values = node.folder / "values.yaml"
    values.write_text(values_text(values_of(resolve(stack, definition.lock)), "Of tests/node."), "utf-8")
    node.kubectl("create", "namespace", NAMESPACE)
    charted.kubectl("create", "secret", "generic", "api-keys", f"--from-literal=tests={hash_line(charted.key)}")
    options = ("--namespace", NAMESPACE, "--create-namespace", "--take-ownership", "-f", values)
    done = node.helm("install", RELEASE, CHART, *options, "--wait", "--timeout", "120s", seconds=150)
    assert done.returncode == 0, done.stderr


def helm_test(charted: Environment) -> "CompletedProcess[str]":
    """Run `helm test` with all that it can say; return how it ended."""
    return charted.machine.helm("test", RELEASE, "--namespace", NAMESPACE, "--logs", seconds=240)


def verdicts(said: str) -> dict[str, set[str]]:
    """Return what the pod said of each path that it asked for."""
    found: dict[str, set[str]] = {}
    for line in said.splitlines():
        if line.startswith(("ok  ", "FAILED  ")):
            verdict, _, _, path, *why = line.split(maxsplit=4)
            found.setdefault(path.removesuffix(":"), set()).add(" ".join([verdict, *why]))
    return found


def left(charted: Environment) -> list[str]:
    """Return what is there of `helm test`."""
    selector = "--selector=app.kubernetes.io/name=helm-test"
    return charted.kubectl("get", "pods,networkpolicies", selector, "--output=name").split()


def test_helm_test_passes_when_the_proxy_and_every_server_are_ready(charted: Environment) -> None:
    """Under Pod Security restricted, by the cluster's own DNS, in the proxy's image."""
    with charted.alone(PROXIES, PRELOAD, ON_DEMAND):
        root = ("run", "root", "--image=localhost/pause:test", "--dry-run=server")
        refused = charted.machine.kubectl(f"--namespace={NAMESPACE}", *root, check=False)
        assert 'violates PodSecurity "restricted:' in refused.stderr
        done = helm_test(charted)
        assert done.returncode == 0, done.stdout + done.stderr
        asked = (READY_PATH, server_ready_path("ondemand"), server_ready_path("preload"))
        assert verdicts(done.stdout) == {path: {"ok"} for path in asked}
        assert left(charted) == []


@pytest.mark.thorough
def test_helm_test_fails_and_names_the_server_that_is_not_ready(charted: Environment) -> None:
    """It waits as long as it is meant to, says it with and without --logs, and passes when the server is back."""
    why = "HTTP 503 no replica of preload is ready"
    with charted.alone(PROXIES, PRELOAD, ON_DEMAND):
        try:
            charted.kubectl("scale", PRELOAD, "--replicas=0")
            until(lambda: not charted.pods("preload-main"), PATIENCE, "preload to take leave")
            started = time.monotonic()
            done = helm_test(charted)
            seconds = time.monotonic() - started
            assert done.returncode != 0
            assert verdicts(done.stdout) == {
                READY_PATH: {"ok"},
                server_ready_path("ondemand"): {"ok"},
                server_ready_path("preload"): {f"FAILED {why}"},
            }
            # Also who did not ask for logs is told by Helm which server it is, and finds the pod.
            assert f"{server_ready_path('preload')}: {why}" in done.stderr
            assert "pod/helm-test" in left(charted)
            assert PATIENCE_SECONDS <= seconds < PATIENCE_SECONDS + 60
        finally:
            charted.kubectl("scale", PRELOAD, "--replicas=1")
        charted.wait_until_ready(PRELOAD)
        again = helm_test(charted)
        assert again.returncode == 0, again.stdout + again.stderr
        assert left(charted) == []
