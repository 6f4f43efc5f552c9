"""Production that passes its checks is closed. The test checks the objects without the guardrails' code."""

import json
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from hypothesis import HealthCheck, assume, given, settings

from policies.guardrails import check
from stacks.problems import DefinitionError
from tests.components.test_environment import declared
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from .stacks import TODAY, Objects

ELSEWHERE = [ip_address(text) for text in ("8.8.8.8", "93.184.216.34", "198.51.100.77", "2606:4700::1111")]
"""Addresses all over the internet. No single caller has them all."""
METADATA = [ip_address("169.254.169.254"), ip_address("fd00:ec2::254")]
INSIDE = [ip_address("10.9.8.7"), ip_address("172.20.0.1"), ip_address("fd12::1")]
"""Addresses of clusters."""
PROXIES = ("app.kubernetes.io/name", "inference-proxy")


def production(tree: Tree) -> Tree:
    environments = [{**each, "production": True} for each in tree["environments"]]
    return {key: value for key, value in tree.items() if key != "guardrails"} | {"environments": environments}


def holds(block: dict[str, Any], address: Any) -> bool:
    within = [ip_network(cidr) for cidr in (block["cidr"], *block.get("except", []))]
    return address in within[0] and not any(address in each for each in within[1:])


def blocks(policy: Any, direction: str, peers: str) -> Iterator[tuple[dict[str, Any], list[int]]]:
    for rule in policy["spec"].get(direction) or []:
        assert rule.get(peers), "a rule without peers admits every address"
        ports = [port["port"] for port in rule.get("ports") or [] if "port" in port]
        yield from ((peer["ipBlock"], ports) for peer in rule[peers] if "ipBlock" in peer)


def assert_closed(objects: Objects) -> None:
    by_kind: dict[str, Objects] = {}
    for item in objects:
        by_kind.setdefault(item["kind"], []).append(item)
    admitted = {a for policy in by_kind["NetworkPolicy"] for block, _ in blocks(policy, "ingress", "from")
                for a in ELSEWHERE if holds(block, a)}  # fmt: skip
    assert len(admitted) < 2, "not the whole internet may call"
    for policy in by_kind["NetworkPolicy"]:
        for block, ports in blocks(policy, "egress", "to"):
            reached = [a for a in ELSEWHERE if holds(block, a)]
            assert ports or len(reached) < 2, "not the internet on every port"
            if reached and not policy["metadata"]["name"].startswith("gke-metadata"):
                assert not any(holds(block, a) for a in (*METADATA, *INSIDE)), "the internet is not the cluster"
        if policy["metadata"]["name"].startswith("gke-metadata"):
            (chosen,) = policy["spec"]["podSelector"]["matchExpressions"]
            known = {item["metadata"]["annotations"].get("iam.gke.io/gcp-service-account") and item["metadata"]["name"]
                     for item in by_kind["ServiceAccount"] if item["metadata"].get("annotations")}  # fmt: skip
            assert {f"triton-{server}" for server in chosen["values"]} <= known
    (settings_of_proxy,) = (item["data"] for item in by_kind["ConfigMap"] if "TIDEGATE_PROXY_TLS" in item["data"])
    encrypted = settings_of_proxy["TIDEGATE_PROXY_TLS"] == "true"
    for service in by_kind["Service"]:
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP" or encrypted
    for ingress in by_kind.get("Ingress", []):
        covered = {host for tls in ingress["spec"]["tls"] for host in tls["hosts"]}
        assert {rule["host"] for rule in ingress["spec"]["rules"]} <= covered
    for route in by_kind.get("HTTPRoute", []):
        assert all(parent["sectionName"] for parent in route["spec"]["parentRefs"])
    (table,) = (
        json.loads(item["data"]["access.json"]) for item in by_kind["ConfigMap"] if "access.json" in item["data"]
    )
    for issuer in table["issuers"]:
        assert issuer["issuer"].startswith("https://")
        assert issuer.get("jwksUrl", "https://").startswith(("https://", "http://keycloak.identity.svc/"))
        assert issuer["audiences"]
    principals = settings_of_proxy.get("TIDEGATE_PROXY_DOMINO_PRINCIPAL_URL", "https://")
    assert principals.startswith("https://") or ".svc" in principals
    for rule in table["rules"]:
        assert "*" not in (*rule["principals"], *rule["groups"])
        assert rule["servers"] != ["*"] or rule["models"] != ["*"]
    keys = (
        settings_of_proxy["TIDEGATE_PROXY_API_KEYS"] == "true"
        or "TIDEGATE_PROXY_DOMINO_PRINCIPAL_URL" in settings_of_proxy
    )
    assert all(table["issuers"] or (keys and rule["principals"]) for rule in table["rules"] if keys), (
        "a rule matches a caller"
    )
    for budget in by_kind["PodDisruptionBudget"]:
        sets = [item for item in by_kind["StatefulSet"] if item["metadata"]["name"] == budget["metadata"]["name"]]
        replicas = next((item["spec"].get("replicas", 1) for item in sets), 1)
        assert replicas < 2 or budget["spec"]["maxUnavailable"] < replicas


def test_any_production_that_passes_its_checks_is_closed() -> None:
    """It skips examples that a guardrail or a rule refuses, most of which are open."""
    passed, stopped = [], []

    @settings(parent=examples(160), suppress_health_check=list(HealthCheck))
    @given(definition_trees())
    def checked(tree: Tree) -> None:
        try:
            definition = read_tree(production(tree), pinned=True)
        except DefinitionError:
            assume(False)
        objects = {stack.name: declared(definition, stack) for stack in definition.stacks}
        found = {name: check(of_stack, TODAY) for name, of_stack in objects.items()}
        for name, of_stack in found.items():
            if any(each.severity == "mandatory" for each in of_stack):
                stopped.append(name)
            else:
                passed.append(name)
                assert_closed(objects[name])

    checked()
    assert passed
    assert stopped
