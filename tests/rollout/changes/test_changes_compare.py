from typing import Any

import pytest

from rollout.changes.compare import FieldChange, compare, field_changes
from rollout.changes.report import report, values

from ..conftest import made, reported

PEERS = [{"podSelector": {"matchLabels": {"app": name}}} for name in ("a", "b", "c")]
IMAGE = "registry.example.com/a/very/long/path/of/folders/in/a/registry/image"


def test_an_object_in_another_namespace_is_another_object() -> None:
    other = made("ConfigMap") | {"metadata": {"name": "it", "namespace": "elsewhere"}}
    assert [change.verb for change in compare([made("ConfigMap")], [other])] == ["created", "deleted"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 2}, "spec.a 1 → 2"),
        ({"a": 80}, {"a": "80"}, 'spec.a 80 → "80"'),
        ({"a": 1}, {"a": True}, "spec.a 1 → true"),
        ({}, {"a": "x"}, "spec.a – → x"),
        ({"a": "x"}, {}, "spec.a x → –"),
        ({"c": [{"name": "x", "i": 1}]}, {"c": [{"name": "x", "i": 2}]}, "spec.c[x].i 1 → 2"),
        (
            {"c": [{"name": "m", "pool": "a", "versions": [{"version": 3, "weight": 80}]}, {"name": "m", "pool": "b"}]},
            {"c": [{"name": "m", "pool": "a", "versions": [{"version": 3, "weight": 50}]}, {"name": "m", "pool": "b"}]},
            "spec.c[m/a].versions[3].weight 80 → 50",
        ),
        ({"v": [{"version": 3}]}, {"v": [{"version": 4}, {"version": 3}]}, 'spec.v[4] – → {"version": 4}'),
        ({"c": [{"name": "x"}]}, {"c": [{"name": "y"}, {"name": "x"}]}, 'spec.c[y] – → {"name": "y"}'),
        ({"c": [{"name": "x"}, {"name": "y"}]}, {"c": [{"name": "y"}, {"name": "x"}]}, 'spec.c.order ["x", "y"]'),
        ({"args": ["--a", "--b"]}, {"args": ["--a", "--c", "--b"]}, 'spec.args added: "--c"'),
        ({"args": ["--a", "--b=1"]}, {"args": ["--a", "--b=2"]}, "spec.args[1] --b=1 → --b=2"),
        ({"labels": {"a.b/c": "1"}}, {"labels": {"a.b/c": "2"}}, "spec.labels[a.b/c] 1 → 2"),
        # To Kubernetes an empty list can mean all.
        ({"from": PEERS}, {"from": []}, "→ []"),
        ({"f": '{"models": [{"name": "m", "idle": 1}]}'}, {"f": '{"models": [{"name": "m", "idle": 2}]}'},
         "spec.f.models[m].idle 1 → 2"),
        ({"f": "a\nb\n"}, {"f": "a\nc\nd\n"}, "spec.f (text of 2 lines: 1 gone, 2 new)"),
        ({"image": f"{IMAGE}:1.0"}, {"image": f"{IMAGE}:2.0"}, f"spec.image {IMAGE}:1.0 → {IMAGE}:2.0"),
    ],
)  # fmt: skip
def test_a_changed_field_is_named_with_both_values(old: dict[str, Any], new: dict[str, Any], expected: str) -> None:
    assert expected in reported(made("Deployment", spec=old), made("Deployment", spec=new))


def test_lost_and_gained_elements_of_a_list_without_names_are_listed_one_by_one() -> None:
    def peers(*places: int) -> dict[str, Any]:
        return made("NetworkPolicy", spec={"ingress": [{"from": [PEERS[place] for place in places]}]})

    def words(verb: str, name: str) -> str:
        return f'      spec.ingress[0].from {verb}: {{"podSelector": {{"matchLabels": {{"app": "{name}"}}}}}}'

    assert reported(peers(0, 1, 2), peers(1)).splitlines()[2:] == [words("removed", "a"), words("removed", "c")]
    assert reported(peers(0, 1), peers(1, 2)).splitlines()[2:] == [words("removed", "a"), words("added", "c")]
    assert reported(peers(0, 0), peers(0)).splitlines()[2:] == [words("removed", "a")]
    assert "[0].from[1].podSelector.matchLabels.app b → c" in reported(peers(0, 1), peers(0, 2))


@pytest.mark.parametrize(
    ("kind", "old", "new", "field"),
    [
        ("StatefulSet", {"serviceName": "a"}, {"serviceName": "b"}, "spec.serviceName"),
        ("Deployment", {"selector": {"matchLabels": {"a": "1"}}}, {"selector": {"matchLabels": {}}}, "spec.selector"),
        ("PersistentVolumeClaim", {"storageClassName": "a"}, {"storageClassName": "b"}, "spec.storageClassName"),
        ("PersistentVolumeClaim", {"resources": {"requests": {"storage": "1Gi"}}},
         {"resources": {"requests": {"storage": "2Gi"}}}, "spec.resources.requests"),
        ("PersistentVolume", {"nfs": {"path": "/a"}}, {"nfs": {"path": "/b"}}, "spec.nfs"),
        ("Service", {"clusterIP": "None"}, {}, "spec.clusterIP"),
        ("ResourceClaimTemplate", {"spec": {"a": 1}}, {"spec": {"a": 2}}, "spec.spec"),
    ],
)  # fmt: skip
def test_a_changed_field_that_is_immutable_makes_a_replacement(
    kind: str, old: dict[str, Any], new: dict[str, Any], field: str
) -> None:
    (change,) = compare([made(kind, spec=old)], [made(kind, spec=new)])
    assert (change.verb, field in change.immutable) == ("replaced", True)
    assert f"REPLACED {kind} it" in reported(made(kind, spec=old), made(kind, spec=new))


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("StatefulSet", {"replicas": 1, "template": {"x": 1}}, {"replicas": 2, "template": {"x": 2}}),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, {"minReadySeconds": 1, "ordinals": {"start": 1}}),
        ("Deployment", {"strategy": {}, "template": {"x": [1]}}, {"template": {"x": [2]}}),
        ("PersistentVolumeClaim", {"volumeAttributesClassName": "a"}, {"volumeAttributesClassName": "b"}),
        ("PersistentVolume", {"capacity": {"storage": "1Gi"}}, {"capacity": {"storage": "2Gi"}, "mountOptions": ["x"]}),
        ("Service", {"ports": [{"port": 1}]}, {"ports": [{"port": 2}]}),
    ],
)
def test_other_fields_are_changed_in_place(kind: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    (change,) = compare([made(kind, spec=old)], [made(kind, spec=new)])
    assert change.verb == "changed"


def test_a_replacement_has_a_remedy_for_datasets_and_the_effect_on_other_objects() -> None:
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        assert (
            "spec.storage cannot be changed in place, and datasets are protected: add a dataset with another name"
            " and move the servers to it\n"
        ) in reported(made(kind, spec={"storage": 1}), made(kind, spec={"storage": 2}))
    assert (
        "spec.selector, spec.serviceName cannot be changed in place: kubectl refuses it, and Pulumi deletes the object"
        " and creates a new one\n"
    ) in reported(made("StatefulSet", spec={"selector": 1, "serviceName": 1}), made("StatefulSet", spec={}))


def test_data_of_an_immutable_config_map_makes_a_replacement() -> None:
    old, new = made("ConfigMap", immutable=True, data={"a": "1"}), made("ConfigMap", immutable=True, data={"a": "2"})
    assert compare([old], [new])[0].immutable == ("data.a",)


def test_dangerous_changes_come_first() -> None:
    changes = compare([made("Service")], [made("ConfigMap")])
    assert [line.split()[0] for line in report({"stack": changes}).plain.splitlines()[1:]] == ["DELETED", "created"]


def test_stacks_that_change_alike_are_shown_once() -> None:
    changes = compare([made("Service", spec={"a": 1})], [made("Service", spec={"a": 2})])
    text = report({"one": changes, "two": changes, "three": []}).plain
    assert text.count("spec.a 1 → 2") == 1
    assert "two: 1 changed – the same as one" in text
    assert "three" not in text


def test_the_checksum_of_a_file_is_reported_only_without_the_file() -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tables"}}
    old = head | {"data": {"a.json": "1\n", "a.json.sha256": "x"}}
    whole = head | {"data": {"a.json": "2\n", "a.json.sha256": "y"}}
    alone = head | {"data": {"a.json": "1\n", "a.json.sha256": "y"}}
    assert [each.path[:2] for each in field_changes(old, whole)] == [("data", "a.json")]
    assert [each.path for each in field_changes(old, alone)] == [("data", "a.json.sha256")]


@pytest.mark.parametrize("ends", [("?a", "?b"), ("", "?b"), ("?a", "")])
def test_long_values_that_differ_at_their_ends_show_the_ends(ends: tuple[str, str]) -> None:
    was, now = (f"https://idp.example.com/{'x' * 300}{end}" for end in ends)
    old, new = values(FieldChange(("data", "url"), was, now)).split(" → ")
    assert old != new
    assert (old.endswith(f"x{ends[0]}"), new.endswith(f"x{ends[1]}")) == (True, True)
