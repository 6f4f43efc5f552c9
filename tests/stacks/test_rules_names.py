"""Names are unique where Kubernetes wants them unique, and short enough."""

from typing import Any

import pytest

from stacks.problems import Position
from stacks.rules import names
from tests.stacks.definition.examples import GONE, BrokenTable, KeptTable, assert_refused, edited_at, problems

PRELOAD = {"mode": "preload"}
INGRESS = {"kind": "ingress", "host": "i.example.com"}
SHARED_PLANE = {"dataPlanes/east": GONE, "dataPlanes/lab/environments": ["dev", "prod"]}


def server(*pools: str) -> dict[str, Any]:
    return {"repository": {"dataset": "models"}, "pools": [{"name": pool, "loading": PRELOAD} for pool in pools]}


BROKEN: BrokenTable = {
    names.no_two_stacks_share_a_name: [
        ({"environments": [{"name": "a"}, {"name": "a-b"}],
         "dataPlanes": [{"name": "b-c", "environments": ["a"]}, {"name": "c", "environments": ["a-b"]}]}, "- »a-b",
         "would both be the stack a-b-c"),
        ({"dataPlanes/lab/environments": ["dev", "dev"]}, "- »dev",
         'environment "dev" stands twice in data plane "lab"'),
    ],
    names.no_two_data_planes_share_a_cluster: [
        ({"dataPlanes/lab/context": "one", "dataPlanes/east/context": "one"}, "»context: one",
         'data planes "lab" and "east" have one context, one'),
        ({"dataPlanes/east/context": "lab"}, "»context: lab", "one context, lab"),
    ],
    names.no_two_environments_of_a_cluster_share_a_namespace: [
        ({**SHARED_PLANE, "environments/dev/namespace": "n", "environments/prod/namespace": "n"}, "»namespace: n",
         'environments "dev" and "prod" would share the namespace n on data plane "lab"'),
        ({**SHARED_PLANE, "environments/dev/namespace": "tidegate-prod"}, "- »name: prod",
         "would share the namespace tidegate-prod"),
    ],
    names.no_two_pools_become_one_object: [
        ({"servers/a": server("b-c"), "servers/a-b": server("c")}, "name: »c",
         'pool "b-c" of server "a" and pool "c" of server "a-b" would share the Kubernetes name a-b-c'),
        ({"servers/a": server("b", "b-headless")}, "name: »b-headless", "would share the Kubernetes name a-b-headless"),
        ({"servers/inference": server("proxy")}, "name: »proxy", "the proxy and pool"),
    ],
    names.pool_names_leave_room_for_what_kubernetes_appends:
        [({"servers/" + "s" * 30: server("p" * 22)}, "name: »ppp", "has 53 characters")],
    names.no_two_stacks_of_a_cluster_share_a_host_and_path: [
        ({**SHARED_PLANE, "proxy/exposure": INGRESS}, "host: »i.example.com",
         "stacks dev-lab and prod-lab would both answer at i.example.com/"),
        ({**SHARED_PLANE, "proxy/exposure": INGRESS, "environments/prod/proxy": {"exposure": {"kind": "http-route",
         "host": "i.example.com", "gateway": "g", "gatewayNamespace": "gateways"}}}, "host: »i.example.com",
         "would both answer at i.example.com/"),
    ],
    names.no_two_stacks_of_a_cluster_share_a_volume:
        [({**SHARED_PLANE, "environments/dev/namespace": "a-b", "environments/prod/namespace": "a",
         "environments/prod/datasets/b-models": {"name": "b-models", "kind": "nfs", "server": "nfs.example.com",
         "path": "/x"}}, "name: »b-models", "stacks dev-lab and prod-lab would share the PersistentVolume a-b-models")],
}  # fmt: skip

OTHERS: dict[str, dict[str, Any]] = {
    "monitoring": {"monitoring": {"operator": True}},
    "gateways": {
        "proxy/exposure": {"kind": "http-route", "host": "h", "gateway": "g", "gatewayNamespace": "gateways"},
    },
    "domino-platform": {"domino": {}},
    "domino-compute": {"domino": {}},
    "istio-system": {"domino": {"mesh": {"mode": "istio"}}},
}  # fmt: skip
BROKEN[names.a_namespace_belongs_to_its_environment] = [
    ({**edits, "environments/dev/namespace": name}, "- »name: dev", f"would take over {name}, the namespace of")
    for name, edits in OTHERS.items()
]

KEPT: KeptTable = {
    names.a_namespace_belongs_to_its_environment: [
        {"environments/dev/namespace": "domino-platform"},
        {"domino": {}, "environments/dev/namespace": "domino-inference"},
    ],
    names.no_two_data_planes_share_a_cluster: [{"dataPlanes/east/context": "Lab"}],
    names.no_two_environments_of_a_cluster_share_a_namespace: [
        # The same namespace in two clusters is two namespaces.
        {"environments/dev/namespace": "n", "environments/prod/namespace": "n"},
    ],
    names.pool_names_leave_room_for_what_kubernetes_appends: [{"servers/" + "s" * 30: server("p" * 21)}],
    names.no_two_stacks_of_a_cluster_share_a_host_and_path: [
        # Two clusters may answer at one host: a global load balancer stands before them.
        {"proxy/exposure": INGRESS},
        {**SHARED_PLANE, "proxy/exposure": INGRESS, "environments/prod/proxy": {"exposure": {"path": "/prod"}}},
    ],
}  # fmt: skip

TWICE: dict[str, list[dict[str, Any]]] = {
    "datasets": [{"kind": "claim", "claimName": claim} for claim in "ab"],
    "servers/main/pools": [{"loading": PRELOAD}] * 2,
    "environments": [{}, {}],
    "environments/prod/models": [{"footprint": "1Gi"}] * 2,
}


def test_two_models_of_one_name_would_share_their_api_path() -> None:
    text = edited_at({"models/90": {"name": "churn", "server": "main", "pool": "cold"}})
    problem = assert_refused(text, "name: »churn", "stands twice")
    assert "/v2/models/churn" in str(problem)


def test_the_same_name_in_two_lists_is_no_clash() -> None:
    assert problems(edited_at({"servers/other": server("warm", "cold"), "dataPlanes/lab/name": "dev"})) == []


@pytest.mark.parametrize("path", TWICE)
def test_a_name_that_stands_twice_in_a_list_is_said_at_the_second(path: str) -> None:
    """Also where an overlay touches the list, as prod's does `datasets`, and in an overlay itself."""
    text = edited_at({f"{path}/{90 + number}": {"name": "twice", **item} for number, item in enumerate(TWICE[path])})
    lines = [number for number, line in enumerate(text.splitlines(), 1) if "name: twice" in line]
    found = [problem for problem in problems(text) if "twice" in problem.what.partition("stands twice")[0]]
    said = "\n".join(map(str, problems(text)))
    assert [problem.where.line for problem in found if isinstance(problem.where, Position)] == lines[1:] != [], said
