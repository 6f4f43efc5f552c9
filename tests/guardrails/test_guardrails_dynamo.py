"""The one token, Role and way in that Dynamo's shared frontends need, and nothing beside them."""

import copy
from typing import Any, get_args

import pytest
from tidegate_contracts import dynamo

from policies.guardrails.dynamo import is_discovery
from stacks.definition.openai import DynamoSettings
from tests.components.objects import named

from .stacks import ROOT, Edit, Objects, adding, at, findings, pod, rendered

ROLE, TOKEN, ENTRY = "roles-let-only-read", "pods-hold-no-token-of-the-cluster", "nothing-bypasses-the-proxy"
ACCOUNT, NAMESPACE = "openai-agents", "tidegate-prod"
FRONTENDS, PLANNER, CRITIC = "Deployment/agents-frontends", "StatefulSet/agents-planner", "StatefulSet/agents-critic"
TO_FRONTENDS, TO_WORKERS = "NetworkPolicy/agents-frontends", "NetworkPolicy/agents-workers"
PODS = {(TOKEN, one) for one in (FRONTENDS, PLANNER, CRITIC)}
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def base() -> Objects:
    """A production with frontends that all workers of a server share."""
    return copy.deepcopy(rendered(ROOT / "tests/definitions/two-kinds.yaml")["prod-east"])


def thing(kind: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **rest}


def bound(name: str, role: str = ACCOUNT, kind: str = "ServiceAccount", **where: Any) -> Edit:
    reference = {"kind": "Role", "name": role}
    return adding(thing("RoleBinding", "more", roleRef=reference, subjects=[{"kind": kind, "name": name, **where}]))


def granted(**rule: Any) -> Edit:
    return lambda objects: named(objects, "Role", ACCOUNT)["rules"].append({**READ, **rule})


def of_planner(key: str, container: int, more: Any) -> Edit:
    """Add something to a container of a worker, by its place among all of them."""

    def edit(objects: Objects) -> None:
        spec = pod(objects, "agents-planner")
        [*spec["containers"], *spec["initContainers"]][container].setdefault(key, []).append(more)

    return edit


def command(workload: str, words: list[str]) -> Edit:
    return at("StatefulSet", workload, "spec/template/spec/containers/0/command", words)


def coming(policy: str, labels: dict[str, str]) -> Edit:
    return at("NetworkPolicy", policy, f"{INGRESS}from/0/podSelector/matchLabels", labels)


def more_volumes(objects: Objects) -> None:
    volumes = pod(objects, "agents-planner")["volumes"]
    (own,) = (one for one in volumes if one["name"] == "kube-api-access")
    volumes.append({**own, "name": "another"})


MOUNT = {"name": "kube-api-access", "mountPath": "/token"}
INGRESS = "spec/ingress/0/"
WORKER = "spec/template/spec/containers/0/"
NO_DYNAMO = {(TOKEN, CRITIC), (ROLE, f"RoleBinding/{ACCOUNT}"), (ENTRY, TO_WORKERS), (ENTRY, TO_FRONTENDS)}
"""What is said of a worker that runs something else."""
BROKEN: list[tuple[str, Edit, set[tuple[str, str]]]] = [
    ("the Role lets read something else too", granted(), {(ROLE, f"Role/{ACCOUNT}"), *PODS}),
    ("the Role lets write something else", granted(verbs=["create"]), {(ROLE, f"Role/{ACCOUNT}"), *PODS}),
    (
        "the Role lets delete what others have written",
        lambda objects: named(objects, "Role", ACCOUNT)["rules"][1]["verbs"].append("delete"),
        {(ROLE, f"Role/{ACCOUNT}"), *PODS},
    ),
    ("another server is bound to it", bound("openai-chat"), {(ROLE, "RoleBinding/more")}),
    ("the proxy is bound to it", bound("inference-proxy"), {(ROLE, "RoleBinding/more")}),
    ("an account that no pod has is bound to it", bound("nobody"), {(ROLE, "RoleBinding/more")}),
    ("a person is bound to it", bound("anna", kind="User"), {(ROLE, "RoleBinding/more")}),
    ("that account of elsewhere is bound to it", bound(ACCOUNT, namespace="other"), {(ROLE, "RoleBinding/more")}),
    (
        "its pods have a second role",
        lambda objects: (adding(thing("Role", "second", rules=[READ])), bound(ACCOUNT, "second"))[1](objects),
        {(ROLE, "RoleBinding/more"), *PODS},
    ),
    ("nobody is bound to it", lambda objects: objects.remove(named(objects, "RoleBinding", ACCOUNT)), PODS),
    ("the relay of metrics mounts the token", of_planner("volumeMounts", 1, MOUNT), {(TOKEN, PLANNER)}),
    ("a worker has a second token", more_volumes, {(TOKEN, PLANNER)}),
    (
        "a worker that runs something else keeps its token",
        command("agents-critic", ["python3", "-m", "http.server"]),
        NO_DYNAMO,
    ),
    (
        "a worker that runs something beside Dynamo keeps its token",
        command("agents-critic", ["python3", "-m", "dynamo.evil"]),
        NO_DYNAMO,
    ),
    (
        "a worker is told to find Dynamo among its models",
        at("StatefulSet", "agents-critic", f"{WORKER}env", [{"name": "PYTHONPATH", "value": "/models"}]),
        NO_DYNAMO,
    ),
    (
        "a worker begins where its models lie",
        at("StatefulSet", "agents-critic", f"{WORKER}workingDir", "/models"),
        NO_DYNAMO,
    ),
    (
        "a worker has variables of which nothing is known",
        at("StatefulSet", "agents-critic", f"{WORKER}envFrom", [{"configMapRef": {"name": "other"}}]),
        NO_DYNAMO,
    ),
    (
        "workers may bring answers to a range of ports",
        at("NetworkPolicy", "agents-frontends", f"{INGRESS}ports", [{"port": 9091, "endPort": 65535}]),
        {(ENTRY, TO_FRONTENDS)},
    ),
    (
        "pods that nobody knows may come to workers",
        lambda objects: named(objects, "NetworkPolicy", "agents-workers")["spec"]["ingress"][0]["from"].append(
            {"podSelector": {"matchLabels": {"app": "somebody-else"}}}
        ),
        {(ENTRY, TO_WORKERS)},
    ),
    (
        "only pods that nobody knows may come to workers",
        coming("agents-workers", {"app": "somebody-else"}),
        {(ENTRY, TO_WORKERS)},
    ),
    (
        "workers may call frontends",
        at("NetworkPolicy", "agents-frontends", f"{INGRESS}ports", [{"protocol": "TCP", "port": 8000}]),
        {(ENTRY, TO_FRONTENDS)},
    ),
    (
        "another server's pods may bring answers",
        coming("agents-frontends", {"tidegate.dev/server": "chat"}),
        {(ENTRY, TO_FRONTENDS)},
    ),
    (
        "workers may come to workers",
        coming("agents-workers", {"tidegate.dev/server": "agents"}),
        {(ENTRY, TO_WORKERS)},
    ),
    (
        "a namespace may come to workers",
        at("NetworkPolicy", "agents-workers", f"{INGRESS}from", [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]),
        {(ENTRY, TO_WORKERS)},
    ),
]


def test_shared_frontends_break_no_guardrail() -> None:
    assert findings(base()) == []


@pytest.mark.parametrize(("edit", "broken"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_goes_beyond_it_is_found(edit: Edit, broken: set[tuple[str, str]]) -> None:
    objects = base()
    edit(objects)
    assert {(one.rule, one.object) for one in findings(objects)} == broken


def test_the_role_is_of_one_namespace() -> None:
    role = named(base(), "Role", ACCOUNT)
    assert is_discovery(role)
    assert not is_discovery({**role, "kind": "ClusterRole"})
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["nvidia.com"],
            "resources": ["dynamoworkermetadatas"],
            "verbs": ["list", "watch", "create", "patch"],
        },
    ]


def test_every_worker_of_a_definition_is_known() -> None:
    workers = get_args(DynamoSettings.model_fields["worker"].annotation)
    assert {*dynamo.MODULES} == {dynamo.FRONTEND, *(f"dynamo.{each}" for each in workers)}
