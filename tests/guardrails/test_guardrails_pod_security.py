"""The Pod Security Standards, profile "restricted", compared with the Kubernetes project's own checks."""

import functools
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab import tools
from policies.guardrails.objects import TEMPLATES, pods
from policies.guardrails.rules.pod_security import violations
from tests.counts import examples

FILES = sorted(tools.module_files("pod-security"))
CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "example/main:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SPEC: dict[str, Any] = {
    "containers": [CONTAINER],
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}


def pod(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it"}, "spec": {**SPEC, **changes}}


def violations_of(item: dict[str, Any]) -> list[str]:
    return [violation for each in pods([item]) for violation in violations(each)]


@functools.cache
def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    for volume in found["spec"].get("volumes") or ():
        if volume.keys() == {"name"}:
            volume["emptyDir"] = {}  # The API server adds it.
    return found


def test_we_agree_with_the_kubernetes_projects_own_examples() -> None:
    """The test data of its admission: about eighty pods that break the profile, and twenty that meet it."""
    verdicts = {file: violations_of(read(file)) for file in FILES}
    assert len(verdicts) > 90
    assert {file: found for file, found in verdicts.items() if bool(found) is not (file.parent.name == "fail")} == {}


def crossed(one: Any, other: Any, chance: random.Random) -> Any:
    """A tree with the values of either of two trees at each place."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: crossed(one[key], other[key], chance) for key in one.keys() & other.keys()}
        return both | {
            key: value for key, value in {**one, **other}.items() if key not in both and chance.random() < 0.7
        }
    if isinstance(one, list) and isinstance(other, list):
        # A volume has one kind.
        pairs = zip(one, other, strict=False)
        items = [crossed(*pair, chance) if "image" in pair[0] else chance.choice(pair) for pair in pairs]
        return items + (one if len(one) > len(other) else other)[len(items) :]
    return chance.choice((one, other))


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(FILES), st.sampled_from(FILES)), min_size=20, max_size=20), st.randoms())
def test_we_agree_with_the_kubernetes_projects_own_checks_about_any_pod(
    pairs: list[tuple[Path, Path]], chance: random.Random
) -> None:
    """lab/tools/pod-security is a program with the checks of its admission."""
    made = [crossed(read(one), read(other), chance) for one, other in pairs]
    for each in made:
        each["spec"] |= {"hostUsers": chance.choice((None, None, False, True))}
    done = subprocess.run(
        [tools.path("pod-security-checks")],
        input="\n".join(map(json.dumps, made)),
        text=True,
        capture_output=True,
        check=True,
    )
    for each, line in zip(made, done.stdout.splitlines(), strict=True):
        refusals, found = json.loads(line), violations_of(each)
        assert bool(found) is bool(refusals), (each, refusals, found)


@pytest.mark.parametrize("kind", sorted(TEMPLATES))
def test_the_pod_template_of_every_workload_kind_is_checked(kind: str) -> None:
    def workload(template: dict[str, Any]) -> dict[str, Any]:
        for step in reversed(TEMPLATES[kind]):
            template = {step: template}
        return {"metadata": {"name": "it"}, **template, "kind": kind}

    assert violations_of(workload(pod(hostPID=True))) == ["the pod sets hostPID"]
    assert violations_of(workload(pod())) == []


def test_objects_without_pods_break_nothing_and_junk_does_not_crash() -> None:
    """A malformed value counts as absent, so that a required one is missing."""
    assert violations_of({"kind": "ConfigMap", "data": {"a": "b"}}) == []
    junk = {"kind": "Pod", "metadata": None, "spec": {"containers": ["x", {}], "volumes": "y", "securityContext": []}}
    assert "container None does not drop ALL capabilities" in violations_of(junk)
