"""What an API server says when it refuses something, turned into: which object, which rule, what to do.

kubectl, Helm and Pulumi each wrap the API server's own words, which are the same in all of them.
"""

import re
from collections.abc import Callable
from re import Match

from stacks.problems import escaped, shortened

from .terminal import in_shell

_OBJECT = r'(?P<resource>[\w./-]+) "(?P<name>[^"]+)" is forbidden: '
_TO_THE_END = r"(?P<said>[^\n]+)"
_PROVIDERS = {
    "monitoring.coreos.com": "the Prometheus operator",
    "gateway.networking.k8s.io": "Gateway API",
    "cert-manager.io": "cert-manager",
    "keda.sh": "KEDA",
    "security.istio.io": "Istio",
    "resource.k8s.io": "dynamic resource allocation (Kubernetes 1.34 or later)",
}


def _quota(found: Match[str], context: str) -> str:
    return (
        f"{_thing(found)} was refused by the quota {found['quota']}: {_said(found)}.\n"
        f"    Ask for less, or have the quota raised: kubectl --context {in_shell(context)} describe quota"
        f" {in_shell(found['quota'])} -n <namespace>"
    )


def _pod_security(found: Match[str], context: str) -> str:  # noqa: ARG001
    return (
        f"{_thing(found)} was refused by Pod Security {found['level']!r}: {_said(found)}.\n"
        "    Tidegate's own pods fulfil it: somebody changed this one (an admission webhook, or a hand), or the"
        " namespace's labels pod-security.kubernetes.io/*."
    )


def _policy(found: Match[str], context: str) -> str:  # noqa: ARG001
    return (
        f"{_thing(found)} was refused by the ValidatingAdmissionPolicy {found['policy']}: {_said(found)}.\n"
        "    That is a rule of this cluster: change what it is about in the definition, or ask whoever made the rule."
    )


def _webhook(found: Match[str], context: str) -> str:  # noqa: ARG001
    return (
        f"the admission webhook {found['webhook']} refused an object: {_said(found)}.\n"
        "    That is a rule of this cluster: change what it is about in the definition, or ask whoever made the rule."
    )


def _webhook_down(found: Match[str], context: str) -> str:  # noqa: ARG001
    return f"the admission webhook {found['webhook']} does not answer, so nothing passes it: {_said(found)}."


def _rights(found: Match[str], context: str) -> str:
    namespace, group = found["namespace"], found["group"]
    where = f"in namespace {namespace}" if namespace else "of the cluster"
    resource = found["what"] + (f".{group}" if group else "")
    inside = f" -n {in_shell(namespace)}" if namespace else ""
    check = f"kubectl --context {in_shell(context)} auth can-i {found['verb']} {in_shell(resource)}{inside}"
    return (
        f"{_thing(found)} was refused by RBAC: user {escaped(found['user'])} may not {found['verb']} {found['what']}"
        f" {where}.\n    Use a context that may, or have a Role or ClusterRole grant it. To check: {check}"
    )


def _terminating(found: Match[str], context: str) -> str:
    name = in_shell(found["namespace"])
    return (
        f"namespace {found['namespace']} is being deleted, so nothing can be made in it.\n    Wait until it is gone,"
        f" and run this again. What holds it: kubectl --context {in_shell(context)} get namespace {name} -o yaml"
    )


def _no_kind(found: Match[str], context: str) -> str:
    group = found["version"].partition("/")[0]
    by = next((name for known, name in _PROVIDERS.items() if group == known or group.endswith(f".{known}")), "")
    return (
        f"the cluster {context} knows no {found['kind']} ({found['version']}){f': {by} is not there' if by else ''}.\n"
        "    Its CustomResourceDefinitions are a prerequisite, which Tidegate does not install: install them, or switch"
        " off what needs them in the definition."
    )


def _unreachable(found: Match[str], context: str) -> str:
    return (
        f"the cluster {context} cannot be reached ({_said(found)}).\n"
        f"    Does `kubectl --context {in_shell(context)} get namespaces` work? Perhaps a VPN, a proxy or a login is"
        " missing."
    )


def _no_context(found: Match[str], context: str) -> str:  # noqa: ARG001
    return (
        f"there is no context {context} in the kubeconfig.\n    `kubectl config get-contexts` lists what there is;"
        " KUBECONFIG names another file; `context` of a data plane in the definition names another context."
    )


def _no_login(found: Match[str], context: str) -> str:
    return f"the cluster {context} does not know who you are ({_said(found)}). Log in again."


def _immutable(found: Match[str], context: str) -> str:
    kind, name = found["kind"].partition(".")[0], found["name"]
    if kind in ("PersistentVolume", "PersistentVolumeClaim"):
        todo = "Datasets are kept: add a dataset of another name, and move the servers to it."
    else:
        # The pods of a StatefulSet or a Deployment go on without it, and the new one finds them by their labels.
        todo = (
            "Delete the old object and run this again; its pods go on meanwhile: kubectl --context"
            f" {in_shell(context)} delete {kind.lower()} {in_shell(name)} --cascade=orphan -n <namespace>"
        )
    return f"{kind} {name} cannot be changed in place: {_said(found)}.\n    {todo}"


def _invalid(found: Match[str], context: str) -> str:  # noqa: ARG001
    return f"{found['kind'].partition('.')[0]} {found['name']} was refused as invalid: {_said(found)}."


def _conflict(found: Match[str], context: str) -> str:  # noqa: ARG001
    return (
        f"somebody else owns fields that Tidegate sets: {_said(found)}.\n    `make preview CLUSTER=…` shows them; leave"
        " them out of the definition, or have the other stop setting them."
    )


# The first that is found is said. RBAC's sentence is told from other refusals by `User`.
_RULES: tuple[tuple[re.Pattern[str], Callable[[Match[str], str], str]], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), explain)
    for pattern, explain in (
        (_OBJECT + r"exceeded quota: (?P<quota>[^,]+), " + _TO_THE_END, _quota),
        (_OBJECT + r"(?P<said>failed quota: (?P<quota>[^:]+): [^\n]+)", _quota),
        (_OBJECT + r'violates PodSecurity "(?P<level>[^"]+)": ' + _TO_THE_END, _pod_security),
        (
            r'(?P<resource>[\w./-]+) "(?P<name>[^"]+)" is (?:forbidden|invalid): (?:: )?'
            + r"ValidatingAdmissionPolicy '(?P<policy>[^']+)' with binding '[^']+' denied request: "
            + _TO_THE_END,
            _policy,
        ),
        (r'admission webhook "(?P<webhook>[^"]+)" denied the request:? ?(?P<said>[^\n]*)', _webhook),
        (r'failed calling webhook "(?P<webhook>[^"]+)": ' + _TO_THE_END, _webhook_down),
        (
            r"unable to create new content in namespace (?P<namespace>\S+) because it is being terminated",
            _terminating,
        ),
        (
            r'(?P<resource>[\w./-]+)(?: "(?P<name>[^"]+)")? is forbidden: User "(?P<user>[^"]+)" cannot (?P<verb>\S+)'
            r' resource "(?P<what>[^"]+)" in API group "(?P<group>[^"]*)"'
            r'(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?',
            _rights,
        ),
        (r'no matches for kind "(?P<kind>[^"]+)" in version "(?P<version>[^"]+)"', _no_kind),
        (r'(?:context (?:"[^"]*"|was not found)[^\n]*(?:does not exist|not found)|context was not found)', _no_context),
        (
            r'(?P<kind>[\w.]+) "(?P<name>[^"]+)" is invalid: '
            r"(?P<said>spec[^\n]*?(?:Forbidden: updates to|immutable)[^\n]*)",
            _immutable,
        ),
        (r'(?P<kind>[\w.]+) "(?P<name>[^"]+)" is invalid: ' + _TO_THE_END, _invalid),
        (r"(?P<said>(?:conflict with|Apply failed with \d+ conflict)[^\n]*)", _conflict),
        (
            r"(?P<said>connection refused|no such host|i/o timeout|connection reset by peer|TLS handshake timeout"
            r"|x509: [^\n\"]+|network is unreachable|no route to host|context deadline exceeded \(Client[^\n]*"
            r"|(?<=server )\S+ was refused)",
            _unreachable,
        ),
        (
            r"(?P<said>You must be logged in to the server[^\n]*|Unauthorized|getting credentials: [^\n]+)",
            _no_login,
        ),
    )
)


def explained(said: str, context: str) -> str | None:
    """Return what an API server's refusal means: the object, the rule and what to do; None for what is not known."""
    for pattern, explain in _RULES:
        found = pattern.search(said)
        if found:
            return explain(found, escaped(context))
    return None


def in_words(said: str) -> str:
    """Return the last line of what a command said, for a failure that nobody has seen before."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f'"{escaped(shortened(lines[-1], 500))}"' if lines else "it said nothing"


def _said(found: Match[str]) -> str:
    return escaped(shortened(found["said"].strip().rstrip(".,"), 400))


def _thing(found: Match[str]) -> str:
    kind = found["resource"].partition(".")[0]
    return f"{kind} {found['name']}" if found["name"] else kind
