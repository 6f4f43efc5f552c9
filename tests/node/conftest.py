import json
from collections.abc import Generator, Iterator, Mapping
from functools import cache

import pytest

from .environment import DEFINITIONS, SLICE, SLICES, Environment
from .inside import NODE
from .machine import Machine, machine, why_not

_why_not = cache(why_not)
# The labels of GPU feature discovery, and the resources of the device plugin.
GPU_LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
}
OFFERED = {SLICE: str(SLICES)}
ENVIRONMENTS = {"trial": "real-node", "proxied": "real-proxy", "kept": "real-policy"}
"""The definition of each environment: only stand-ins, the proxy's real image, the eviction policy's real image."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of a node that cannot run here. A hook, unlike a fixture, skips them at one place with one reason.
    So pytest's summary has one line with their number, also with pytest-xdist."""
    if "node" in getattr(item, "fixturenames", ()) and (reason := _why_not()):
        pytest.skip(f"NOT RUN: NO REAL NODE CAN RUN HERE ({reason}), so no test ran kubelet and pods.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the state of the pods when a test fails, because the node is gone afterwards."""
    report = yield
    shared = getattr(item, "funcargs", {}).get("node")
    if report.failed and isinstance(shared, Machine):
        for what in ("pods", "events"):
            listed = shared.kubectl("get", what, "--all-namespaces", check=False)
            report.sections.append((what, listed.stdout[-20_000:] + listed.stderr))
    return report


@pytest.fixture(scope="package")
def node() -> Iterator[Machine]:
    with machine() as running:
        yield running


@pytest.fixture(scope="package")
def environments(node: Machine) -> Mapping[str, Environment]:
    """All environments, applied but not yet ready."""
    node.kubectl("label", "--overwrite", "node", NODE, *(f"{key}={value}" for key, value in GPU_LABELS.items()))
    patch = json.dumps({"status": {"capacity": OFFERED, "allocatable": OFFERED}})
    node.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", f"--patch={patch}")
    made = {name: Environment(node, name, DEFINITIONS / f"{file}.yaml") for name, file in ENVIRONMENTS.items()}
    for one in made.values():
        one.install()
    return made


@pytest.fixture
def environment(request: pytest.FixtureRequest, environments: Mapping[str, Environment]) -> Environment:
    """A ready environment: the one that a test file or a parameter names, or that with only stand-ins."""
    name: str = getattr(request, "param", "") or getattr(request.module, "ENVIRONMENT", "trial")
    environments[name].wait_until_ready()
    return environments[name]
