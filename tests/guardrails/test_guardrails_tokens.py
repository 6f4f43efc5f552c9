"""The token with which an eviction policy reads the cluster's keys: the policy's alone, and good for that alone."""

import copy
from typing import Any

import pytest
from tidegate_contracts import eviction_process

from .stacks import MAIN, PROXY, SMALL, Edit, Objects, adding, container, findings, in_small, pod, prod, thing

RULE = "pods-hold-no-token-of-the-cluster"
MOUNT = {"name": "cluster", "mountPath": "/token"}
VOLUME = dict(eviction_process.CLUSTER)


def accused(edit: Edit) -> set[str]:
    """Return the objects that the rule finds after an edit."""
    objects = prod()
    edit(objects)
    return {f"{each.kind}/{each.name}" for each in findings(objects) if each.rule == RULE}


def mounted_by_triton(objects: Objects) -> None:
    container(objects, SMALL)["volumeMounts"].append(MOUNT)


def given_to(name: str, kind: str) -> Edit:
    """Give a pod that has no policy the volume, and have its container mount it."""

    def edit(objects: Objects) -> None:
        pod(objects, name, kind)["volumes"].append(copy.deepcopy(VOLUME))
        container(objects, name, kind)["volumeMounts"].append(MOUNT)

    return edit


def changed(**token: Any) -> Edit:
    def edit(objects: Objects) -> None:
        (volume,) = (each for each in pod(objects, SMALL)["volumes"] if each["name"] == "cluster")
        volume["projected"]["sources"][0]["serviceAccountToken"].update(token)

    return edit


def policy_runs(*command: str) -> Edit:
    return in_small("initContainers/0/command", list(command))


def bound(kind: str) -> Edit:
    account = {"kind": "ServiceAccount", "name": "triton-ondemand", "namespace": "inference-prod"}
    return adding(thing(kind, "more", roleRef={"kind": "Role", "name": "any"}, subjects=[account]))


@pytest.mark.parametrize(
    ("edit", "about"),
    [
        pytest.param(mounted_by_triton, f"StatefulSet/{SMALL}", id="Triton mounts it"),
        pytest.param(given_to(MAIN, "StatefulSet"), f"StatefulSet/{MAIN}", id="a preload Triton mounts it"),
        pytest.param(given_to(PROXY, "Deployment"), f"Deployment/{PROXY}", id="the proxy mounts it"),
        pytest.param(policy_runs("sh", "-c", "curl"), f"StatefulSet/{SMALL}", id="the policy's container runs else"),
        pytest.param(changed(expirationSeconds=31_536_000), f"StatefulSet/{SMALL}", id="it lasts a year"),
        pytest.param(bound("RoleBinding"), f"StatefulSet/{SMALL}", id="its account has a role"),
        pytest.param(bound("ClusterRoleBinding"), f"StatefulSet/{SMALL}", id="its account has a role of the cluster"),
    ],
)
def test_a_token_that_others_can_use_or_that_is_good_for_more_is_found(edit: Edit, about: str) -> None:
    assert about in accused(edit)


def test_the_policys_own_token_and_a_proxys_for_leases_are_right() -> None:
    assert accused(lambda _: None) == set()
