"""Real control planes with simulated nodes: one that tests share, and more for tests that need a separate one."""

import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.local_cluster import LocalCluster
from rollout.kubectl import Kubectl

from .world import ENGINES, Site, roomy_nodes, site_in

MakeCluster = Callable[..., LocalCluster]
_REAL = {"cluster", "make_cluster"}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of real clusters if there can be none. One line of pytest's summary has their number."""
    if not sys.platform.startswith("linux") and _REAL & {*getattr(item, "fixturenames", ())}:
        pytest.skip("NOT RUN: A REAL CONTROL PLANE NEEDS LINUX, so no test used one.")
    engines = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "pulumi" in engines and shutil.which("pulumi") is None:
        pytest.skip("NOT RUN: PULUMI IS NOT ON THE PATH, so no test ran it against a cluster.")


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One large cluster for all tests of a process. Each test uses separate namespaces."""
    with LocalCluster.start(tmp_path_factory.mktemp("cluster"), name="tests", nodes=roomy_nodes()) as running:
        yield running


@pytest.fixture
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeCluster]:
    """Start another cluster, such as another data plane. All of them stop after the test."""
    started: list[LocalCluster] = []

    def make(nodes: Sequence[Any] = (), name: str = "own", **more: Any) -> LocalCluster:
        started.append(LocalCluster.start(tmp_path_factory.mktemp(name), name=name, nodes=nodes, **more))
        return started[-1]

    yield make
    for running in started:
        running.stop()


@pytest.fixture
def namespace(cluster: LocalCluster) -> Iterator[str]:
    """A prefix for one test's namespaces and volumes in the shared cluster, which are removed afterwards."""
    prefix = f"t{uuid.uuid4().hex[:8]}"
    yield prefix
    for kind in ("namespaces", "persistentvolumes"):
        names = [item["metadata"]["name"] for item in cluster.get(kind) if item["metadata"]["name"].startswith(prefix)]
        if names:
            cluster.kubectl("delete", kind, *names, "--wait=false")


@pytest.fixture(params=ENGINES)
def site(
    request: pytest.FixtureRequest,
    cluster: LocalCluster,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    """Dev and prod in the shared cluster, with each engine, or with the one that a mark names."""
    made = site_in(cluster, namespace, request.param, tmp_path, monkeypatch)
    yield made
    made.end()


@pytest.fixture
def kube(cluster: LocalCluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """The product's own kubectl for the shared cluster, with a namespace that enforces Pod Security."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}])
    return Kubectl(cluster.context)
