"""The chart on a real kubelet: Helm's release becomes ready under Pod Security restricted."""

from .environment import Environment

ENVIRONMENT = "charted"


def test_every_pod_of_a_release_becomes_ready_where_a_root_pod_is_refused(environment: Environment) -> None:
    root = ("run", "root", "--image=localhost/pause:test", "--dry-run=server")
    refused = environment.machine.kubectl(f"--namespace={environment.namespace}", *root, check=False)
    assert 'violates PodSecurity "restricted:' in refused.stderr
    for workload in ("inference-proxy", "ondemand-small", "preload-main"):
        assert environment.pods(workload), workload
