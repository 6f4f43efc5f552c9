"""Errors of API servers through kubectl, Helm and Pulumi, and their explanations. All texts are of real errors."""

import re
from pathlib import Path

import pytest

from rollout.kubectl import Kubectl, explained, in_words
from stacks.command import CommandError

from .conftest import Patch

UNABLE = "Unable to connect to the server:"
HELM = "Error: failed to create resource: server-side apply failed for object ns/main /v1, Kind=Service: "
RBAC = (
    'services "main" is forbidden: User "alice" cannot patch resource "services" in API group "" in the namespace "ns"'
)
QUOTA = 'services "main" is forbidden: exceeded quota: tight, requested: count/services=1, used: count/services=3'
DENIED = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
GOING = 'configmaps "a" is forbidden: unable to create new content in namespace old because it is being terminated'
LIST = 'persistentvolumes is forbidden: User "bob" cannot list resource "persistentvolumes" in API group "" at'
KIND = 'resource mapping not found for name: "a" namespace: "ns": no matches for kind "PodMonitor" in version '
SET = 'StatefulSet.apps "a" is invalid: spec: Forbidden: updates to statefulset spec for fields other than'
VOLUME = 'PersistentVolume "v" is invalid: spec.nfs: Invalid value: "x": field is immutable'
NUMBER = 'Deployment.apps "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'


@pytest.mark.parametrize(
    ("error", "explanation"),
    [
        (HELM + QUOTA, "services main was refused: exceeded quota: tight, requested: count/services=1, used: count"),
        (f'The sets "a" is invalid: : {DENIED}', "sets a was refused: ValidatingAdmissionPolicy 'p' with binding 'b'"),
        ('admission webhook "i.test" denied the request: no', 'refuses an object: admission webhook "i.test" denied'),
        (
            'failed calling webhook "w.test": connection refused',
            'refuses an object: failed calling webhook "w.test": c',
        ),
        (HELM + RBAC, "services main was refused by RBAC: user alice may not patch services in namespace ns."),
        (f"{LIST} the cluster scope", "refused by RBAC: user bob may not list persistentvolumes of the cluster."),
        (GOING, "namespace old is being deleted, so nothing can be created in it."),
        (f'{KIND}"monitoring.coreos.com/v1"\nmore', "no PodMonitor (monitoring.coreos.com/v1): the Prometheus op"),
        (f'{KIND}"example.com/v1"', "the cluster one has no PodMonitor (example.com/v1).\n"),
        ('error: context "one" does not exist', "there is no context one in the kubeconfig."),
        ("Error: context was not found for specified context: one", "there is no context one in the kubeconfig."),
        ('Get "https://a:1": connect: connection refused', "the cluster one cannot be reached (connection refused)."),
        (f"{UNABLE} net/http: request canceled (Client.Timeout exceeded while", "the cluster one cannot be reached"),
        (f"{UNABLE} context deadline exceeded", "the cluster one cannot be reached (context deadline exceeded)."),
        ("no response within 60 seconds", "the cluster one cannot be reached (no response within 60 seconds)."),
        ("You must be logged in to the server (Unauthorized)", "the cluster one did not accept your credentials"),
        (SET, "StatefulSet a cannot be changed in place: spec: Forbidden: updates to statefulset spec"),
        (VOLUME, "Datasets are kept: add a dataset with another name, and move the servers to it."),
        (NUMBER, "Deployment d was refused: spec.replicas: Invalid value: -1"),
        ('Apply failed with 1 conflict: conflict with "flux"', "refuses an object: Apply failed with 1 conflict"),
    ],
)
def test_a_refusal_names_the_object_and_the_rule(error: str, explanation: str) -> None:
    found = explained(error, "one")
    assert found is not None
    assert explanation in found


def test_the_check_is_a_command_to_copy() -> None:
    text = explained(HELM + RBAC, "my context") or ""
    assert "kubectl --context 'my context' auth can-i patch services -n ns" in text


def test_an_unknown_error_is_shown_unchanged_but_escaped() -> None:
    assert explained("something else broke", "one") is None
    assert in_words("first\n\nthe last \x1b[31mline\n") == '"the last \\u001b[31mline"'
    assert in_words(" \n") == "it printed nothing"
    assert len(in_words("x" * 10_000)) < 600


def test_an_api_servers_text_cannot_colour_or_clear_a_terminal() -> None:
    text = explained('services "a" is forbidden: exceeded quota: t, requested: \x1b[2Jx=1', "one") or ""
    assert "\x1b" not in text
    assert re.search(r"requested: \\u001b\[2Jx=1", text)


def test_a_cluster_that_gives_no_answer_is_waited_for_no_longer(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\nsleep 300\n", "utf-8")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setattr("rollout.kubectl._path", lambda: str(tmp_path / "kubectl"))
    with pytest.raises(CommandError, match=r"the cluster lab cannot be reached \(no response within"):
        Kubectl("lab").run("get", "pods", seconds=-14.5)  # and 15 s more
