"""Environments are isolated by RBAC: what the API server's own authoriser says, not what we assume."""

import json

from .bringing import Site
from .world import settled, until

READABLE = ("pods", "configmaps", "secrets", "services", "statefulsets.apps", "persistentvolumeclaims", "pods/log")


def may(site: Site, verb: str, resource: str, namespace: str, *who: str) -> bool:
    """Ask the API server."""
    where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    answer = site.cluster.kubectl("auth", "can-i", verb, resource, *where, *who, check=False)
    assert answer.stdout.strip() in ("yes", "no"), answer.stderr
    return answer.stdout.strip() == "yes"


def test_who_may_do_all_in_dev_cannot_even_read_prod(helm_site: Site) -> None:
    """A user who is bound to the strongest role that a namespace can have."""
    site = helm_site
    site.up(stack=None)
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


def test_our_service_accounts_may_do_nothing_more_than_anybody(helm_site: Site) -> None:
    """Not in their own namespace either; and no pod carries a token of theirs."""
    site = helm_site
    site.up()
    settled(site.cluster, f"{site.prefix}-dev")
    namespace = f"{site.prefix}-dev"
    accounts = [key[2] for key in site.objects("serviceaccounts")]
    assert len(accounts) == 2

    def rules(name: str) -> list[str]:
        who = f"--as=system:serviceaccount:{namespace}:{name}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        answer = site.kubectl("auth", "can-i", "--list", who, *(f"--as-group={group}" for group in groups))
        return sorted(answer.stdout.splitlines())

    anybody = rules("default")
    for name in accounts:
        assert rules(name) == anybody
        for verb, resource in (("get", "secrets"), ("create", "pods/exec"), ("list", "pods"), ("patch", "configmaps")):
            assert not may(site, verb, resource, namespace, f"--as=system:serviceaccount:{namespace}:{name}")
    pods = site.objects("pods")
    assert len(pods) == 3
    assert "serviceAccountToken" not in json.dumps([pod["spec"] for pod in pods.values()])
