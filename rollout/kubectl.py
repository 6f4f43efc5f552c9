"""Runs kubectl against one cluster, and explains each error of the API server.

kubectl, Helm and Pulumi all print the API server's own error texts, so that the same patterns fit all of them.
"""

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from re import Match
from subprocess import CompletedProcess, TimeoutExpired
from threading import Thread
from typing import Any

from stacks.command import CommandError, in_shell
from stacks.problems import escaped, shortened

from . import processes, tools

KubernetesObject = dict[str, Any]
SECONDS = 60.0  # Timeout of a request to the API server.
Kinds = dict[tuple[str, str], str]  # The resource of each API version and kind, as `kubectl get` takes it.
_queried_ahead: "dict[tuple[str, str | None], Future[Kinds]]" = {}  # By context and KUBECONFIG.


@dataclass(frozen=True)
class Kubectl:
    """A cluster, by its context in the user's kubeconfig."""

    context: str

    def run(
        self, *arguments: str, stdin: str | None = None, seconds: float = SECONDS, check: bool = True
    ) -> "CompletedProcess[str]":
        """Run a command. Raise CommandError if it takes too long, or if it fails and `check` is true."""
        command = [_path(), "--context", self.context, f"--request-timeout={seconds:g}s", *arguments]
        try:
            # The user's kubectl aliases and defaults must not apply here.
            done = processes.run(command, stdin=stdin, seconds=seconds + 15, environment={"KUBERC": "off"})
        except TimeoutExpired:
            raise CommandError(self.why(f"no response within {seconds:g} seconds", arguments[0])) from None
        if check and done.returncode:
            raise CommandError(self.why(done.stderr or done.stdout, arguments[0]))
        return done

    def why(self, error: str, verb: str) -> str:
        """Return why kubectl failed, with a remedy if the error is known."""
        return explained(error, self.context) or f"`kubectl {verb}` failed in {self.context}: {in_words(error)}"

    def get(self, kind: str, name: str, namespace: str = "") -> KubernetesObject | None:
        where = ["-n", namespace] if namespace else []
        return next(iter(self.find([kind], name, *where)), None)

    def find(self, kinds: Sequence[str], *arguments: str) -> list[KubernetesObject]:
        return self._get(",".join(kinds), *arguments)

    def like(self, objects: Sequence[KubernetesObject]) -> list[KubernetesObject]:
        """Return the live versions of those of these objects that exist."""
        return self._get("-f", "-", stdin=as_list(objects)) if objects else []

    def _get(self, *arguments: str, stdin: str | None = None) -> list[KubernetesObject]:
        how = ("--ignore-not-found", "--show-managed-fields", "-o", "json")
        out = self.run("get", *arguments, *how, stdin=stdin).stdout
        try:
            return items(json.loads(out)) if out.strip() else []
        except ValueError:
            raise CommandError("the output of `kubectl get` is not the expected JSON.") from None

    def is_known(self) -> bool:
        """Whether the kubeconfig has the context. The cluster itself is not queried."""
        return self.context in self.run("config", "get-contexts", "-o", "name").stdout.splitlines()

    def query_ahead(self) -> None:
        """Start the query that `kinds` needs in a thread, so that it runs while a stack is rendered."""
        result = _queried_ahead[self.context, os.environ.get("KUBECONFIG")] = Future()

        def query() -> None:
            try:
                result.set_result(self._kinds())
            except CommandError as error:
                result.set_exception(error)

        Thread(target=query, daemon=True).start()

    def kinds(self) -> Kinds:
        ahead = _queried_ahead.get((self.context, os.environ.get("KUBECONFIG")))
        return self._kinds() if ahead is None else ahead.result()

    def _kinds(self) -> Kinds:
        found = {}
        for line in self.run("api-resources", "--no-headers", "--verbs=list,patch").stdout.splitlines():
            name, *_, version, _, kind = line.split()
            group, slash, _ = version.partition("/")
            found[version, kind] = f"{name}.{group}" if slash else name
        return found


def items(found: Any) -> list[KubernetesObject]:
    """Return the objects of a response: the items of a list, or the one object."""
    return list(found["items"]) if found.get("kind") == "List" else [found]


def as_list(objects: Sequence[KubernetesObject]) -> str:
    """Return objects as one JSON document for kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


@cache
def _path() -> str:
    try:
        return str(tools.path(tools.KUBECTL))
    except tools.ToolError as error:
        raise CommandError(f"kubectl is needed to query a cluster:\n{error}") from None


_PROVIDERS = {
    "monitoring.coreos.com": "the Prometheus operator",
    "gateway.networking.k8s.io": "Gateway API",
    "cert-manager.io": "cert-manager",
    "keda.sh": "KEDA",
    "security.istio.io": "Istio",
    "resource.k8s.io": "dynamic resource allocation (Kubernetes 1.34 or later)",
}

_INVALID = r'(?P<resource>[\w.]+) "(?P<name>[^"]+)" is invalid: '
BEING_DELETED = (
    "namespace {namespace} is being deleted, so nothing can be created in it{why}.\n    Wait until it is gone,"
    " and run this again. To see what blocks the deletion: {kubectl} get namespace {namespace} -o yaml"
)
_IMMUTABLE = r"(?P<reason>spec[^\n]*?(?:Forbidden: updates to|immutable)[^\n]*)"

_RULES = [
    (r"unable to create new content in namespace (?P<namespace>\S+) because it is being terminated", BEING_DELETED),
    (
        # `User` distinguishes RBAC's sentence from other refusals.
        r'(?P<resource>[\w./-]+)(?: "(?P<name>[^"]+)")? is forbidden: User "(?P<user>[^"]+)" cannot (?P<verb>\S+)'
        r' resource "(?P<what>[^"]+)" in API group "(?P<group>[^"]*)"'
        r'(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?',
        "{thing} was refused by RBAC: user {user} may not {verb} {what} {where}.\n"
        "    Use another context, or grant the permission with a Role or ClusterRole. To check:"
        " {kubectl} auth can-i {verb} {granted}",
    ),
    (
        r'no matches for kind "(?P<kind>[^"]+)" in version "(?P<version>[^"]+)"',
        "the cluster {context} has no {kind} ({version}){provider}.\n"
        "    Install its CustomResourceDefinitions, which Tidegate does not install, or remove what needs them from the"
        " definition.",
    ),
    (
        r'context (?:"(?P<named>[^"]+)"[^\n]*(?:does not exist|not found)|was not found)',
        "there is no context {named} in the kubeconfig.\n    `kubectl config get-contexts` lists all. To use another"
        " file, set KUBECONFIG. To use another context, set `context` of the data plane in the definition.",
    ),
    (
        r'(?P<resource>PersistentVolume\w*) "(?P<name>[^"]+)" is invalid: ' + _IMMUTABLE,
        "{thing} cannot be changed in place: {reason}.\n"
        "    Datasets are kept: add a dataset with another name, and move the servers to it.",
    ),
    (
        # Pods of a StatefulSet or a Deployment keep running without it. The new one finds them by their labels.
        _INVALID + _IMMUTABLE,
        "{thing} cannot be changed in place: {reason}.\n    Delete the old object and run this again. Its pods keep"
        " running: {kubectl} delete {lower} {name} --cascade=orphan -n <namespace>",
    ),
    (
        # A quota, Pod Security, an admission policy, or an invalid value: each explains itself best.
        r'(?P<resource>[\w./-]+) "(?P<name>[^"]+)" is (?:forbidden|invalid): (?:: )?(?P<reason>[^\n]+)',
        "{thing} was refused: {reason}.",
    ),
    (
        r'(?P<reason>(?:admission webhook "[^"]+" denied|failed calling webhook|Apply failed with \d+ conflict)[^\n]*)',
        "the cluster {context} refuses an object: {reason}.",
    ),
    (
        r"(?P<reason>connection refused|no such host|i/o timeout|connection reset by peer|TLS handshake timeout"
        r"|x509: [^\n\"]+|network is unreachable|no route to host|(?:exceeded|canceled) \(Client[^\n]*"
        r"|(?<=server: )context deadline exceeded|no response within \S+ seconds|(?<=server )\S+ was refused)",
        "the cluster {context} cannot be reached ({reason}).\n"
        "    Run `{kubectl} get namespaces` to check. A VPN, a proxy or a login may be missing.",
    ),
    (
        r"(?P<reason>You must be logged in to the server[^\n]*|Unauthorized|getting credentials: [^\n]+)",
        "the cluster {context} did not accept your credentials ({reason}). Log in again.",
    ),
]
"""Patterns of errors, and the text for each. The first that matches counts."""


def explained(error: str, context: str) -> str | None:
    """Return an explanation of an API server's error: the object, the rule and the remedy. None if it is not known."""
    for pattern, explanation in _RULES:
        if found := re.search(pattern, error, re.MULTILINE):
            return explanation.format_map(_words(found, escaped(context)))
    return None


def _words(found: Match[str], context: str) -> dict[str, str]:
    """Return the parts of an explanation. Foreign texts are escaped for terminals, and names for shells."""
    words = {name: escaped(text or "") for name, text in found.groupdict().items()}
    kind = words.get("resource", "").partition(".")[0]
    name, namespace = words.get("name", ""), words.get("namespace", "")
    api_group = words.get("version", "").partition("/")[0]
    provider = next((by for known, by in _PROVIDERS.items() if f".{api_group}".endswith(f".{known}")), "")
    granted = words.get("what", "") + (f".{words['group']}" if words.get("group") else "")
    return {
        **words,
        "reason": escaped(shortened((found.groupdict().get("reason") or "").strip().rstrip(".,"), 400)),
        "thing": f"{kind} {name}" if name else kind,
        "lower": kind.lower(),
        "why": "",
        "name": in_shell(name),
        "context": context,
        "named": words.get("named") or context,
        "kubectl": f"kubectl --context {in_shell(context)}",
        "where": f"in namespace {namespace}" if namespace else "of the cluster",
        "granted": in_shell(granted) + (f" -n {in_shell(namespace)}" if namespace else ""),
        "provider": f": {provider} is not installed" if provider else "",
    }


def in_words(output: str) -> str:
    """Return the last line of a command's output, quoted, for an error that is not known."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f'"{escaped(shortened(lines[-1], 500))}"' if lines else "it printed nothing"
