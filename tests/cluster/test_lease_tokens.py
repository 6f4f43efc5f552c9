"""A real API server signs the tokens of proxies' pods, and an eviction policy verifies them with its keys."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tidegate_contracts import eviction_process, lease
from tidegate_eviction.serving.callers import Callers, NotLetInError

from lab.local_cluster import LocalCluster

PROXY, SERVER = "inference-proxy", "triton-ondemand"


def pod(name: str, namespace: str, account: str) -> dict[str, Any]:
    spec = {"serviceAccountName": account, "containers": [{"name": "a", "image": "a"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


class Tokens:
    """An environment's namespace, and another one in which an attacker has all rights."""

    def __init__(self, cluster: LocalCluster, prefix: str) -> None:
        self.cluster = cluster
        self.here, self.there = f"{prefix}-here", f"{prefix}-there"
        for namespace in (self.here, self.there):
            cluster.kubectl("create", "namespace", namespace)
            for account in (PROXY, SERVER):
                cluster.kubectl("create", "serviceaccount", account, "--namespace", namespace)
            cluster.apply([pod(f"{account}-a", namespace, account) for account in (PROXY, SERVER)])

    def make(self, account: str, *options: str, namespace: str = "", audience: str = lease.AUDIENCE) -> str:
        audiences = [f"--audience={audience}"] if audience else []
        where = ["--namespace", namespace or self.here]
        return self.cluster.kubectl("create", "token", account, *where, *audiences, *options).stdout.strip()

    def bound(self, account: str, **more: str) -> str:
        return self.make(account, "--bound-object-kind=Pod", f"--bound-object-name={account}-a", **more)

    def mount(self, folder: Path) -> Path:
        folder.mkdir()
        (folder / "token").write_text(self.bound(SERVER, audience=""))
        (folder / "namespace").write_text(self.here)
        authority = self.cluster.get("configmap", "kube-root-ca.crt", self.here)["data"]["ca.crt"]
        (folder / "ca.crt").write_text(authority)
        return folder


@pytest.fixture
def tokens(cluster: LocalCluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Tokens:
    at = urlsplit(cluster.server)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(at.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(at.port))
    return Tokens(cluster, namespace)


async def started(callers: Callers) -> None:
    callers.keys.start()
    await callers.keys.tried()


async def identified(callers: Callers, token: str) -> str | None:
    try:
        return await callers.identify(f"Bearer {token}")
    except NotLetInError as error:
        return f"{error.status}"


def test_a_policy_accepts_only_the_tokens_of_its_proxies_pods(tokens: Tokens, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    attackers = {
        "of another namespace": tokens.bound(PROXY, namespace=tokens.there),
        "of a model server": tokens.bound(SERVER),
        "for the cluster's API": tokens.bound(PROXY, audience=""),
        "for another service": tokens.bound(PROXY, audience="sts.amazonaws.com"),
        "of no pod": tokens.make(PROXY),
        "tampered": tokens.bound(PROXY)[:-6] + "AAAAAA",
    }

    async def work() -> None:
        callers = Callers(tokens.mount(tmp_path / "cluster"), tmp_path / "state")
        await started(callers)
        assert callers.keys.known
        assert await identified(callers, tokens.bound(PROXY)) == f"{PROXY}-a"
        assert {name: await identified(callers, token) for name, token in attackers.items()} == dict.fromkeys(
            attackers, "401"
        )

    asyncio.run(work())


def test_an_account_without_any_role_reads_the_keys_and_nothing_else(tokens: Tokens, tmp_path: Path) -> None:
    token = (tokens.mount(tmp_path / "cluster") / "token").read_text()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(tokens.cluster.kubeconfig.read_text())
    tokens.cluster.kubectl("config", "set-credentials", "account", f"--token={token}", kubeconfig=kubeconfig)
    tokens.cluster.kubectl("config", "set-context", "--current", "--user=account", kubeconfig=kubeconfig)

    def may(*what: str) -> bool:
        return tokens.cluster.kubectl(*what, check=False, kubeconfig=kubeconfig).returncode == 0

    assert may("get", "--raw", eviction_process.KEYS_PATH)
    for resource in ("pods", "secrets", "configmaps", "serviceaccounts"):
        assert not may("get", resource, "--namespace", tokens.here), resource
