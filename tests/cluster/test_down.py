import shlex

import pytest

from tests.processes import until

from .world import HELM, Site

WHAT_A_NAMESPACE_HAS = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}


def everything_in(site: Site, namespace: str) -> set[tuple[str, str]]:
    """Return a namespace's objects, except events, and those that Kubernetes deletes with their owner or Service."""
    answer = site.cluster.kubectl("api-resources", "--verbs=list", "--namespaced", "--output=name")
    kinds = [kind for kind in answer.stdout.split() if not kind.startswith("events")]
    found = site.cluster.get(",".join(kinds), namespace=namespace)
    return {
        (item["kind"], item["metadata"]["name"])
        for item in found
        if not item["metadata"].keys() & {"deletionTimestamp", "ownerReferences"} and item["kind"] != "Endpoints"
    }


@pytest.mark.thorough
def test_down_leaves_volumes_and_nothing_else_and_up_again_finds_them_bound(site: Site) -> None:
    site.up()
    kept = {"PersistentVolume", "PersistentVolumeClaim"}
    before = {key: uid for key, uid in site.state("uid").items() if key[0] in kept}
    assert len(before) == 4
    ended = site.down()
    namespace = f"{site.prefix}-dev"
    claims = {("PersistentVolumeClaim", "models"), ("PersistentVolumeClaim", "spare")}
    assert everything_in(site, namespace) == WHAT_A_NAMESPACE_HAS | claims
    assert site.state("uid") == before
    for line in ("PersistentVolume {}-models", "Namespace {}, which holds the claims and your Secrets"):
        assert f"  {line.format(namespace)}\n" in ended.out

    site.up()
    after = site.objects()
    assert {key: after[key]["metadata"]["uid"] for key in before} == before
    assert {after[key]["status"]["phase"] for key in before} == {"Bound"}
    assert site.changes() == []


@pytest.mark.thorough
@HELM
def test_the_printed_commands_delete_the_rest(site: Site) -> None:
    """The test runs the printed commands. They do not delete the volume of a namesake elsewhere in the cluster."""
    site.up()
    theirs = site.cluster.get("persistentvolume", f"{site.prefix}-dev-models")
    labels = theirs["metadata"]["labels"]
    theirs["metadata"] = {"name": f"other-{site.prefix}-dev-models", "labels": labels}
    theirs["spec"]["claimRef"] = {"namespace": f"other-{site.prefix}-dev", "name": "models"}
    site.cluster.apply([theirs])
    ended = site.down()
    assert "other-" not in ended.text
    commands = [line.split() for line in ended.out.splitlines() if line.startswith("  kubectl ")]
    assert len(commands) == 2
    # While pods terminate, Kubernetes checks a namespace again only after half of their grace period.
    until("all pods are gone", lambda: not site.objects("pods"))
    for command in commands:
        assert shlex.join(command[1:3]) == "--context tests"
        site.cluster.kubectl(*command[1:])
    assert site.objects() == {}
    names = {item["metadata"]["name"] for item in site.cluster.get("namespaces")}
    assert f"{site.prefix}-dev" not in names
    assert site.down().out == f"dev-lab does not exist: tests has no namespace {site.prefix}-dev.\n"


@pytest.mark.thorough
@HELM
def test_the_next_down_completes_an_interrupted_one(site: Site) -> None:
    """A release that a killed Helm left uninstalling, and an object outside the release."""
    site.up()
    site.kubectl("delete", "service", "small-main")
    labels = "app.kubernetes.io/part-of=tidegate,app.kubernetes.io/instance=dev"
    site.kubectl("create", "configmap", "forgotten")
    site.kubectl("label", "configmap", "forgotten", *labels.split(","))
    assert ("deleted", "forgotten") in [(change.verb, change.name) for change in site.changes()]
    site.down()
    left = everything_in(site, f"{site.prefix}-dev") - WHAT_A_NAMESPACE_HAS
    assert {kind for kind, _ in left} == {"PersistentVolumeClaim"}
