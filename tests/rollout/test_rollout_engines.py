import base64
import gzip
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi as pulumi_sdk
import pytest
import yaml

from charts import CHART
from components import Environment
from components.evaluate import evaluate
from rollout import handover
from rollout.engines import Bundle, helm, ownership, pulumi, pulumi_cli, pulumi_state, watched
from rollout.engines.helm import is_of
from rollout.engines.lease import RolloutLease
from rollout.engines.pulumi import Pulumi
from rollout.engines.pulumi_cli import PulumiCli
from rollout.engines.pulumi_state import Plan, State, plan
from rollout.live import as_declared, clean, require_there, state_of_stack
from rollout.program import SKIP_AWAIT, without_service_waits
from rollout.render import Rendered, render
from stacks.command import CommandError
from stacks.resolve import resolve
from stacks.stack import Stack
from stacks.validate import read_definition

from .conftest import Call, Capsys, Edit, Patch
from .fake_cluster import FakeCluster, Object

OURS = {"app.kubernetes.io/part-of": "tidegate", "app.kubernetes.io/instance": "dev"}


def made(kind: str, name: str, namespace: str = "tidegate-dev", **head: Any) -> Object:
    where = {} if kind == "Namespace" else {"namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": OURS, **where, **head}}


def by(manager: str, operation: str = "Apply") -> list[Object]:
    fields: Object = {"f:metadata": {"f:labels": {"f:a": {}}}}
    return [{"manager": manager, "operation": operation, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}]


@pytest.fixture
def bundle(definition: Path) -> Bundle:
    read = read_definition(definition)
    return Bundle(read.stacks[0], render(read.stacks[0], read), read.lock, definition)


@pytest.fixture
def stack(bundle: Bundle) -> Stack:
    return bundle.stack


@pytest.fixture
def rendered(bundle: Bundle) -> Rendered:
    return bundle.rendered


# ---- ownership ----


@pytest.mark.parametrize("engine", ["helm", "pulumi"])
@pytest.mark.parametrize(
    ("namespace", "whose"),
    [
        (made("Namespace", "tidegate-dev", labels={}), "Tidegate did not create it"),
        (made("Namespace", "tidegate-dev", managedFields=by("kubectl")), "applied with kubectl"),
    ],
)
def test_no_engine_takes_a_stack_of_another_owner(stack: Stack, engine: str, namespace: Object, whose: str) -> None:
    cluster: Any = FakeCluster([namespace])
    with pytest.raises(CommandError, match=whose) as caught:
        ownership.ensure_owner(cluster, stack, engine)
    assert f"--engine {engine} --adopt" in str(caught.value)
    assert ownership.ensure_owner(cluster, stack, engine, adopt=True) is not None


@pytest.mark.parametrize("engine", ["helm", "pulumi"])
def test_an_engine_takes_a_namespace_of_another_owner_only_if_nothing_runs_there(stack: Stack, engine: str) -> None:
    namespace, secret = made("Namespace", "tidegate-dev", labels={}), made("Secret", "api-keys", labels={})
    empty: Any = FakeCluster([namespace, secret])
    assert ownership.owner_for_up(empty, stack, engine) == ownership.UNOWNED
    used: Any = FakeCluster([namespace, made("Pod", "db-0", labels={})])
    scaled: Any = FakeCluster([namespace, made("ScaledJob", "builds", labels={})])
    others: Any = FakeCluster([made("Namespace", "tidegate-dev", labels=OURS | {"app.kubernetes.io/instance": "x"})])
    for cluster in (used, scaled, others):
        with pytest.raises(CommandError, match="Tidegate did not create it"):
            ownership.owner_for_up(cluster, stack, engine)
    assert ownership.owner_for_up(used, stack, engine, adopt=True) == ownership.UNOWNED


@pytest.mark.parametrize(("kind", "labels"), [("Namespace", {}), ("Namespace", OURS), ("Deployment", {})])
def test_helm_gets_no_label_of_a_namespace_that_someone_else_made(kind: str, labels: Object) -> None:
    namespace = made(kind, "tidegate-dev", labels=labels, managedFields=by("kubectl"), resourceVersion="1")
    patches: list[str] = []
    kube: Any = SimpleNamespace(run=lambda *arguments: patches.append(arguments[-1]))
    handover.to_helm(kube, [namespace], {"labels": {}})
    assert ["managedFields" in patch for patch in patches] == [(kind, labels) != ("Namespace", {})]


@pytest.fixture
def destroyed(monkeypatch: Patch) -> list[str]:
    """Replaces `pulumi destroy`, and records its stacks."""
    stacks: list[str] = []

    def operate(_: object, stack: Stack, __: Path, command: Sequence[str], ___: object) -> int:
        assert command == pulumi_cli.DESTROY
        stacks.append(stack.name)
        return 0

    monkeypatch.setattr(pulumi_cli, "operate", operate)
    monkeypatch.setattr(pulumi_state, "write", lambda _, __, name, state: stacks.append(f"{name}: {state.context}"))
    return stacks


def lists(monkeypatch: Patch, *objects: Object, context: str = "kind-lab", deleted: Sequence[Object] = ()) -> State:
    """Let Pulumi's state of dev-lab list these objects, with that context, and others that are about to be deleted."""
    provider: Object = {"type": "pulumi:providers:kubernetes", "inputs": {"context": context}}

    def entry(item: Object, **more: Any) -> Object:
        return {"type": f"kubernetes:core/v1:{item['kind']}", "inputs": item, "outputs": item, **more}

    entries = [provider, *map(entry, objects), *(entry(item, delete=True) for item in deleted)]
    state = State({"deployment": {"resources": entries}})
    monkeypatch.setattr(pulumi_state, "found", lambda *_: ({"dev-lab": len(entries)}, state))
    return state


@pytest.mark.parametrize("labels", [{}, OURS])
def test_pulumi_takes_nothing_down_that_it_has_not_brought_up(
    stack: Stack, definition: Path, destroyed: list[str], labels: dict[str, str], monkeypatch: Patch
) -> None:
    cluster = FakeCluster(
        [made("Namespace", "tidegate-dev", labels=labels), made("ConfigMap", "inference-proxy-routing")]
    )
    monkeypatch.setattr(pulumi, "Kubectl", lambda _: cluster)
    with pytest.raises(CommandError, match=r"Nothing was changed"):
        Pulumi(PulumiCli("pulumi", "3.260.0")).down(stack, definition)
    assert (cluster.deleted, destroyed) == ([], [])


THEIRS = {"meta.helm.sh/release-name": "other", "meta.helm.sh/release-namespace": "tidegate-dev"}


HERE = made("Namespace", "tidegate-dev", managedFields=by("pulumi-kubernetes", "Update"), uid="1")
"""The namespace of dev-lab in the cluster."""


@pytest.mark.parametrize(
    ("context", "listed", "destroyed_"),
    [
        ("kind-lab", HERE, ["dev-lab"]),
        ("renamed", HERE, ["dev-lab: kind-lab", "dev-lab"]),
        ("another", made("Namespace", "tidegate-dev", uid="2"), []),
        ("another", made("Namespace", "tidegate-other", uid="2"), []),
        ("kind-lab", made("Namespace", "tidegate-other", uid="2"), []),
    ],
    ids=["of this cluster", "of this cluster by another context", "of another cluster", "of another", "elsewhere here"],
)
def test_pulumi_removes_its_stacks_from_the_named_cluster_and_leaves_helms(
    stack: Stack, definition: Path, destroyed: list[str], monkeypatch: Patch, context: str, listed: Object,
    destroyed_: list[str],
) -> None:  # fmt: skip
    cluster = FakeCluster([HERE, made("ConfigMap", "forgotten"), made("ConfigMap", "of-helm", annotations=THEIRS)])
    monkeypatch.setattr(pulumi, "Kubectl", lambda _: cluster)
    lists(monkeypatch, listed, context=context)
    Pulumi(PulumiCli("pulumi", "3.260.0")).down(stack, definition)
    assert (cluster.deleted, destroyed) == (["forgotten"], destroyed_)


# ---- Pulumi's state ----

THERE = made("Namespace", "tidegate-old", uid="9")


def planned(stack: Stack, state: State, cluster: FakeCluster) -> Plan:
    kube: Any = cluster
    declared = [HERE, made("ConfigMap", "a"), made("Service", "b")]
    return plan(state, stack, kube, declared, state_of_stack(kube, declared))


A, B = made("ConfigMap", "a"), made("Service", "b")
OLD_B = made("Service", "b", "tidegate-old")
ANOTHER = made("Namespace", "tidegate-dev", uid="2")


@pytest.mark.parametrize(
    ("listed", "context", "deleted", "live", "left", "adopts", "notes"),
    [
        ([HERE, A], "kind-lab", [], [HERE, A], [HERE, A], False, ""),
        ([HERE, A], "old-name", [], [HERE, A], [HERE, A], False, ""),
        ([ANOTHER, A], "another", [], [], [], True, "tidegate down FILE --cluster another --stack dev-lab"),
        ([ANOTHER, A], "another", [], [HERE, A], [], True, "tidegate down FILE --cluster another --stack dev-lab"),
        ([THERE, OLD_B], "kind-lab", [], [THERE], [], True, ""),
        ([THERE, OLD_B], "kind-lab", [A, B], [HERE, A, B, THERE, OLD_B], [], True, "1 object in namespace"),
        ([HERE], "kind-lab", [A, made("ConfigMap", "old")], [HERE, A], [HERE, made("ConfigMap", "old")], False, ""),
    ],
    ids=["of this cluster", "by another context", "of another cluster", "of another cluster, both are up",
         "of a namespace where it was taken down", "of a move that was half done and is taken back",
         "about to delete what is declared"],
)  # fmt: skip
def test_the_changes_of_pulumis_state_before_it_runs(
    stack: Stack, monkeypatch: Patch, listed: list[Object], context: str, deleted: list[Object], live: list[Object],
    left: list[Object], adopts: bool, notes: str,
) -> None:  # fmt: skip
    cluster = FakeCluster(live)
    found = planned(stack, lists(monkeypatch, *listed, context=context, deleted=deleted), cluster)
    assert found.adopts == adopts
    assert notes.replace("FILE", stack.definition) in "".join(found.notes)
    assert bool(found.notes) == bool(notes)
    entries = found.state.exported["deployment"]["resources"]
    assert [one["inputs"] for one in entries[1:]] == left
    assert all(one["inputs"] == {"context": "kind-lab"} for one in entries[:1])
    assert cluster.deleted == []


def test_a_stack_that_runs_cannot_get_another_namespace(stack: Stack, monkeypatch: Patch) -> None:
    state = lists(monkeypatch, THERE, OLD_B)
    with pytest.raises(CommandError, match="Set the namespace back to tidegate-old") as caught:
        planned(stack, state, FakeCluster([THERE, OLD_B]))
    assert f"tidegate down {stack.definition} --cluster kind-lab --stack dev-lab" in str(caught.value)


@pytest.mark.parametrize("platform", [None, "ours"])
def test_helm_moves_no_stack_that_runs_to_another_namespace(definition: Path, edit: Edit, platform: str | None) -> None:
    """Without `platform`, the other stack may be another definition's, so it is only a note."""
    if platform:
        edit("context: kind-lab, ", f"context: kind-lab, platform: {platform}, ")
    stack = read_definition(definition).stacks[0]
    recorded = json.dumps({"dataPlane": {"name": "lab", **({"platform": platform} if platform else {})}})
    old = made("Namespace", "tidegate-old", annotations={"tidegate.dev/definition": recorded})
    cluster: Any = FakeCluster([old, made("Service", "b", "tidegate-old")])
    if platform:
        with pytest.raises(CommandError, match="Set the namespace back to tidegate-old"):
            ownership.owner_in_other_namespace(cluster, stack)
    else:
        assert "1 object in namespace tidegate-old" in ownership.owner_in_other_namespace(cluster, stack)
    for others in ([old], [{**old, "metadata": {**old["metadata"], "annotations": {}}}, *cluster.objects[1:]]):
        another: Any = FakeCluster(others)
        assert ownership.owner_in_other_namespace(another, stack) == ""


def test_a_dry_run_refuses_objects_unknown_to_pulumi_as_up_does(
    stack: Stack, rendered: Rendered, monkeypatch: Patch
) -> None:
    objects = [item for item in rendered.objects if item["kind"] in ("ConfigMap", "Namespace")]
    for item in objects:
        item["metadata"].setdefault("managedFields", by("pulumi-kubernetes", "Update"))
    some = Rendered(rendered.stack, {str(number): item for number, item in enumerate(objects)}, "")
    monkeypatch.setattr(pulumi, "Kubectl", lambda _: FakeCluster(objects))
    lists(monkeypatch, *objects[:-1])
    with pytest.raises(CommandError, match="not in Pulumi's state") as caught:
        Pulumi(PulumiCli("pulumi", "3.260.0")).check(stack, some)
    assert "--adopt" in str(caught.value)
    Pulumi(PulumiCli("pulumi", "3.260.0"), adopt=True).check(stack, some)
    lists(monkeypatch, *objects)
    Pulumi(PulumiCli("pulumi", "3.260.0")).check(stack, some)


def test_a_success_of_an_engine_with_a_missing_object_is_an_error(rendered: Rendered) -> None:
    objects = [item for item in rendered.objects if item["kind"] == "ConfigMap"]
    goes = {**objects[-1], "metadata": {**objects[-1]["metadata"], "deletionTimestamp": "now"}}
    for there in (objects[:-1], [*objects[:-1], goes]):
        cluster: Any = FakeCluster(there)
        with pytest.raises(CommandError, match=f"does not have ConfigMap {goes['metadata']['name']}"):
            require_there(cluster, objects)
    cluster = FakeCluster(objects)
    require_there(cluster, objects)


@pytest.mark.parametrize("adopt", [False, True])
def test_objects_of_another_helm_release_are_refused_under_any_label(stack: Stack, adopt: bool) -> None:
    objects = [made("ConfigMap", "ours"), made("Service", "theirs", annotations=THEIRS)]
    with pytest.raises(CommandError, match=r"belong to someone else: Service theirs\.") as caught:
        ownership.require_ours(objects, stack, "kind-lab", adopt=adopt)
    assert "Nothing was changed" in str(caught.value)


# ---- differences ----


def record(chart: Path, values: Mapping[str, Any]) -> Object:
    files = {str(path.relative_to(chart)): path.read_bytes() for path in (chart / "templates").rglob("*.*")}
    release: Object = {
        "chart": {
            "metadata": yaml.safe_load((chart / "Chart.yaml").read_text("utf-8")),
            "templates": [{"name": name, "data": base64.b64encode(data).decode()} for name, data in files.items()],
            "values": yaml.safe_load((chart / "values.yaml").read_text("utf-8")),
        },
        "config": values,
    }
    data = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    return {"metadata": {"labels": {"status": "deployed"}}, "data": {"release": data}}


def test_a_revision_counts_as_the_same_only_with_the_same_chart_and_the_same_values(tmp_path: Path) -> None:
    values = {"proxy": {"replicas": 2}}
    assert is_of(record(CHART, values), CHART, values)
    assert not is_of(record(CHART, values), CHART, {"proxy": {"replicas": 3}})
    for status in ("failed", "pending-upgrade", "superseded"):
        other = record(CHART, values)
        other["metadata"]["labels"]["status"] = status
        assert not is_of(other, CHART, values)
    for number, name in enumerate(("Chart.yaml", "values.yaml", "templates/proxy.yaml")):
        chart = shutil.copytree(CHART, tmp_path / str(number))
        (chart / name).write_text((chart / name).read_text("utf-8") + "\nanother: x\n", "utf-8")
        assert not is_of(record(chart, values), CHART, values), name
    for nonsense in ("", "e30=", base64.b64encode(b"e30=").decode()):
        assert not is_of({**record(CHART, values), "data": {"release": nonsense}}, CHART, values)


def test_a_stack_with_a_missing_or_leftover_object_is_not_as_declared(rendered: Rendered) -> None:
    objects = [item for item in rendered.objects if item["kind"] in ("ConfigMap", "Namespace")]
    owned = made("ConfigMap", "of-a-controller", ownerReferences=[{"kind": "Deployment", "name": "inference-proxy"}])
    for live, gone in ((objects[:-1], []), ([*objects, owned, made("ConfigMap", "forgotten")], ["forgotten"])):
        cluster: Any = FakeCluster(live)
        assert not as_declared(cluster, partial(state_of_stack, cluster, objects), objects)
        assert [item["metadata"]["name"] for item in state_of_stack(cluster, objects).gone] == gone


# ---- annotations for Pulumi alone ----


def test_pulumi_waits_for_no_service_but_a_load_balancers_and_objects_are_the_same_otherwise(
    definition: Path, edit: Edit, rendered: Rendered
) -> None:
    def declared() -> list[Object]:
        read = read_definition(definition)
        options = pulumi_sdk.ResourceOptions(transformations=[without_service_waits])
        return evaluate(lambda: Environment("dev-lab", resolve(read.stacks[0], read.lock), options))

    def annotated(objects: Sequence[Object]) -> set[tuple[str, str]]:
        return {
            (item["kind"], item["metadata"]["name"])
            for item in objects
            if (item["metadata"].get("annotations") or {}).get(SKIP_AWAIT) == "true"
        }

    objects = declared()
    services = {("Service", item["metadata"]["name"]) for item in objects if item["kind"] == "Service"}
    assert annotated(objects) == services
    assert [clean(item) for item in objects] == [clean(item) for item in rendered.objects]
    edit("proxy:\n", "proxy:\n  exposure: {kind: load-balancer, sourceRanges: [10.0.0.0/8]}\n")
    assert annotated(declared()) == services - {("Service", "inference-proxy")}


# ---- waiting ----


def pool(replicas: int, starts: int, grace: int | None = None) -> Object:
    probe = {"startupProbe": {"failureThreshold": starts, "periodSeconds": 10}}
    pod = {"containers": [probe], "initContainers": [], **({"terminationGracePeriodSeconds": grace} if grace else {})}
    spec = {"replicas": replicas, "template": {"spec": pod}}
    return {"kind": "StatefulSet", "metadata": {"name": "pool"}, "spec": spec}


def scaler(kind: str, **most: int) -> Object:
    spec = {"scaleTargetRef": {"kind": "StatefulSet", "name": "pool"}, **most}
    return {"kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    ("objects", "seconds"),
    [
        ([], 600),
        ([pool(1, 3)], 600),
        ([pool(2, 60, 120)], 2 * (600 + 120) + 300),
        ([pool(2, 60)], 2 * (600 + 30) + 300),
        ([pool(1, 60, 120), scaler("HorizontalPodAutoscaler", maxReplicas=5)], 5 * 720 + 300),
        ([pool(1, 60, 120), scaler("ScaledObject", maxReplicaCount=4)], 4 * 720 + 300),
    ],
)
def test_an_up_may_take_as_long_as_the_slowest_pool_pod_by_pod_and_five_minutes(
    objects: list[Object], seconds: int
) -> None:
    assert watched.timeout_seconds(objects) == seconds


@pytest.fixture
def lacks(monkeypatch: Patch) -> list[list[str]]:
    """The missing workloads at each check, and at last none."""
    checks: list[list[str]] = []
    monkeypatch.setattr(watched, "lacking", lambda *_: checks.pop(0) if checks else [])
    return checks


def test_existing_objects_are_awaited_until_they_are_ready(
    rendered: Rendered, lacks: list[list[str]], capsys: Capsys
) -> None:
    cluster: Any = FakeCluster()
    lacks += [["Deployment inference-proxy: 0 of 1 pods are available"]] * 3
    watched.await_ready(cluster, rendered.objects, 60, 0.01)
    assert lacks == []
    assert capsys.readouterr().err.count("waiting: Deployment inference-proxy: 0 of 1 pods are available") == 1
    lacks += [["StatefulSet small-main: 0 of 1 pods are new"]] * 1000
    with pytest.raises(CommandError, match=r"ready in time:\n    StatefulSet small-main: 0 of 1 pods are new$"):
        watched.await_ready(cluster, rendered.objects, 0.05, 0.01)
    failing, hold = [sys.executable, "-c", "print('not ready, timed out'); raise SystemExit(1)"], RolloutLease("ns")
    for seconds, why in ((600, "not ready, timed out\n"), (0, "not everything became ready in time:\n")):
        assert (watched.run_watched(failing, cluster, hold, rendered.objects, seconds=seconds) or "").startswith(why)
    lacks += [["StatefulSet small-main: 0 of 1 pods are new"]] * 1000
    assert watched.run_watched(failing, cluster, hold, rendered.objects) == "not ready, timed out\n", (
        "without a timeout"
    )


def test_a_command_whose_lease_is_lost_is_killed_without_output(tmp_path: Path) -> None:
    cluster: Any = FakeCluster()
    ready, wrote = tmp_path / "ready", tmp_path / "wrote"
    script = (
        "import signal, sys, time; from pathlib import Path\n"
        "def end(*_): Path(sys.argv[2]).touch(); sys.exit(1)\n"
        "signal.signal(signal.SIGINT, end); signal.signal(signal.SIGTERM, end)\n"
        "Path(sys.argv[1]).touch(); time.sleep(60)"
    )

    class Taken(RolloutLease):
        def ensure_held(self) -> None:
            if ready.exists():
                self.lost = "ana@elsewhere, process 7"
            super().ensure_held()

    begin = time.monotonic()
    command, hold = [sys.executable, "-c", script, str(ready), str(wrote)], Taken("tidegate-dev")
    with pytest.raises(CommandError, match=r"ana@elsewhere, process 7 took over the work in tidegate-dev"):
        watched.run_watched(command, cluster, hold)
    assert time.monotonic() - begin < 20
    assert not wrote.exists()


# ---- Helm's settings ----


@pytest.mark.parametrize("driver", ["configmap", "sql"])
def test_releases_that_are_not_kept_in_secrets_are_refused_in_a_line(
    monkeypatch: Patch, call: Call, pinned: Path, driver: str
) -> None:
    monkeypatch.setenv("HELM_DRIVER", driver)
    with pytest.raises(CommandError, match=f"^HELM_DRIVER is {driver}, but Tidegate supports only .* in Secrets"):
        helm.find()
    monkeypatch.setenv("HELM_DRIVER", "secrets")
    assert helm.find().version
    monkeypatch.setenv("HELM_DRIVER", driver)
    ended = call("up", pinned, "--cluster", "kind-lab", "--engine", "helm", code=2)
    assert ended.err.splitlines()[-1].startswith(f"HELM_DRIVER is {driver}, ")
