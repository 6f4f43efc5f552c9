"""Each kind of volume for staged files on a real kubelet: the policy writes it, and its Triton server reads it."""

import pytest
from tidegate_contracts import eviction_process

from .environment import Environment, container_status

ENVIRONMENT = "kept"
POLICY = "eviction-policy"
FILE = f"{eviction_process.STAGED_REPOSITORY}/written"
KINDS = pytest.mark.parametrize("kind", ["memory", "disk", "volume"])
FILL = f"""
import errno, os
try:
    with open("{FILE}", "wb") as file:
        for _ in range(65):
            file.write(bytes(1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno])
os.unlink("{FILE}")
"""


def pod_of(kind: str) -> str:
    return f"staged-{kind}-0"


def python(kept: Environment, kind: str, program: str) -> str:
    return kept.run(pod_of(kind), POLICY, "python", "-c", program).strip()


@KINDS
def test_triton_reads_the_policys_files_and_cannot_change_them(environment: Environment, kind: str) -> None:
    """The repository's directory exists before Triton starts. A separate volume belonged to root before."""
    python(environment, kind, f"open({FILE!r}, 'w').write('near')")
    assert environment.run(pod_of(kind), "triton", "cat", FILE) == "near"
    denied = environment.run(pod_of(kind), "triton", "sh", "-c", f"echo far > {FILE}", check=False)
    assert "Read-only file system" in denied
    (triton,) = environment.pod(pod_of(kind))["spec"]["containers"]
    assert f"--model-repository={eviction_process.STAGED_REPOSITORY}" in triton["args"]
    python(environment, kind, f"import os; os.unlink({FILE!r})")


def test_a_tier_in_memory_ends_at_its_size_and_takes_nothing_from_the_policy(environment: Environment) -> None:
    before = container_status(environment.pod(pod_of("memory")), POLICY)
    assert python(environment, "memory", FILL) == "ENOSPC"
    after = container_status(environment.pod(pod_of("memory")), POLICY)
    assert after["containerID"] == before["containerID"]
    (policy,) = environment.pod(pod_of("memory"))["spec"]["initContainers"]
    assert policy["resources"]["limits"]["memory"] == "320Mi", "256Mi of the policy's own, and the tier's 64Mi"
