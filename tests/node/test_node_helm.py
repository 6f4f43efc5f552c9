"""The chart in Helm's hands on a real kubelet: `helm test` asks a proxy and, through it, each server."""

import time
from subprocess import CompletedProcess

import pytest
from tidegate_contracts.proxy_process import READY_PATH, server_ready_path

from charts.smoke_test_program import PATIENCE_SECONDS

from .environment import PATIENCE, Environment, until

ENVIRONMENT = "charted"
PRELOAD = "statefulset/preload-main"


def helm_test(charted: Environment) -> "CompletedProcess[str]":
    """Run `helm test` with all that it can say; return how it ended."""
    return charted.machine.helm("test", charted.release, "--namespace", charted.namespace, "--logs")


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


def test_helm_test_passes_when_the_proxy_and_every_server_are_ready(environment: Environment) -> None:
    """Under Pod Security restricted, by the cluster's own DNS, in the proxy's image."""
    root = ("run", "root", "--image=localhost/pause:test", "--dry-run=server")
    refused = environment.machine.kubectl(f"--namespace={environment.namespace}", *root, check=False)
    assert 'violates PodSecurity "restricted:' in refused.stderr
    done = helm_test(environment)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (READY_PATH, server_ready_path("ondemand"), server_ready_path("preload"))
    assert verdicts(done.stdout) == {path: {"ok"} for path in asked}
    assert left(environment) == []


@pytest.mark.thorough
def test_helm_test_fails_and_names_the_server_that_is_not_ready(environment: Environment) -> None:
    """It waits as long as it is meant to, says it with and without --logs, and passes when the server is back."""
    why = "HTTP 503 no replica of preload is ready"
    try:
        environment.kubectl("scale", PRELOAD, "--replicas=0")
        until(lambda: not environment.pods("preload-main"), PATIENCE, "preload to take leave")
        started = time.monotonic()
        done = helm_test(environment)
        seconds = time.monotonic() - started
        assert done.returncode != 0
        assert verdicts(done.stdout) == {
            READY_PATH: {"ok"},
            server_ready_path("ondemand"): {"ok"},
            server_ready_path("preload"): {f"FAILED {why}"},
        }
        # Also who did not ask for logs is told by Helm which server it is, and finds the pod.
        assert f"{server_ready_path('preload')}: {why}" in done.stderr
        assert "pod/helm-test" in left(environment)
        assert PATIENCE_SECONDS <= seconds < PATIENCE_SECONDS + 60
    finally:
        environment.kubectl("scale", PRELOAD, "--replicas=1")
    environment.wait_until_ready()
    again = helm_test(environment)
    assert again.returncode == 0, again.stdout + again.stderr
    assert left(environment) == []
