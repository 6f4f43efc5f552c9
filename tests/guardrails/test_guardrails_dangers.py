"""Each of many dangerous changes is found, whatever stack and object it is made in."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from policies.guardrails import BY_NAME
from policies.guardrails.checking import judged
from tests.cases import GONE
from tests.components.test_environment import declared
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from . import stacks
from .dangers import Danger
from .dangers_around_pods import AROUND_PODS
from .dangers_in_pods import IN_PODS
from .stacks import (
    PROXY,
    SMALL,
    Edit,
    Kept,
    Objects,
    adding,
    at,
    both,
    container,
    everything,
    findings,
    in_small,
    prod,
    setting,
    thing,
)

TEAM = {"matchLabels": {"team": "a"}}
PROXIES = {"matchLabels": {"app.kubernetes.io/instance": "prod", "tidegate.dev/role": "proxy"}}
AWS = {"audience": "sts.amazonaws.com", "path": "token"}


def lets_out(to: dict[str, Any], *ports: int) -> Edit:
    return made("NetworkPolicy", podSelector={}, policyTypes=["Egress"], egress=[{"to": [to], "ports": listed(ports)}])


def lets_in(peer: dict[str, Any], *ports: int) -> Edit:
    return made("NetworkPolicy", podSelector=PROXIES, ingress=[{"from": [peer], "ports": listed(ports)}])


def listed(ports: tuple[int, ...]) -> list[dict[str, int]]:
    return [{"port": port} for port in ports]


def made(kind: str, **spec: Any) -> Edit:
    return adding(thing(kind, "near", spec=spec))


def started(*words: str) -> Edit:
    return lambda objects: container(objects, SMALL)["args"].extend(words)


def role(**rule: Any) -> Edit:
    return adding(thing("Role", "near", rules=[{"apiGroups": [""], **rule}]))


KEPT: Kept = {
    "everything-is-refused-by-default": [
        made("NetworkPolicy", podSelector={}, policyTypes=["Ingress"]),
        at("NetworkPolicy", "default-deny", "spec/podSelector", {"matchLabels": {}}),
    ],
    "callers-are-named": [
        lets_in({"namespaceSelector": TEAM}, 8080, 8081),
        lets_in({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}, 8080),
        lets_in({"ipBlock": {"cidr": "10.0.0.0/8"}}, 8080),
        lets_in({"podSelector": {}}, 8082),
    ],
    "destinations-are-named": [
        lets_out({"ipBlock": {"cidr": "0.0.0.0/0"}}, 443),
        lets_out({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}, 80, 443),
        lets_out({"ipBlock": {"cidr": "169.254.20.10/32"}}, 53),
        lets_out({"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}, 53),
    ],
    "the-proxy-is-exposed-to-named-callers": [
        both(
            at("Service", PROXY, "spec/type", "LoadBalancer"),
            at("Service", PROXY, "spec/loadBalancerSourceRanges", ["192.0.2.0/24"]),
        ),
    ],
    "calls-from-outside-are-encrypted": [
        at("Ingress", PROXY, "spec/tls/0/hosts", ["*.example.com"]),
        made("Gateway", listeners=[{"name": "https", "protocol": "HTTPS"}]),
        made("Route", tls={"termination": "reencrypt"}),
    ],
    "routes-bring-no-configuration-of-their-own": [
        at("Ingress", PROXY, "metadata/annotations/nginx.ingress.kubernetes.io~proxy-body-size", "64m"),
    ],
    "namespaces-enforce-pod-security-restricted": [
        at("Namespace", "inference-prod", "metadata/labels/pod-security.kubernetes.io~enforce-version", "latest"),
    ],
    "containers-are-confined": [
        in_small("securityContext/fsGroup", 1000),
        in_small("shareProcessNamespace", False),
        in_small("containers/0/volumeMounts/0/mountPropagation", "None"),
    ],
    "tritons-keep-their-control-to-themselves": [
        started("--allow-vertex-ai=false", "--http-header-forward-pattern=X-Tenant"),
        started("--backend-directory=/opt/tritonserver/backends"),
    ],
    "volumes-are-no-folders-of-nodes": [
        at("PersistentVolume", "inference-prod-models", "spec/nfs", {"server": "nfs.example.com", "path": "/a"}),
        both(
            setting(kind="local"),
            at("PersistentVolume", "inference-prod-models", "spec/hostPath", {"path": "/srv/models"}),
        ),
    ],
    "memory-and-scratch-have-limits": [
        both(in_small("resources", {"limits": {"memory": "20Gi"}}), in_small("initContainers/0/resources", {})),
    ],
    "pods-go-only-where-they-are-meant-to": [
        in_small("tolerations", [{"key": "nvidia.com/gpu"}, {"key": "dedicated", "operator": "Exists"}]),
        in_small("priorityClassName", "inference-first"),
    ],
    "pods-hold-no-token-of-the-cluster": [
        in_small("automountServiceAccountToken", GONE),  # its account says that it has none
        in_small("volumes/5", {"name": "aws", "projected": {"sources": [{"serviceAccountToken": AWS}]}}),
    ],
    "issuers-name-their-audiences": [
        at("ConfigMap", "inference-proxy-routing", "data/access.json", '{"issuers": []}'),
    ],
    "roles-let-only-read": [
        role(resources=["pods", "pods/log", "events"], verbs=["get", "list", "watch"]),
        adding(
            thing(
                "RoleBinding",
                "near",
                roleRef={"kind": "ClusterRole", "name": "view"},
                subjects=[{"kind": "Group", "name": "data-scientists"}],
            )
        ),
    ],
}
"""What comes near a danger, and is none."""

DANGERS = {**IN_PODS, **AROUND_PODS}
ALL = [(rule, danger) for rule, dangers in DANGERS.items() for danger in dangers]


def of_production(objects: Objects) -> Objects:
    """The same objects, held to what production is held to, without exceptions."""
    stacks.settings(objects, kind="production", severities=None, waivers=None)
    return objects


def changed(objects: str, danger: Danger, place: int) -> Objects:
    """The objects that this JSON holds, with one place changed."""
    _, places, change = danger
    made: Objects = json.loads(objects)
    change(places(made)[place])
    return made


@pytest.mark.parametrize(("rule", "danger"), ALL, ids=[f"{rule}: {danger[0]}" for rule, danger in ALL])
@pytest.mark.parametrize("base", [prod, everything])
def test_a_dangerous_change_is_a_mandatory_finding(base: Callable[[], Objects], rule: str, danger: Danger) -> None:
    sound = of_production(base())
    before = set(findings(sound))
    count = len(danger[1](sound))
    if base is everything:
        assert count
    for place in {0, count - 1} if count else ():
        new = set(findings(changed(json.dumps(sound), danger, place))) - before
        found = {each.rule for each in new if each.severity == "mandatory"}
        assert rule in found, "\n".join(map(str, new))


def test_every_guardrail_of_security_has_some() -> None:
    # Whose settings and limits a definition decides, and what keeps a service going rather than closed.
    of_another_kind = {
        "every-container-has-probes",
        "every-workload-has-a-budget",
        "autoscalers-own-the-number-of-replicas",
        "production-shares-nothing-that-others-may-write",
        "gpu-slices-stay-under-their-ceiling",
        "the-cost-a-month-stays-within-its-budget",
    }
    assert {*DANGERS} == BY_NAME.keys() - of_another_kind


def said(objects: Objects, rule: str) -> set[tuple[str, str]]:
    """What a guardrail says of a stack."""
    breaches = (breach for environment in judged(objects) for breach in BY_NAME[rule](environment))
    return {(str(breach.object["metadata"]["name"]), breach.what) for breach in breaches}


# A failure says which change was missed; a smaller definition would say no more, and is not worth its minutes.
@settings(
    parent=examples(25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
)
@given(definition_trees(), st.data())
def test_any_of_them_is_found_in_what_any_valid_definition_declares(tree: Tree, data: st.DataObject) -> None:
    definition = read_tree(tree, pinned=True)
    sound = of_production(declared(definition, data.draw(st.sampled_from(definition.stacks))))
    dumped, random = json.dumps(sound), data.draw(st.randoms(use_true_random=False))
    missed = []
    for rule, danger in ALL:
        if count := len(danger[1](sound)):
            place = random.randrange(count)
            after = changed(dumped, danger, place)
            touched = {item["metadata"]["name"] for item in after if item not in sound}
            # What a definition is open for itself, such as a load balancer for everybody, is found before and after.
            known = {each for each in said(sound, rule) if each[0] not in touched}
            if after != sound and not said(after, rule) - known:
                missed.append((rule, danger[0], place))
    assert missed == []
