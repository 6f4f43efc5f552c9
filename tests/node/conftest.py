"""One node with three environments on it, which come up side by side and are shared by all tests."""

import json
from collections.abc import Generator, Iterator, Mapping
from functools import cache

import pytest

from .environment import DEFINITIONS, SLICE, SLICES, Environment
from .inside import NODE
from .machine import Machine, machine, why_not

_why_not = cache(why_not)
# What GPU feature discovery says of a node, and the device plugin then offers.
GPU_LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
}
OFFERED = {SLICE: str(SLICES)}
ENVIRONMENTS = {"trial": "real-node", "proxied": "real-proxy", "kept": "real-policy"}
"""With the definition of each: stand-ins alone, the proxy's own image, the eviction policy's."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out tests of a node that cannot run here.

    Here and not in a fixture: skipped at one place, for one reason, they are one line of pytest's summary, with their
    number, under pytest-xdist too.
    """
    if "node" in getattr(item, "fixturenames", ()) and (reason := _why_not()):
        pytest.skip(
            f"NOT RUN: NO REAL NODE CAN RUN HERE ({reason}), so that many tests of kubelet and pods did not run."
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how the pods stood when a test failed: afterwards there is nobody to ask."""
    report = yield
    shared = getattr(item, "funcargs", {}).get("node")
    if report.failed and isinstance(shared, Machine):
        for what in ("pods", "events"):
            said = shared.kubectl("get", what, "--all-namespaces", check=False)
            report.sections.append((what, said.stdout[-20_000:] + said.stderr))
    return report


@pytest.fixture(scope="package")
def node() -> Iterator[Machine]:
    with machine() as running:
        yield running


@pytest.fixture(scope="package")
def environments(node: Machine) -> Mapping[str, Environment]:
    """All environments, on their way up."""
    node.kubectl("label", "--overwrite", "node", NODE, *(f"{key}={value}" for key, value in GPU_LABELS.items()))
    patch = json.dumps({"status": {"capacity": OFFERED, "allocatable": OFFERED}})
    node.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", f"--patch={patch}")
    made = {name: Environment(node, name, DEFINITIONS / f"{file}.yaml") for name, file in ENVIRONMENTS.items()}
    for one in made.values():
        one.install()
    return made


@pytest.fixture
def environment(request: pytest.FixtureRequest, environments: Mapping[str, Environment]) -> Environment:
    """One of them, ready: the one that a test file or a parameter names, or else the one of stand-ins alone."""
    name: str = getattr(request, "param", "") or getattr(request.module, "ENVIRONMENT", "trial")
    environments[name].wait_until_ready()
    return environments[name]
