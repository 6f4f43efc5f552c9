import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollout import cluster, engines, live, orphans
from rollout.changes.page import page
from rollout.changes.stack_change import stack_change
from rollout.contexts import on_cluster
from rollout.orphans import Orphan
from stacks.command import CommandError
from stacks.stack import StackId
from stacks.validate import read_definition

from .conftest import Call, Edit, Patch
from .fake_cluster import FakeCluster, Object

MARKS = {"app.kubernetes.io/part-of": "tidegate"}
INSTANCE = "app.kubernetes.io/instance"


def namespace(name: str, environment: str, plane: str = "lab", context: str = "kind-lab", **more: Any) -> Object:
    """A namespace as Pulumi and `up` leave it. `more` is added to its data plane and its head."""
    platform = {"platform": more.pop("platform")} if "platform" in more else {}
    recorded = {"dataPlane": {"name": plane, "context": context, **platform}}
    notes = {"tidegate.dev/definition": json.dumps(recorded), "tidegate.dev/guardrails": '{"kind": "shared"}'}
    pulumi = {"manager": "pulumi-kubernetes", "operation": "Update", "time": "2026-01-01T00:00:00Z"}
    head = {"labels": {**MARKS, INSTANCE: environment}, "annotations": notes, "managedFields": [pulumi]}
    head |= {"creationTimestamp": "2026-01-01T10:00:00Z", **more}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **head}}


def inside(kind: str, where: Object) -> Object:
    head = {"name": "it", "namespace": where["metadata"]["name"], "labels": where["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": kind, "metadata": head}


def stack_in(*arguments: Any, **more: Any) -> list[Object]:
    where = namespace(*arguments, **more)
    return [where, inside("StatefulSet", where), inside("PersistentVolumeClaim", where)]


OLD = stack_in("tidegate-old", "old")


@pytest.fixture
def there(monkeypatch: Patch) -> Callable[..., None]:
    def have(*objects: Object, uids: Mapping[str, str] | None = None) -> None:
        for module in (orphans, cluster, live):
            monkeypatch.setattr(module, "Kubectl", lambda context: FakeCluster(objects, context, uids=uids or {}))

    return have


def found(definition: Path, where: str = "kind-lab", name: str | None = None) -> list[Orphan]:
    read = read_definition(definition)
    try:
        on_cluster(read, where, name)
    except CommandError as error:
        return orphans.orphans_in(read, where, name, error)
    return orphans.orphans_in(read, where, name)


Have = Callable[..., None]


# ---- finding them ----


def test_objects_outside_of_the_definitions_stacks_are_orphans(definition: Path, there: Have) -> None:
    there(*stack_in("tidegate-dev", "dev"), *OLD)
    (orphan,) = found(definition)
    assert (orphan.home.name, orphan.home.namespace, orphan.home.data_plane.context) == (
        "old-lab", "tidegate-old", "kind-lab",
    )  # fmt: skip
    assert orphan.words == (
        "is no longer described, but still exists (namespace tidegate-old, since 2026-01-01, 1 object by Pulumi)"
        ". If another definition has it, set `platform` in both"
    )
    assert orphan.command == f"tidegate down {definition} --cluster kind-lab --stack old-lab"


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param(stack_in("tidegate-dev", "dev"), id="described"),
        pytest.param(stack_in("tidegate-dev", "before", "west"), id="in a namespace that is described"),
        pytest.param(stack_in("tidegate-prod", "prod", "east", "east"), id="described, by another context"),
        pytest.param(stack_in("tidegate-old", "old", platform="theirs"), id="another platform's"),
        pytest.param([OLD[0], OLD[2]], id="taken down without its volumes"),
        pytest.param(stack_in("tidegate-old", "old", deletionTimestamp="2026-01-02T00:00:00Z"), id="being deleted"),
        pytest.param(stack_in("kube-system", "old"), id="labelled by someone else"),
        pytest.param(stack_in("tidegate-old", "No Name"), id="labelled with what is no environment's name"),
    ],
)
def test_objects_that_are_no_orphans(definition: Path, there: Have, objects: list[Object]) -> None:
    there(*objects)
    assert found(definition) == []


def test_a_platform_sees_its_own_orphans_alone(definition: Path, there: Have, edit: Edit) -> None:
    edit("context: kind-lab, ", "context: kind-lab, platform: ours, ")
    there(*OLD, *stack_in("a", "a", platform="ours"), *stack_in("b", "b", platform="theirs"))
    assert [each.home.name for each in found(definition)] == ["a-lab"]


def test_a_cluster_without_a_data_plane_is_searched_if_the_kubeconfig_has_it(definition: Path, there: Have) -> None:
    there(*stack_in("tidegate-prod", "prod", "west", "eks-old"))
    assert [each.home.name for each in found(definition, "eks-old")] == ["prod-west"]
    with pytest.raises(CommandError, match=r"has the context nope\. There are: kind-lab, east\.") as caught:
        found(definition, "nope")
    assert caught.value.code == 2
    there()
    with pytest.raises(CommandError, match=r"has the context eks-old\."):
        found(definition, "eks-old")


def test_objects_in_a_stacks_former_namespace_are_never_mistaken_for_the_stack(definition: Path, there: Have) -> None:
    """Another stack has its name now, so the command contains the namespace."""
    there(*stack_in("before", "dev"))
    (orphan,) = found(definition)
    assert orphan.words.startswith("is still in its former namespace (namespace before, since ")
    assert orphan.words.endswith(", but the definition sets tidegate-dev")
    assert orphan.command.startswith("kubectl --context kind-lab delete statefulset -n before -l ")


@pytest.mark.parametrize("uids", [{"eks-old": "1", "east": "2"}, {"eks-old": "1", "east": "1"}, {"eks-old": "1"}])
def test_objects_in_a_stacks_former_cluster_are_removed_by_its_name_there(
    definition: Path, there: Have, uids: dict[str, str], engine: "Engine", call: Call
) -> None:
    """Unless the other context leads to the same cluster, or that is unknown: then it would be the stack itself."""
    there(*stack_in("tidegate-prod", "prod", "east", "eks-old"), uids=uids)
    ended = call("down", definition, "--cluster", "eks-old", "--stack", "prod-east")
    if len(set(uids.values())) == 2:
        assert (ended.code, engine.gone) == (0, [("prod-east", "tidegate-prod", "two.yaml")])
    else:
        assert (ended.code, engine.gone) == (2, [])
        assert "No data plane of" in ended.err


def test_an_unknown_name_lists_those_of_the_definition_and_of_the_cluster(definition: Path, there: Have) -> None:
    there(*OLD)
    with pytest.raises(CommandError) as caught:
        found(definition, name="old-lob")
    assert str(caught.value) == (
        f'There is no stack old-lob, neither in {definition} nor in kind-lab. Did you mean "old-lab"?'
        " There are: dev-lab, prod-east, old-lab. Only the cluster has: old-lab."
    )
    assert caught.value.code == 2
    with pytest.raises(CommandError, match="stack prod-east does not live in kind-lab, but in east"):
        found(definition, name="prod-east")


# ---- reporting them ----


def test_a_preview_of_a_cluster_that_holds_only_an_orphan_is_not_green_and_has_the_command(
    call: Call, definition: Path, there: Have, tmp_path: Path
) -> None:
    there(*stack_in("tidegate-prod", "prod", "west", "eks-old"))
    summary, command = tmp_path / "page.md", f"tidegate down {definition} --cluster eks-old --stack prod-west"
    where = ("preview", definition, "--cluster", "eks-old", "--summary", summary)
    assert f"{command}\n" in call(*where, code=0).out
    text = summary.read_text("utf-8")
    assert text.startswith("**⚠️ 1 stack: 1 ORPHANED**")
    assert "- **ORPHANED** <code>prod-west</code> **is no longer described, but still exists" in text
    (one,) = json.loads(call(*where, "--json", code=0).out)["stacks"]
    assert (one["name"], one["state"], one["down"]) == ("prod-west", "orphaned", command)
    assert one["stays"].startswith("is no longer described")


def test_a_removed_stack_is_reported_with_the_command_that_takes_it_down() -> None:
    removed = stack_change("old-lab", [OLD[0]], None, definition="a.yaml")
    assert removed.down == "tidegate down a.yaml --cluster kind-lab --stack old-lab"
    assert f"To remove them: {removed.down}**" in page([removed], "It")


# ---- removing them ----


@dataclass
class Engine:
    name: str = "pulumi"
    title: str = "Stand-in 1.0"
    gone: list[tuple[str, str, str]] = field(default_factory=list)

    def down(self, home: StackId, definition: Path) -> None:
        self.gone.append((home.name, home.namespace, definition.name))


@pytest.fixture
def engine(monkeypatch: Patch) -> Engine:
    engine = Engine()
    monkeypatch.setattr(engines, "FINDERS", {"pulumi": lambda _: engine})
    return engine


@pytest.fixture
def down(call: Call, definition: Path) -> Call:
    return partial(call, "down", definition, "--cluster", "kind-lab")


def test_orphans_go_by_their_names_alone(down: Call, engine: Engine, there: Have) -> None:
    there(*stack_in("tidegate-dev", "dev"), *OLD)
    ended = down(code=0)
    assert [name for name, *_ in engine.gone] == ["dev-lab"]
    assert "--stack old-lab" in ended.err
    engine.gone.clear()
    ended = down("--stack", "old-lab", code=0)
    assert engine.gone == [("old-lab", "tidegate-old", "two.yaml")]
    assert ended.out.startswith("Down in kind-lab: old-lab.\n")
    assert "`pulumi stack rm --force old-lab`" in ended.err


def of_kind(kind: str) -> list[Object]:
    objects = stack_in("tidegate-old", "old")
    objects[0]["metadata"]["annotations"]["tidegate.dev/guardrails"] = json.dumps({"kind": kind})
    return objects


@pytest.mark.parametrize(
    ("objects", "name", "parts"),
    [
        (stack_in("tidegate-prod", "prod", "west", "eks-old"), None, ["--cluster eks-old --stack prod-west"]),
        (of_kind("production"), "old-lab", ["old-lab is production"]),
        ([*OLD, *stack_in("theirs", "old")], "old-lab",
         [f"  kubectl --context kind-lab delete statefulset -n {name} -l " for name in ("tidegate-old", "theirs")]),
        (stack_in("tidegate-old", "old", managedFields=[]), "old-lab",
         ["GitOps controller", "delete statefulset -n tidegate-old -l app.kubernetes.io/part-of=tidegate,"]),
    ],
    ids=["all are orphans", "production", "two of one name, as of two definitions", "brought up by no engine"],
)  # fmt: skip
def test_remaining_stacks_are_reported_with_the_command_that_takes_them_down(
    call: Call, definition: Path, engine: Engine, there: Have, objects: list[Object], name: str | None, parts: list[str]
) -> None:  # fmt: skip
    there(*objects)
    where = ("--cluster", "kind-lab", "--stack", name) if name else ("--cluster", "eks-old")
    ended = call("down", definition, *where, code=2)
    assert engine.gone == []
    assert all(part in ended.err for part in parts), ended.err
    if "production" in ended.err:
        call("down", definition, *where, "--yes", code=0)
        assert [name for name, *_ in engine.gone] == ["old-lab"]
