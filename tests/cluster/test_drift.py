from typing import Any

import pytest

from rollout.changes.compare import MISSING, ObjectChange
from tests.processes import until

from .world import HELM, Site


def fields(changes: list[ObjectChange]) -> dict[tuple[str, str, str], tuple[Any, Any]]:
    return {
        (change.kind, change.name, field.place): (field.old, field.new) for change in changes for field in change.fields
    }


def test_every_kind_of_drift_is_shown_and_reverted(site: Site) -> None:
    site.up()
    site.kubectl("scale", "deployment", "inference-proxy", "--replicas=4")
    site.kubectl("set", "env", "statefulset/small-main", "--containers=triton", "LEAK=1")
    site.kubectl("set", "image", "statefulset/small-extra", "triton=registry.test/other:9")
    site.kubectl("delete", "service", "small-main")
    site.kubectl("patch", "configmap", "inference-proxy-routing", "--type=merge", '--patch={"data":{"extra":"x"}}')
    opened = '[{"op":"add","path":"/spec/ingress","value":[{}]}]'
    site.kubectl("patch", "networkpolicy", "default-deny", "--type=json", f"--patch={opened}")
    container = '{"spec":{"template":{"spec":{"containers":[{"name":"shady","image":"registry.test/shady:1"}]}}}}'
    site.kubectl("patch", "statefulset", "small-extra", f"--patch={container}")
    site.kubectl("label", "configmap", "inference-proxy-settings", "team=other")
    site.kubectl("annotate", "service", "inference-proxy", "note=hello")
    enforce = "pod-security.kubernetes.io/enforce"
    site.kubectl("label", "namespace", f"{site.prefix}-dev", f"{enforce}=privileged", "--overwrite")

    written, page = site.written(), site.folder / "preview.md"
    site.run("preview", "--cluster", site.cluster.context, "--stack", "dev-lab", "--summary", str(page))
    assert site.written() == written, "a preview changes nothing"
    assert "1 stack: 1 changed · objects: 1 created, " in page.read_text("utf-8").splitlines()[0]
    gone = "Service small-main. If the definition had them before, someone deleted them by hand"
    for line in (gone, "registry.test/other&#58;9 → registry.test/triton&#58;1", "4 pods → 1 pod: the last ones end"):
        assert line in page.read_text("utf-8")
    changes = site.changes()
    assert ("created", "Service", "small-main") in [(change.verb, change.kind, change.name) for change in changes]
    seen = fields(changes)
    containers = "spec.template.spec.containers"
    rendered = {(item["kind"], item["metadata"]["name"]): item for item in site.rendered("dev-lab").objects}
    image = rendered["StatefulSet", "small-extra"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert seen.pop(("StatefulSet", "small-extra", f"{containers}[shady]"))[1] is MISSING
    assert seen == {
        ("Namespace", f"{site.prefix}-dev", f"metadata.labels[{enforce}]"): ("privileged", "restricted"),
        ("Deployment", "inference-proxy", "spec.replicas"): (4, 1),
        ("StatefulSet", "small-main", f"{containers}[triton].env[LEAK]"): ({"name": "LEAK", "value": "1"}, MISSING),
        ("StatefulSet", "small-extra", f"{containers}[triton].image"): ("registry.test/other:9", image),
        ("ConfigMap", "inference-proxy-routing", "data.extra"): ("x", MISSING),
        ("NetworkPolicy", "default-deny", "spec.ingress"): ([{}], MISSING),
    }

    site.up()
    assert site.changes() == []
    site.run("preview", "--cluster", site.cluster.context, "--stack", "dev-lab", "--summary", str(page))
    assert page.read_text("utf-8").startswith("**✅ 1 stack: 1 unchanged**")
    now = site.objects()
    namespace = f"{site.prefix}-dev"
    assert now["Deployment", namespace, "inference-proxy"]["spec"]["replicas"] == 1
    assert "extra" not in now["ConfigMap", namespace, "inference-proxy-routing"]["data"]
    assert "ingress" not in now["NetworkPolicy", namespace, "default-deny"]["spec"]
    pod = now["StatefulSet", namespace, "small-extra"]["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == ["triton"]
    # Other people's labels and annotations stay.
    assert now["ConfigMap", namespace, "inference-proxy-settings"]["metadata"]["labels"]["team"] == "other"
    assert now["Service", namespace, "inference-proxy"]["metadata"]["annotations"]["note"] == "hello"


@pytest.mark.thorough
def test_an_object_that_a_user_replaced_by_its_export_has_not_drifted(site: Site) -> None:
    """The user then owns every field, including defaults, but nothing would change."""
    site.up()
    for kind, name in (("service", "small-main"), ("statefulset", "small-main"), ("deployment", "inference-proxy")):
        text = site.kubectl("get", kind, name, "--output=yaml").stdout
        site.kubectl("replace", "--filename=-", input=text)
    assert site.changes() == []
    before = site.state("generation")
    site.up()
    assert site.state("generation") == before
    assert site.changes() == []


@pytest.mark.thorough
@HELM
def test_replicas_set_by_an_autoscaler_are_no_drift_and_stay(site: Site) -> None:
    """Neither the autoscaler's number, nor a user's number in its place."""
    site.up(stack="prod-lab")
    namespace = f"{site.prefix}-prod"
    proxy = "Deployment", namespace, "inference-proxy"
    until("the autoscaler has three replicas", lambda: site.objects()[proxy]["spec"]["replicas"] == 3)
    assert site.changes("prod-lab") == []
    site.cluster.kubectl("--namespace", namespace, "scale", "deployment", "inference-proxy", "--replicas=5")
    assert site.changes("prod-lab") == []
    site.up(stack="prod-lab")
    assert site.objects()[proxy]["spec"]["replicas"] == 5


@pytest.mark.thorough
def test_switching_autoscaling_on_keeps_the_replicas_that_there_are(site: Site) -> None:
    """An engine that no longer declares a field removes it, and the API server's default is one replica."""
    site.edit("proxy:\n  replicas: 1", "proxy:\n  replicas: 4")
    site.up()
    generation = site.state("generation")["Deployment", f"{site.prefix}-dev", "inference-proxy"]
    site.edit("proxy:\n  replicas: 4", "proxy:\n  autoscaling: {min: 2, max: 6}")
    changes = site.changes()
    assert {change.kind for change in changes} <= {"HorizontalPodAutoscaler", "Namespace"}
    site.up()
    deployment = site.objects()["Deployment", f"{site.prefix}-dev", "inference-proxy"]
    assert deployment["metadata"]["generation"] == generation
    assert deployment["spec"]["replicas"] == 4
    assert site.changes() == []


@pytest.mark.thorough
def test_a_field_that_is_no_longer_declared_is_seen_and_goes(site: Site) -> None:
    """The API server's default replaces it, and the preview shows that default."""
    site.edit("replicas: 1}\n      - {name: extra", "replicas: 1, priorityClass: special}\n      - {name: extra")
    special = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "special"}}
    site.cluster.apply([{**special, "value": 10}])
    site.up()
    site.edit("replicas: 1, priorityClass: special}", "replicas: 1}")
    place = ("StatefulSet", "small-main", "spec.template.spec.priorityClassName")
    assert fields(site.changes())[place] == ("special", MISSING)
    site.up()
    assert site.changes() == []
