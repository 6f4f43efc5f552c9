"""Moving an environment from one engine to another, or to none, adopts its objects: nothing is made anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.local_cluster import LocalCluster

from .world import KINDS, ROOT, Site, settled, site_in

EVERYTHING = f"{KINDS},pods"


@pytest.fixture
def pulumi_site(
    cluster: LocalCluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """A site where Pulumi is."""
    made = site_in(cluster, namespace, "pulumi", tmp_path, monkeypatch)
    yield made
    made.end()


@pytest.mark.thorough
def test_from_helm_to_pulumi_and_back(pulumi_site: Site) -> None:
    """Each engine refuses what is the other's, says so, and adopts it when it is told to."""
    site = pulumi_site
    site.up(engine="helm")
    settled(site.cluster, f"{site.prefix}-dev")
    before = site.state("uid", EVERYTHING)
    ended = site.up(engine="pulumi", ok=False)
    assert ended.code == 1
    assert f"dev-lab was brought up with Helm, as release dev-lab in namespace {site.prefix}-dev." in ended.err
    assert "make up CLUSTER=tests STACK=dev-lab ENGINE=pulumi ADOPT=1" in ended.err

    site.up("--adopt", engine="pulumi")
    assert site.state("uid", EVERYTHING) == before
    assert site.release() == "", "Helm has forgotten it"
    assert site.changes() == []
    site.up(engine="pulumi")
    assert site.state("uid", EVERYTHING) == before

    ended = site.up(engine="helm", ok=False)
    assert ended.code == 1
    assert "dev-lab was brought up with Pulumi." in ended.err
    ended = site.up("--adopt", engine="helm")
    assert "pulumi stack rm --force --preserve-config dev-lab" in ended.err
    assert site.state("uid", EVERYTHING) == before
    assert site.release() == "deployed"
    assert site.changes() == []

    # What is no longer declared goes with either: nobody of before holds it.
    site.edit("      - {name: extra, loading: {mode: on-demand, capacity: 1Gi}, replicas: 1}\n", "")
    site.edit("proxy:\n  replicas: 1", "proxy:\n  autoscaling: {min: 2, max: 6}")
    site.up(engine="helm")
    assert site.changes() == []


def test_what_kubectl_applied_is_adopted_by_helm(helm_site: Site) -> None:
    """The rendered files were the way before; now it is a release."""
    site = helm_site
    site.cluster.apply(site.rendered("dev-lab").objects)
    settled(site.cluster, f"{site.prefix}-dev")
    before = site.state("uid", EVERYTHING)
    assert site.changes() == []
    ended = site.up(ok=False)
    assert ended.code == 1
    assert "dev-lab was brought up with kubectl, or by a GitOps controller." in ended.err
    site.up("--adopt")
    assert site.state("uid", EVERYTHING) == before
    assert site.release() == "deployed"
    assert site.changes() == []
    site.edit("      - {name: extra, loading: {mode: on-demand, capacity: 1Gi}, replicas: 1}\n", "")
    site.up()
    assert site.changes() == []


def apply_rendered(site: Site) -> None:
    """Render dev-lab and apply its files as docs/helm.md says."""
    site.run("up", "--out", str(site.folder / "rendered"), "--stack", "dev-lab")
    options = "--server-side", "--force-conflicts", "--field-manager=helm"
    site.kubectl("apply", *options, "--filename", str(site.folder / "rendered" / "dev-lab"))


@pytest.mark.thorough
def test_one_of_two_environments_leaves_helm_and_nothing_is_made_anew(helm_site: Site) -> None:
    site = helm_site
    site.edit("{name: dev, ", "{name: dev, labels: {example.com/owner: me}, ")
    for stack in ("dev-lab", "prod-lab"):
        site.up(stack=stack)
        settled(site.cluster, f"{site.prefix}-{stack.partition('-')[0]}")
    before = site.state("uid")

    apply_rendered(site)
    site.kubectl("delete", "secret", "--selector", "owner=helm,name=dev-lab")
    assert (site.release("dev-lab"), site.release("prod-lab")) == ("", "deployed")
    assert site.state("uid") == before
    assert site.changes("dev-lab") == site.changes("prod-lab") == []

    # What is taken out of the definition later goes too, since the fields have kept their one owner.
    site.edit("labels: {example.com/owner: me}, ", "")
    apply_rendered(site)
    (namespace,) = (item for item in site.cluster.get("namespaces") if item["metadata"]["name"] == f"{site.prefix}-dev")
    assert "example.com/owner" not in namespace["metadata"]["labels"]
    assert site.state("uid") == before


def test_the_documentation_says_these_commands() -> None:
    page = (ROOT / "docs/helm.md").read_text("utf-8")
    assert "kubectl apply --server-side --force-conflicts --field-manager=helm -f build/rendered/<stack>/" in page
    assert "kubectl delete secret --namespace <namespace> --selector owner=helm,name=<stack>" in page
