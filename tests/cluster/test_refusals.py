import re
import signal

import pytest

from rollout.kubectl import Kubectl, as_list
from stacks.command import CommandError
from tests.processes import until

from .world import HELM, Site, read_until, user_with

NO_NODE_HAS_THAT = 'resources: {cpu: "5000", memory: 8Gi}'


@HELM
def test_a_waiting_pod_is_shown_with_the_schedulers_reason_and_ctrl_c_leaves_nothing_pending(
    site: Site,
) -> None:
    site.edit("replicas: 1}\n      - {name: extra", f"replicas: 1, {NO_NODE_HAS_THAT}}}\n      - {{name: extra")
    process = site.start("--keep-going")
    output = read_until(process, "Insufficient cpu")
    assert "waiting: StatefulSet small-main: 0 of 1 pods are available; pod small-main-0: Unschedulable" in output
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=900)
    assert process.returncode == 130, err
    assert err.endswith("stopped: stack dev-lab may be partly up. Run the same command again\n")
    assert site.release() == "failed"


def test_rbac_is_named_with_user_missing_right_and_a_command_to_check(site: Site) -> None:
    """A user without rights, and a user with all rights except one."""
    stranger = site.cluster.user("stranger")
    mine = site.environment
    site.environment = {**mine, "KUBECONFIG": str(stranger)}
    ended = site.up(ok=False)
    assert ended.code == 1
    refused = re.search(r"was refused by RBAC: user stranger may not ((?:get|list) \w+)", ended.err)
    assert refused, ended.err
    assert f"auth can-i {refused[1]}" in ended.err

    kinds = "namespaces,secrets,configmaps,serviceaccounts,persistentvolumes,persistentvolumeclaims,leases"
    some = (("*", "*", "get,list,watch"), (",coordination.k8s.io", kinds, "*"), ("networking.k8s.io,policy", "*", "*"))
    most = user_with(site.cluster, "most", *some)
    site.environment = {**mine, "KUBECONFIG": str(most)}
    ended = site.up(ok=False)
    assert ended.code == 1
    assert "was refused by RBAC: user most may not" in ended.err
    assert f"services in namespace {site.prefix}-dev" in ended.err
    site.environment = mine
    site.up()


REFUSED_BY_A_POLICY = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "resourceRules": [
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["statefulsets"]}
        ]
    },
    "validations": [{"expression": "object.metadata.name != 'small-extra'", "message": "no extras here"}],
}


def test_an_admission_policy_is_named_with_its_words_and_a_preview_knows_it_before(site: Site) -> None:
    """A rule of the cluster that Tidegate cannot know."""
    name = f"{site.prefix}-rule"
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": f"{site.prefix}-dev"}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    site.cluster.kubectl("create", "namespace", f"{site.prefix}-dev")
    site.cluster.apply(
        [
            {**group, "kind": "ValidatingAdmissionPolicy", "spec": REFUSED_BY_A_POLICY},
            {**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
        ]
    )
    words = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: no extras here."
    try:
        until("the preview is refused too", lambda: any(words in line for line in site.live().refused))
        ended = site.up(ok=False)
    finally:
        site.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
    assert ended.code == 1
    assert words in ended.err


def test_an_immutable_field_is_reported_with_a_command_that_keeps_the_pods(kube: Kubectl, namespace: str) -> None:
    labels = {"app": "main"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "m", "image": "registry.test/m:1"}]}}
    spec = {"serviceName": "one", "replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    head = {"name": "fixed", "namespace": namespace}
    item = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": head, "spec": spec}
    kube.run("apply", "--server-side", "-f", "-", stdin=as_list([item]))
    with pytest.raises(CommandError, match="StatefulSet fixed cannot be changed in place") as caught:
        kube.run("apply", "--server-side", "-f", "-", stdin=as_list([{**item, "spec": {**spec, "serviceName": "two"}}]))
    assert "delete statefulset fixed --cascade=orphan" in str(caught.value)
