"""The one token, Role and way in that Dynamo's shared frontends need, and nothing beside them."""

import copy
from typing import Any, get_args

import pytest
from tidegate_contracts import dynamo

from policies.guardrails.dynamo import is_discovery
from stacks.definition.openai import DynamoSettings
from tests.components.objects import named

from .stacks import ROOT, Edit, Objects, adding, at, both, findings, pod, rendered, without

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


def of_critic(key: str, value: Any) -> Edit:
    return at("StatefulSet", "agents-critic", f"spec/template/spec/containers/0/{key}", value)


def of_entry(policy: str, key: str, value: Any) -> Edit:
    return at("NetworkPolicy", f"agents-{policy}", f"spec/ingress/0/{key}", value)


def coming(policy: str, labels: dict[str, str]) -> Edit:
    return of_entry(policy, "from/0/podSelector/matchLabels", labels)


def rule_of(policy: str, objects: Objects) -> Any:
    return named(objects, "NetworkPolicy", f"agents-{policy}")["spec"]["ingress"][0]


def more_volumes(objects: Objects) -> None:
    volumes = pod(objects, "agents-planner")["volumes"]
    (own,) = (one for one in volumes if one["name"] == "kube-api-access")
    volumes.append({**own, "name": "another"})


MOUNT = {"name": "kube-api-access", "mountPath": "/token"}
STRANGER = {"podSelector": {"matchLabels": {"app": "somebody-else"}}}
TEAM = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]
IN_ROLE = {(ROLE, f"Role/{ACCOUNT}"), *PODS}
BOUND, TO_PLANNER = {(ROLE, "RoleBinding/more")}, {(TOKEN, PLANNER)}
AT_FRONTENDS, AT_WORKERS = {(ENTRY, TO_FRONTENDS)}, {(ENTRY, TO_WORKERS)}
NO_DYNAMO = {(TOKEN, CRITIC), (ROLE, f"RoleBinding/{ACCOUNT}"), (ENTRY, TO_WORKERS), (ENTRY, TO_FRONTENDS)}
"""What is said of a worker that runs something else."""
BROKEN: list[tuple[str, Edit, set[tuple[str, str]]]] = [
    ("the Role lets read something else too", granted(), IN_ROLE),
    ("the Role lets write something else", granted(verbs=["create"]), IN_ROLE),
    (
        "the Role lets delete what others have written",
        lambda objects: named(objects, "Role", ACCOUNT)["rules"][1]["verbs"].append("delete"),
        IN_ROLE,
    ),
    ("another server is bound to it", bound("openai-chat"), BOUND),
    ("the proxy is bound to it", bound("inference-proxy"), BOUND),
    ("an account that no pod has is bound to it", bound("nobody"), BOUND),
    ("a person is bound to it", bound("anna", kind="User"), BOUND),
    ("that account of elsewhere is bound to it", bound(ACCOUNT, namespace="other"), BOUND),
    (
        "its pods have a second role",
        both(adding(thing("Role", "2nd", rules=[READ])), bound(ACCOUNT, "2nd")),
        PODS,
    ),
    ("nobody is bound to it", without("RoleBinding", ACCOUNT), PODS),
    ("the relay of metrics mounts the token", of_planner("volumeMounts", 1, MOUNT), TO_PLANNER),
    ("a worker has a second token", more_volumes, TO_PLANNER),
    ("a worker runs something else", of_critic("command", ["python3", "-m", "http.server"]), NO_DYNAMO),
    ("a worker runs something beside Dynamo", of_critic("command", ["python3", "-m", "dynamo.evil"]), NO_DYNAMO),
    ("Dynamo is among its models", of_critic("env", [{"name": "PYTHONPATH", "value": "/models"}]), NO_DYNAMO),
    ("a worker begins where its models lie", of_critic("workingDir", "/models"), NO_DYNAMO),
    ("variables that are not known", of_critic("envFrom", [{"configMapRef": {"name": "other"}}]), NO_DYNAMO),
    ("answers at many ports", of_entry("frontends", "ports", [{"port": 9091, "endPort": 65535}]), AT_FRONTENDS),
    ("unknown pods may come to workers", lambda all_: rule_of("workers", all_)["from"].append(STRANGER), AT_WORKERS),
    ("only unknown pods may come to workers", of_entry("workers", "from", [STRANGER]), AT_WORKERS),
    ("workers may call frontends", of_entry("frontends", "ports", [{"protocol": "TCP", "port": 8000}]), AT_FRONTENDS),
    ("another server brings answers", coming("frontends", {"tidegate.dev/server": "chat"}), AT_FRONTENDS),
    ("workers may come to workers", coming("workers", {"tidegate.dev/server": "agents"}), AT_WORKERS),
    ("a namespace may come to workers", of_entry("workers", "from", TEAM), AT_WORKERS),
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
