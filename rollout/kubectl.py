"""Runs kubectl against one cluster: every answer is checked, every refusal is explained.

Kubectl, Helm and Pulumi each wrap the API server's own words, which are the same in all of them.
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

from stacks.command import CommandError
from stacks.problems import escaped, shortened

from . import processes, tools
from .terminal import in_shell

KubernetesObject = dict[str, Any]
SECONDS = 60.0  # How long the API server may take to answer.
Kinds = dict[tuple[str, str], str]  # The resource of each API version and kind, as `kubectl get` takes it.
_asked_ahead: "dict[tuple[str, str | None], Future[Kinds]]" = {}  # By context and KUBECONFIG.


@dataclass(frozen=True)
class Kubectl:
    """A cluster, by its context in the user's kubeconfig."""

    context: str

    def run(
        self, *arguments: str, stdin: str | None = None, seconds: float = SECONDS, check: bool = True
    ) -> "CompletedProcess[str]":
        """Run a command; raise CommandError when it fails, unless `check` is off, or takes too long."""
        command = [_path(), "--context", self.context, f"--request-timeout={seconds:g}s", *arguments]
        try:
            # No aliases and defaults of the user's own count here.
            done = processes.run(command, stdin=stdin, seconds=seconds + 15, environment={"KUBERC": "off"})
        except TimeoutExpired:
            raise CommandError(self.why(f"no answer within {seconds:g} seconds", arguments[0])) from None
        if check and done.returncode:
            raise CommandError(self.why(done.stderr or done.stdout, arguments[0]))
        return done

    def why(self, said: str, doing: str) -> str:
        """Return why kubectl failed, and what to do where that is known."""
        return explained(said, self.context) or f"`kubectl {doing}` failed in {self.context}: {in_words(said)}"

    def get(self, kind: str, name: str, namespace: str = "") -> KubernetesObject | None:
        """Return one object, with its managed fields; None where there is none."""
        where = ["-n", namespace] if namespace else []
        return next(iter(self.find([kind], name, *where)), None)

    def find(self, kinds: Sequence[str], *arguments: str) -> list[KubernetesObject]:
        """Return the objects of some kinds, with their managed fields."""
        return self._get(",".join(kinds), *arguments)

    def like(self, objects: Sequence[KubernetesObject]) -> list[KubernetesObject]:
        """Return those of these objects that the cluster has, as it has them."""
        return self._get("-f", "-", stdin=as_list(objects)) if objects else []

    def _get(self, *arguments: str, stdin: str | None = None) -> list[KubernetesObject]:
        how = ("--ignore-not-found", "--show-managed-fields", "-o", "json")
        out = self.run("get", *arguments, *how, stdin=stdin).stdout
        try:
            return items(json.loads(out)) if out.strip() else []
        except ValueError:
            raise CommandError("what `kubectl get` answers cannot be understood.") from None

    def is_known(self) -> bool:
        """Say whether the kubeconfig has the context; the cluster itself is not asked."""
        return self.context in self.run("config", "get-contexts", "-o", "name").stdout.splitlines()

    def ask_ahead(self) -> None:
        """Begin to ask for what `kinds` returns in this process: the API server answers while a stack is rendered."""
        answer = _asked_ahead[self.context, os.environ.get("KUBECONFIG")] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._kinds())
            except CommandError as error:
                answer.set_exception(error)

        Thread(target=ask, daemon=True).start()

    def kinds(self) -> Kinds:
        """Return what the API server knows."""
        ahead = _asked_ahead.get((self.context, os.environ.get("KUBECONFIG")))
        return self._kinds() if ahead is None else ahead.result()

    def _kinds(self) -> Kinds:
        found = {}
        for line in self.run("api-resources", "--no-headers", "--verbs=list,patch").stdout.splitlines():
            name, *_, version, _, kind = line.split()
            group, slash, _ = version.partition("/")
            found[version, kind] = f"{name}.{group}" if slash else name
        return found


def items(found: Any) -> list[KubernetesObject]:
    """Return the objects of an answer: of a list, or of one object."""
    return list(found["items"]) if found.get("kind") == "List" else [found]


def as_list(objects: Sequence[KubernetesObject]) -> str:
    """Return objects as one JSON document that kubectl takes."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


@cache
def _path() -> str:
    try:
        return str(tools.path(tools.KUBECTL))
    except tools.ToolError as error:
        raise CommandError(f"kubectl is needed to talk to a cluster:\n{error}") from None


# ---- what an API server says when it refuses something, turned into: which object, which rule, what to do ----

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
    "namespace {namespace} is being deleted, so nothing can be made in it{why}.\n    Wait until it is gone,"
    " and run this again. What holds it: {kubectl} get namespace {namespace} -o yaml"
)
_IMMUTABLE = r"(?P<said>spec[^\n]*?(?:Forbidden: updates to|immutable)[^\n]*)"

_RULES = [
    (r"unable to create new content in namespace (?P<namespace>\S+) because it is being terminated", BEING_DELETED),
    (
        # RBAC's sentence is told from other refusals by `User`.
        r'(?P<resource>[\w./-]+)(?: "(?P<name>[^"]+)")? is forbidden: User "(?P<user>[^"]+)" cannot (?P<verb>\S+)'
        r' resource "(?P<what>[^"]+)" in API group "(?P<group>[^"]*)"'
        r'(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?',
        "{thing} was refused by RBAC: user {user} may not {verb} {what} {where}.\n"
        "    Use a context that may, or have a Role or ClusterRole grant it. To check:"
        " {kubectl} auth can-i {verb} {granted}",
    ),
    (
        r'no matches for kind "(?P<kind>[^"]+)" in version "(?P<version>[^"]+)"',
        "the cluster {context} knows no {kind} ({version}){provider}.\n"
        "    Its CustomResourceDefinitions are a prerequisite, which Tidegate does not install: install them, or switch"
        " off what needs them in the definition.",
    ),
    (
        r'context (?:"(?P<named>[^"]+)"[^\n]*(?:does not exist|not found)|was not found)',
        "there is no context {named} in the kubeconfig.\n    `kubectl config get-contexts` lists what there is;"
        " KUBECONFIG names another file; `context` of a data plane in the definition names another context.",
    ),
    (
        r'(?P<resource>PersistentVolume\w*) "(?P<name>[^"]+)" is invalid: ' + _IMMUTABLE,
        "{thing} cannot be changed in place: {said}.\n"
        "    Datasets are kept: add a dataset of another name, and move the servers to it.",
    ),
    (
        # The pods of a StatefulSet or a Deployment go on without it, and the new one finds them by their labels.
        _INVALID + _IMMUTABLE,
        "{thing} cannot be changed in place: {said}.\n    Delete the old object and run this again; its pods go on"
        " meanwhile: {kubectl} delete {lower} {name} --cascade=orphan -n <namespace>",
    ),
    (
        # A quota, Pod Security, an admission policy, or what is no right value: each says best itself what it wants.
        r'(?P<resource>[\w./-]+) "(?P<name>[^"]+)" is (?:forbidden|invalid): (?:: )?(?P<said>[^\n]+)',
        "{thing} was refused: {said}.",
    ),
    (
        r'(?P<said>(?:admission webhook "[^"]+" denied|failed calling webhook|Apply failed with \d+ conflict)[^\n]*)',
        "the cluster {context} refuses an object: {said}.",
    ),
    (
        r"(?P<said>connection refused|no such host|i/o timeout|connection reset by peer|TLS handshake timeout"
        r"|x509: [^\n\"]+|network is unreachable|no route to host|(?:exceeded|canceled) \(Client[^\n]*"
        r"|(?<=server: )context deadline exceeded|no answer within \S+ seconds|(?<=server )\S+ was refused)",
        "the cluster {context} cannot be reached ({said}).\n"
        "    Does `{kubectl} get namespaces` work? Perhaps a VPN, a proxy or a login is missing.",
    ),
    (
        r"(?P<said>You must be logged in to the server[^\n]*|Unauthorized|getting credentials: [^\n]+)",
        "the cluster {context} does not know who you are ({said}). Log in again.",
    ),
]
"""What is looked for, and what is then told: the first that is found counts."""


def explained(said: str, context: str) -> str | None:
    """Return what an API server's refusal means: the object, the rule and what to do; None for what is not known."""
    for pattern, told in _RULES:
        if found := re.search(pattern, said, re.MULTILINE):
            return told.format_map(_words(found, escaped(context)))
    return None


def _words(found: Match[str], context: str) -> dict[str, str]:
    """Return what can be told of a refusal; texts of others are made harmless for terminals, and names for shells."""
    words = {name: escaped(text or "") for name, text in found.groupdict().items()}
    kind = words.get("resource", "").partition(".")[0]
    name, namespace = words.get("name", ""), words.get("namespace", "")
    api_group = words.get("version", "").partition("/")[0]
    provider = next((by for known, by in _PROVIDERS.items() if f".{api_group}".endswith(f".{known}")), "")
    granted = words.get("what", "") + (f".{words['group']}" if words.get("group") else "")
    return {
        **words,
        "said": escaped(shortened((found.groupdict().get("said") or "").strip().rstrip(".,"), 400)),
        "thing": f"{kind} {name}" if name else kind,
        "lower": kind.lower(),
        "why": "",
        "name": in_shell(name),
        "context": context,
        "named": words.get("named") or context,
        "kubectl": f"kubectl --context {in_shell(context)}",
        "where": f"in namespace {namespace}" if namespace else "of the cluster",
        "granted": in_shell(granted) + (f" -n {in_shell(namespace)}" if namespace else ""),
        "provider": f": {provider} is not there" if provider else "",
    }


def in_words(said: str) -> str:
    """Return the last line of what a command said, for a failure that is not known here."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f'"{escaped(shortened(lines[-1], 500))}"' if lines else "it said nothing"
