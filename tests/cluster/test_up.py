import json

import pytest

from charts import CHART
from tests.processes import until

from .world import HELM, Site, settled

POD_KINDS = "pods"


def test_dev_and_prod_come_up_side_by_side_and_a_second_up_changes_nothing(site: Site) -> None:
    """Objects, versions and generations stay, although the API server has set all defaults meanwhile. Someone made the
    namespace of prod before, for the secrets of its pods."""
    site.cluster.kubectl("create", "namespace", f"{site.prefix}-prod")
    site.cluster.kubectl("create", "secret", "generic", "keys", "--namespace", f"{site.prefix}-prod")
    ended = site.up(stack=None)
    assert ended.out.endswith("Up in tests: dev-lab, prod-lab.\n")
    assert f"with {site.engine.capitalize()} " in ended.err, "it names the engine"
    proxy = "Deployment", f"{site.prefix}-prod", "inference-proxy"
    until("the autoscaler of prod has three replicas", lambda: site.objects()[proxy]["spec"]["replicas"] == 3)
    settled(site.cluster, f"{site.prefix}-dev", f"{site.prefix}-prod")
    objects = site.objects()
    assert objects["PersistentVolumeClaim", f"{site.prefix}-dev", "models"]["status"]["phase"] == "Bound"
    assert len({key[1] for key in objects if key[1]}) == 2
    declared = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for stack in ("dev-lab", "prod-lab")
        for item in site.rendered(stack).objects
        if item["kind"] != "Namespace"
    }
    assert objects.keys() == declared

    for stack in ("dev-lab", "prod-lab"):
        assert site.changes(stack) == []
    before, pods = site.written(), site.state("uid", POD_KINDS)
    again = site.up(stack=None)
    if site.engine == "helm":  # Pulumi reports unchanged objects itself.
        assert again.out == "".join(
            (*(f"Nothing changed: {stack} is as declared.\n" for stack in ("dev-lab", "prod-lab")), ended.out)
        )
    assert site.written() == before
    assert site.state("uid", POD_KINDS) == pods
    for stack in ("dev-lab", "prod-lab"):
        assert site.changes(stack) == []
    assert_who_may_do_all_in_dev_cannot_even_read_prod_and_our_own_accounts_may_do_nothing(site)


@pytest.mark.thorough
@HELM
def test_a_second_up_makes_no_new_revision_but_reverts_drift(site: Site) -> None:
    """A stack counts as unchanged only without changes by hand, by another Helm, or by a failed Helm."""
    where = ["--namespace", f"{site.prefix}-dev"]

    def revisions() -> list[str]:
        history = json.loads(site.helm("history", "dev-lab", *where, "--output", "json").out)
        return [str(item["status"]) for item in history]

    unchanged = "Nothing changed: dev-lab is as declared.\n"
    assert unchanged not in site.up().out
    assert unchanged in site.up().out
    assert revisions() == ["deployed"]
    assert site.kubectl("get", "leases", "--output=name").stdout == ""

    site.kubectl("delete", "service", "small-main")
    assert unchanged not in site.up().out
    site.kubectl("set", "env", "statefulset/small-main", "--containers=triton", "LEAK=1")
    assert unchanged not in site.up().out
    assert revisions() == ["superseded"] * 2 + ["deployed"]
    assert site.changes() == []
    assert unchanged in site.up().out

    # The objects are as declared again, but not in the release.
    site.helm("upgrade", "dev-lab", str(CHART), *where, "--reuse-values", "--set", "proxy.replicas=2", "--wait")
    site.kubectl("scale", "deployment", "inference-proxy", "--replicas=1")
    assert site.changes() == []
    assert unchanged not in site.up().out
    assert unchanged in site.up().out
    assert revisions() == ["superseded"] * 4 + ["deployed"]


def test_a_pool_that_is_removed_goes_and_a_dataset_that_is_removed_stays(site: Site) -> None:
    """An edit never deletes models, only the objects that serve them."""
    site.up()
    before = site.objects()
    site.edit("      - {name: extra, loading: {mode: on-demand, capacity: 1Gi}, replicas: 1}\n", "")
    site.edit("  - {name: spare, kind: nfs, server: nfs.test, path: /spare}\n", "")
    site.edit(", {name: spare, path: /prod-spare}", "")
    live = site.live()
    assert set(live.kept) == {f"PersistentVolume {site.prefix}-dev-spare", "PersistentVolumeClaim spare"}
    deleted = {(change.kind, change.name) for change in site.changes() if change.verb == "deleted"}
    assert ("StatefulSet", "small-extra") in deleted
    assert not {kind for kind, _ in deleted} & {"PersistentVolume", "PersistentVolumeClaim", "Namespace"}

    if site.engine == "pulumi":
        # Pulumi protects datasets: it stops at a dataset that is only removed from the definition.
        ended = site.up(ok=False)
        assert "datasets are protected" in ended.err
        assert "Its volume and its claim stay in the cluster" in ended.err
        site.pulumi("state", "unprotect", "--all", "--yes", "--stack", "dev-lab")
    site.up()
    gone = before.keys() - site.objects().keys()
    assert {(kind, name) for kind, _, name in gone} == deleted
    claim = site.objects()["PersistentVolumeClaim", f"{site.prefix}-dev", "spare"]
    assert claim["status"]["phase"] == "Bound"
    assert site.changes() == []
    site.up()
    assert ("PersistentVolume", "", f"{site.prefix}-dev-spare") in site.objects()


READABLE = ("pods", "configmaps", "secrets", "services", "statefulsets.apps", "persistentvolumeclaims", "pods/log")


def may(site: Site, verb: str, resource: str, namespace: str, *who: str) -> bool:
    where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    answer = site.cluster.kubectl("auth", "can-i", verb, resource, *where, *who, check=False)
    assert answer.stdout.strip() in ("yes", "no"), answer.stderr
    return answer.stdout.strip() == "yes"


def assert_who_may_do_all_in_dev_cannot_even_read_prod_and_our_own_accounts_may_do_nothing(site: Site) -> None:
    """A user with the strongest role of a namespace."""
    dev, prod = f"{site.prefix}-dev", f"{site.prefix}-prod"
    site.kubectl("create", "rolebinding", "owner", "--clusterrole=admin", "--user=owner-of-dev")
    someone = ["--as=owner-of-dev"]
    until("the binding counts", lambda: may(site, "get", READABLE[0], dev, *someone))
    for resource in READABLE:
        assert may(site, "get", resource, dev, *someone)
        assert not may(site, "get", resource, prod, *someone)
        assert not may(site, "list", resource, "", *someone)
    for resource in ("persistentvolumes", "namespaces", "nodes"):
        assert not may(site, "delete", resource, prod, *someone)
    kubeconfig = site.cluster.user("owner-of-dev")
    read = site.cluster.kubectl("--namespace", prod, "get", "pods", check=False, kubeconfig=kubeconfig)
    assert "is forbidden" in read.stderr

    # Our service accounts have no more rights than any account, and pods mount their tokens only for leases.
    def rules(name: str) -> list[str]:
        who = f"--as=system:serviceaccount:{dev}:{name}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{dev}", "system:authenticated"]
        answer = site.kubectl("auth", "can-i", "--list", who, *(f"--as-group={group}" for group in groups))
        return sorted(answer.stdout.splitlines())

    any_account = rules("default")
    accounts = {name for _, namespace, name in site.objects("serviceaccounts") if namespace == dev}
    assert len(accounts) == 2
    for name in accounts:
        assert rules(name) == any_account
        for verb, resource in (("get", "secrets"), ("create", "pods/exec"), ("list", "pods"), ("patch", "configmaps")):
            assert not may(site, verb, resource, dev, f"--as=system:serviceaccount:{dev}:{name}")
    settled(site.cluster, dev)
    pods = site.objects("pods")
    volumes = [volume for pod in pods.values() for volume in pod["spec"]["volumes"]]
    tokens = {volume["name"] for volume in volumes if "serviceAccountToken" in json.dumps(volume)}
    assert {"lease-token"} <= tokens <= {"lease-token", "cluster"}
