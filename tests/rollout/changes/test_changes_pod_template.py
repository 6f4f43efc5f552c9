"""Templates that mean the same to the API server make no new pods; tests/cluster asks a real one."""

import json
from typing import Any

import pytest

from rollout.changes.pod_template import settled


def template(container: dict[str, Any], **pod: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i:1", **container}], **pod},
    }


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (template({}), template({"imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File"})),
    (template({"image": "i"}), template({"image": "i", "imagePullPolicy": "Always"})),
    (template({"image": "i:latest"}), template({"image": "i:latest", "imagePullPolicy": "Always"})),
    (
        template({"image": "host:5000/i@sha256:0"}),
        template({"image": "host:5000/i@sha256:0", "imagePullPolicy": "IfNotPresent"}),
    ),
    (template({}), template({}, restartPolicy="Always", dnsPolicy="ClusterFirst", securityContext={})),
    (template({}, serviceAccountName="x"), template({}, serviceAccountName="x", serviceAccount="x")),
    (template({"ports": [{"containerPort": 1}]}), template({"ports": [{"containerPort": 1, "protocol": "TCP"}]})),
    (
        template({"startupProbe": {"httpGet": {"path": "/", "port": 1}}}),
        template({"startupProbe": {"httpGet": {"path": "/", "port": 1, "scheme": "HTTP"}, "timeoutSeconds": 1}}),
    ),
    (
        template({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
        template(
            {"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 1, "memory": "1Gi"}}}
        ),
    ),
    (
        template(
            {}, volumes=[{"name": "v", "configMap": {"name": "m"}}, {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}}]
        ),
        template(
            {},
            volumes=[
                {"name": "v", "configMap": {"name": "m", "defaultMode": 420}},
                {"name": "e", "emptyDir": {"sizeLimit": "1024Mi"}},
            ],
        ),
    ),
    (template({"args": []}), template({})),
]
OTHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (template({}), template({"image": "i:2"})),
    (template({}), template({"imagePullPolicy": "Always"})),
    (template({}), template({}, terminationGracePeriodSeconds=31)),
    (template({}), template({}, enableServiceLinks=False)),
    (template({"resources": {"limits": {"cpu": "1"}}}), template({"resources": {"limits": {"cpu": "1001m"}}})),
    (
        template({"resources": {"limits": {"memory": "1Gi"}}}),
        template({"resources": {"limits": {"memory": "1073741824"}}}),
    ),
    (template({"args": ["a", "b"]}), template({"args": ["b", "a"]})),
    (template({}), {"metadata": {"labels": {"a": "c"}}, "spec": template({})["spec"]}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_the_api_server_would_add_or_rewrite_makes_no_difference(one: Any, other: Any) -> None:
    assert settled(one) == settled(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_everything_else_does(one: Any, other: Any) -> None:
    assert settled(one) != settled(other)


def test_the_template_itself_stays_as_it_was() -> None:
    for one, _ in SAME:
        before = json.dumps(one)
        settled(one)
        assert json.dumps(one) == before


@pytest.mark.parametrize("junk", [None, "x", [], {"spec": []}, {"spec": {"containers": ["x"], "volumes": [1]}}])
def test_what_is_no_template_is_left_alone(junk: Any) -> None:
    settled(junk)
