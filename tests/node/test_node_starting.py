import json
from datetime import datetime
from typing import Any

from tidegate_contracts import eviction_process, proxy_process, triton
from tidegate_proxy.access.api_keys import hash_line

from tests.processes import until

from .environment import Environment, condition, container_status, is_ready

ON_DEMAND, PRELOAD = "ondemand-small-0", "preload-main-0"
SECRET_FILE = eviction_process.CONTROL_SECRET_FILE
SECRETS = "/var/run/secrets/"
TOKENS = {"proxy": "leases", "eviction-policy": "cluster"}
"""Directory with the only token of a container."""


def all_containers(environment: Environment) -> list[tuple[str, dict[str, Any]]]:
    """Return every container of one pod of each kind, with the pod's name."""
    pods = [environment.pod(ON_DEMAND), environment.pod(PRELOAD), environment.pods("inference-proxy")[0]]
    return [
        (pod["metadata"]["name"], container)
        for pod in pods
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    ]


def test_triton_is_started_only_when_the_policy_has_made_its_secret(environment: Environment) -> None:
    """The policy is a native sidecar with a startup probe. The stand-in takes two seconds to write the secret."""
    pod = environment.pod(ON_DEMAND)
    policy, server = environment.log(pod, "eviction-policy"), environment.log(pod, "triton")
    started, secret = policy.wait("started"), policy.wait("secret")
    assert (secret.at - started.at).total_seconds() >= 2
    assert secret.at <= server.wait("started").at
    assert "failed" not in server.names()
    assert container_status(pod, "eviction-policy")["ready"]


def test_a_triton_counts_as_ready_only_when_its_probe_passes(environment: Environment) -> None:
    """The stand-in is live after two seconds, which a startup probe notices after ten, and ready after fourteen."""
    pod = environment.pod(PRELOAD)
    status = container_status(pod, "triton")
    assert status["started"]
    assert status["ready"]
    started = environment.log(pod, "triton", status["restartCount"]).wait("started")
    ready = condition(pod, "Ready")
    # Kubernetes reports whole seconds.
    since = datetime.fromisoformat(ready["lastTransitionTime"])
    assert (since - started.at).total_seconds() > 14 - 1


def test_containers_run_unprivileged_and_without_capabilities(environment: Environment) -> None:
    for pod, container in all_containers(environment):
        output = environment.run(pod, container["name"], "cat", "/proc/1/status")
        status = {name: values.split() for name, _, values in (line.partition(":") for line in output.splitlines())}
        assert status["Uid"] == status["Gid"] == ["1000"] * 4, (pod, container["name"])
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[capabilities][0], 16) == 0, (pod, container["name"], capabilities)
        assert status["NoNewPrivs"] == ["1"]
        assert status["Seccomp"] == ["2"], "no filter"
        assert "No such file" in environment.run(pod, container["name"], "ls", SECRETS + "kubernetes.io", check=False)
        mounted = environment.run(pod, container["name"], "ls", SECRETS + "tidegate", check=False)
        assert TOKENS.get(container["name"], "No such file") in mounted


def test_containers_can_write_only_to_their_writable_volumes(environment: Environment) -> None:
    for pod, container in all_containers(environment):
        mounts = container["volumeMounts"]
        places = {mount["mountPath"]: not mount.get("readOnly", False) for mount in mounts} | {"/": False}
        assert any(places.values()), "every container of ours has a scratch folder"
        files = {f"{place}/written".replace("//", "/"): writable for place, writable in places.items()}
        output = environment.run(pod, container["name"], "touch", *files, check=False).splitlines()
        refused = {file for file in files if f"touch: {file}: Read-only file system" in output}
        assert refused == {file for file, writable in files.items() if not writable}, (pod, output)
        assert len(output) - len(refused) <= 1, "kubectl's own line is the only other one"


def test_datasets_settings_and_keys_are_at_the_paths_of_the_contracts(environment: Environment) -> None:
    for server, container in ((ON_DEMAND, "triton"), (ON_DEMAND, "eviction-policy"), (PRELOAD, "triton")):
        assert environment.run(server, container, "ls", triton.REPOSITORY_ROOT).split() == ["churn", "digits"]
    file = f"{eviction_process.SETTINGS_ROOT}/{eviction_process.SETTINGS_FILE}"
    settings = environment.run(ON_DEMAND, "eviction-policy", "cat", file)
    assert [model["name"] for model in json.loads(settings)["models"]] == ["digits"]
    proxy = environment.pods("inference-proxy")[0]
    keys = environment.run(proxy["metadata"]["name"], "proxy", "cat", f"{proxy_process.API_KEYS_ROOT}/tests")
    assert keys == hash_line(environment.key)
    assert environment.log(proxy, "proxy").wait("started").details["environment"] == "trial"


def test_shared_memory_has_the_size_that_was_declared(environment: Environment) -> None:
    (line,) = environment.run(ON_DEMAND, "triton", "grep", " /dev/shm ", "/proc/mounts").splitlines()
    assert line.startswith("tmpfs ")
    assert f"size={16 * 1024}k" in line


def test_the_control_secret_is_in_memory_and_only_the_policy_and_its_triton_see_it(environment: Environment) -> None:
    secret = environment.run(ON_DEMAND, "triton", "cat", SECRET_FILE)
    assert environment.run("ondemand-small-1", "triton", "cat", SECRET_FILE) not in ("", secret)
    kinds = environment.machine.kubectl("api-resources", "--verbs=list", "--namespaced", "--output=name").stdout
    everything = environment.kubectl("get", ",".join(kinds.split()), "--output=json")
    assert ON_DEMAND in everything
    assert secret not in everything, "no object contains it"
    logs = environment.kubectl("logs", ON_DEMAND, "--all-containers")
    assert '"event":"secret"' in logs
    assert secret not in logs
    for container, access in (("triton", "ro"), ("eviction-policy", "rw")):
        output = environment.run(ON_DEMAND, container, "grep", eviction_process.CONTROL_ROOT, "/proc/mounts")
        (line,) = output.splitlines()
        _, _, kind, options, *_ = line.split()
        assert (kind, options.split(",")[0]) == ("tmpfs", access)
        assert "size=1024k" in options, "a volume in memory, not the node's disk, which here is in memory too"
    for pod, other in all_containers(environment):
        if pod != ON_DEMAND:
            assert "No such file" in environment.run(pod, other["name"], "cat", SECRET_FILE, check=False)
    # A server that polls generated a secret, and did not store it.
    index = f"http://127.0.0.1:{triton.HTTP_PORT}/v2/repository/index"
    with_it = ("wget", "-q", "-O-", f"--header={triton.RESTRICTED_KEY}: {secret}", "--post-data={}", index)
    assert "403 Forbidden" in environment.run(PRELOAD, "triton", *with_it, check=False)


def test_the_names_in_the_routing_table_lead_to_the_addresses_of_the_pods(environment: Environment) -> None:
    """In a proxy: headless Services, resolved by the cluster's DNS."""
    carrier = environment.machine.get("configmap", "inference-proxy-routing", environment.namespace)
    table = json.loads(carrier["data"][proxy_process.ROUTING_FILE])
    pools = {
        pool["host"]: f"{server['name']}-{pool['name']}" for server in table["servers"] for pool in server["pools"]
    }
    assert set(pools.values()) == {"ondemand-small", "preload-main"}
    hosts = pools | {f"inference-proxy-headless.{environment.namespace}.svc": "inference-proxy-"}

    def lead_to_pods() -> bool:
        ready = {
            host: {pod["status"]["podIP"] for pod in environment.pods(prefix) if is_ready(pod)}
            for host, prefix in hosts.items()
        }
        return all(ready.values()) and ready == {host: {*found} for host, found in environment.addresses().items()}

    until("names that lead to all pods that are ready and to no others", lead_to_pods)
