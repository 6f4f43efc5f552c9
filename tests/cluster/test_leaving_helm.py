"""From Helm back to `kubectl apply`, one environment of two in a cluster: the row of docs/helm.md, word by word."""

from pathlib import Path

import pytest

from .bringing import Site
from .world import ROOT, settled


def apply_rendered(site: Site, folder: Path) -> None:
    """Render dev-lab and apply its files as the documentation says."""
    site.run("up", "--out", str(folder), "--stack", "dev-lab")
    options = "--server-side", "--force-conflicts", "--field-manager=helm"
    site.kubectl("apply", *options, "--filename", str(folder / "dev-lab"))


@pytest.mark.thorough
def test_one_of_two_environments_leaves_helm_and_nothing_is_made_anew(helm_site: Site, tmp_path: Path) -> None:
    site = helm_site
    site.edit("{name: dev, ", "{name: dev, labels: {example.com/owner: me}, ")
    for stack in ("dev-lab", "prod-lab"):
        site.up(stack=stack)
        settled(site.cluster, f"{site.prefix}-{stack.partition('-')[0]}")
    before = site.state("uid")

    apply_rendered(site, tmp_path / "rendered")
    site.kubectl("delete", "secret", "--selector", "owner=helm,name=dev-lab")
    assert (site.release("dev-lab"), site.release("prod-lab")) == ("", "deployed")
    assert site.state("uid") == before
    assert site.changes("dev-lab") == site.changes("prod-lab") == []

    # What is taken out of the definition later goes too, since the fields have kept their one owner.
    site.edit("labels: {example.com/owner: me}, ", "")
    apply_rendered(site, tmp_path / "rendered")
    (namespace,) = (item for item in site.cluster.get("namespaces") if item["metadata"]["name"] == f"{site.prefix}-dev")
    assert "example.com/owner" not in namespace["metadata"]["labels"]
    assert site.state("uid") == before


def test_the_documentation_says_these_commands() -> None:
    page = (ROOT / "docs/helm.md").read_text("utf-8")
    assert "kubectl apply --server-side --force-conflicts --field-manager=helm -f build/rendered/<stack>/" in page
    assert "kubectl delete secret --namespace <namespace> --selector owner=helm,name=<stack>" in page
