"""Who can do what before and after a change. One comparison, run both ways, finds what is gained and what is lost.

The access and routing tables, the proxy's settings and the annotations of the Namespace are the typed values that the
environment runs with. Addresses and ways through the network are those of the objects that open them.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import ip_network
from itertools import product
from typing import Any, NamedTuple, TypeVar

from tidegate_contracts import eviction_process, proxy_process
from tidegate_contracts.proxy_settings import variable

from policies import guardrails
from policies.guardrails.objects import matches
from policies.guardrails.settings import settings_of
from stacks.definition.proxy import PROXY
from stacks.problems import listed
from stacks.resolve import settings
from stacks.resolve.settings import ENVIRONMENT

from .compare import json_tree
from .workloads import Tree, at, items, mapping, text, workloads

MOST_MODELS = 12
_PROMISED = re.compile(r"\(1 - ([\d.]+) / 100\)")  # The percent of calls that an alert stands for.
_PROTECTS = re.compile(r"/.*(internal|scheme|range|cidr|security-group|whitelist|allowlist|auth|waf|ssl|tls|protocol)")
"""Annotations of an Ingress, a route or a Service that may restrict who calls the proxy, and how."""
_EVERY_PORT = "every port"
_EVERY_POD = "every pod"
_CALLS = {f"TCP {port}" for port in (proxy_process.HTTP_PORT, proxy_process.GRPC_PORT)}
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Grant:
    """Models that callers may newly call."""

    who: str
    action: str
    models: str
    wider: bool  # Whether one of these models was served before.


@dataclass(frozen=True)
class Difference:
    """Something of which there is more or less after a change: a sentence without a subject, and how much."""

    words: str
    before: float | None  # True, or a number; None if there was nothing of it.
    after: float | None

    @property
    def is_more(self) -> bool:
        """Whether there is more of it after the change."""
        return self.after is not None and (self.before is None or self.after > self.before)

    def __str__(self) -> str:
        """Return the sentence: `newly …`, `no longer …`, or `…: 1000 → 10`."""
        if self.before is not None and self.after is not None:
            return f"{self.words}: {_shown(self.before)} → {_shown(self.after)}"
        amount = self.after if self.before is None else self.before
        words = self.words if amount is True else f"{self.words}: {_shown(amount or 0)}"
        return f"{'newly' if self.before is None else 'no longer'} {words}"


class PermissionChange(NamedTuple):
    """What a change does to permissions."""

    weaker: tuple[str, ...] = ()  # Permissions that are gained, and demands that go.
    lost: tuple[str, ...] = ()  # What callers, pods or teams could do before, and cannot do after.
    stricter: tuple[str, ...] = ()  # Demands that are new, and limits that are raised.
    grants: tuple[Grant, ...] = ()


def permission_change(before: Sequence[Tree], after: Sequence[Tree]) -> PermissionChange:
    """Return what callers, pods and teams gain and lose; `after` names what has other names than before."""
    trees = definitions(before, after)
    past = _past(trees[1], "server")
    was, now = (_State(objects, tree, past) for objects, tree in zip((before, after), trees, strict=True))
    there = was.there & now.there
    allowed, offered, demanded = (
        [*_amounts(getattr(was, part), getattr(now, part), there)] for part in ("allowed", "offered", "demanded")
    )
    allowed += _both_ways(was.ways(there), now.ways(there), _Way.covers, _ways_in_words)
    allowed += _both_ways(was.waivers, now.waivers, _waives, lambda found: [_waiver_in_words(each) for each in found])
    demanded += _both_ways(was.held(there), now.held(there), _holds_back, lambda found: [*map(_held_in_words, found)])
    gone = (
        f"no longer lets {who} {action}: {_listed(models)}"
        for who, action, models in _by_caller(now.rights, was.rights, now.models)
    )
    return PermissionChange(
        weaker=tuple(
            map(str, (*(one for one in allowed if one.is_more), *(one for one in demanded if not one.is_more)))
        ),
        lost=(*(str(one) for one in (*allowed, *offered) if not one.is_more), *gone),
        stricter=tuple(str(one) for one in (*offered, *demanded) if one.is_more),
        grants=tuple(
            Grant(who, action, _listed(models), not was.models.isdisjoint(models))
            for who, action, models in _by_caller(was.rights, now.rights, None)
        ),
    )


Ways = dict[tuple[str, str], float]
"""What something is about (empty for the environment), and a sentence without a subject → how much: True, or a number.

What is about something that comes or goes as a whole is not compared: that it comes or goes is shown elsewhere."""


def _amounts(was: Ways, now: Ways, there: set[str]) -> Iterator[Difference]:
    for about, words in dict.fromkeys((*was, *now)):
        before, after = was.get((about, words)), now.get((about, words))
        if about in there and before != after:
            yield Difference(words, before, after)


def _both_ways(
    was: Sequence[Thing],
    now: Sequence[Thing],
    covers: Callable[[Thing, Thing], bool],
    in_words: Callable[[list[Thing]], Iterable[str]],
) -> Iterator[Difference]:
    yield from (Difference(words, None, True) for words in in_words(_uncovered(was, now, covers)))
    yield from (Difference(words, True, None) for words in in_words(_uncovered(now, was, covers)))


def _uncovered(some: Sequence[Thing], others: Sequence[Thing], covers: Callable[[Thing, Thing], bool]) -> list[Thing]:
    """Return which of the others none of some covers."""
    return [other for other in others if not any(covers(one, other) for one in some)]


def _shown(amount: float) -> str:
    return "any number" if amount == math.inf else f"{amount:.12g}"


# ---- one state of a stack ----


@dataclass
class _State:
    """What is allowed, offered and demanded in one state of a stack, in the names of after the change."""

    objects: Sequence[Tree]
    tree: Tree  # The part of the definition that the Namespace carries.
    past: Mapping[str, str]  # Servers' names of before → those of after.
    there: set[str] = field(init=False)
    allowed: Ways = field(init=False)
    offered: Ways = field(init=False)
    demanded: Ways = field(init=False)

    def __post_init__(self) -> None:
        """Read the tables once."""
        self.routing, self.access = (
            _file(self.objects, name) for name in (proxy_process.ROUTING_FILE, proxy_process.ACCESS_FILE)
        )
        self.held_to = settings_of(_annotation(self.objects, guardrails.ANNOTATION))
        self.waivers = list(self.held_to.waivers)
        self.pods = {
            f"the pods of {kind} {name}": mapping(one.template, "metadata", "labels")
            for (kind, _, name), one in workloads(self.objects).items()
        }
        self.there = {
            "",
            _EVERY_POD,
            *self.pods,
            *(f"{text(item, 'kind')} {text(item, 'metadata', 'name')}" for item in self.objects),
            *(f"server {self._server(text(server, 'name'))}" for server in items(self.routing, "servers")),
            *(f"model {text(model, 'name')}" for model in items(self.routing, "models")),
            *(f"image {name}" for name, image in mapping(self.tree, "images").items() if at(image, "backends")),
            *(["rate limit"] if "rateLimit" in self.access else []),
        }
        self.models = {
            (self._server(text(model, "server")), text(model, "name")) for model in items(self.routing, "models")
        }
        self.rights = list(dict.fromkeys(self._rights()))
        self.allowed = dict(self._allowed())
        self.offered = dict(self._offered())
        self.demanded = dict(self._demanded())

    def _server(self, name: str) -> str:
        return self.past.get(name, name)

    def _named(self, kind: str) -> Iterator[tuple[str, Tree]]:
        yield from ((text(item, "metadata", "name"), item) for item in self.objects if item.get("kind") == kind)

    # -- what is allowed --

    def _allowed(self) -> Iterator[tuple[tuple[str, str], float]]:
        for words, amount in (*self._allowed_to_callers(), *self._allowed_to_teams()):
            yield ("", words), amount
        for key, words in (
            ("requestsPerMinute", "lets one caller send a model requests a minute"),
            ("burst", "lets one caller send a model requests in a burst"),
            ("tokensPerMinute", "lets one caller use tokens of a model a minute"),
        ):
            rate = at(self.access, "rateLimit", key)
            yield ("rate limit", words), rate if isinstance(rate, int) else math.inf
        for name, item in self._named("ServiceAccount"):
            for key, value in mapping(item, "metadata", "annotations").items():
                if not key.startswith("tidegate.dev/"):
                    yield ("", f"lets pods of ServiceAccount {name} be {value} ({key})"), True
        for name, item in self._named("Role"):
            for rule in items(item, "rules"):
                for resource, verb in product(at(rule, "resources") or (), at(rule, "verbs") or ()):
                    yield ("", f"lets the accounts that Role {name} is bound to {verb} {resource}"), True

    def _allowed_to_callers(self) -> Iterator[tuple[str, float]]:
        for issuer in items(self.access, "issuers"):
            for audience in at(issuer, "audiences") or ():
                keys = text(issuer, "jwksUrl")
                how = f"with groups by {text(issuer, 'groupsClaim')}" + (f" and keys of {keys}" if keys else "")
                yield f"trusts tokens of {text(issuer, 'issuer')} for {audience}, {how}", True
        for _, item in self._named("ConfigMap"):
            if at(item, "data", variable("api_keys")) == "true":
                yield (
                    " ".join(["trusts API keys", *(f"of the Secret {name}" for name in self._mounted("api-keys"))]),
                    True,
                )
            if url := text(item, "data", variable("domino_principal_url")):
                yield f"trusts Domino's principals, as {url} names them", True
        for _, item in self._named("Deployment"):
            for volume in items(item, "spec", "template", "spec", "volumes"):
                if volume.get("name") == "authorities":
                    for source, kind in product(items(volume, "projected", "sources"), ("configMap", "secret")):
                        if name := text(source, kind, "name"):
                            yield f"trusts issuers by the authorities in the {kind[0].upper()}{kind[1:]} {name}", True
        for name, item in self._named("Service"):
            if (kind := text(item, "spec", "type", default="ClusterIP")) != "ClusterIP":
                yield f"opens the Service {name} to the outside as {kind}", True
        for kind in ("Ingress", "HTTPRoute"):
            yield from ((f"opens the proxy to the outside by {kind} {name}", True) for name, _ in self._named(kind))
        for name, item in self._named("Ingress"):
            if not at(item, "spec", "tls"):
                yield f"lets calls in without TLS at Ingress {name}", True
        for name, item in self._named("HTTPRoute"):
            if any(not text(parent, "sectionName") for parent in items(item, "spec", "parentRefs")):
                yield f"lets calls in at every listener of the Gateway of HTTPRoute {name}", True

    def _mounted(self, volume: str) -> list[str]:
        """Return the Secrets that the proxy mounts as a volume."""
        pods = (mapping(item, "spec", "template", "spec") for name, item in self._named("Deployment") if name == PROXY)
        found = (one for pod in pods for one in items(pod, "volumes") if one.get("name") == volume)
        return [name for one in found if (name := text(one, "secret", "secretName"))]

    def _addresses(self) -> Iterator[str]:
        for name, item in self._named("Service"):
            for port in items(item, "spec", "ports") if name == PROXY else ():
                namespace = text(item, "metadata", "namespace")
                yield f"{text(port, 'name')}://{name}.{namespace}.svc:{port.get('port')}"
        for name, item in self._named("Ingress"):
            scheme = "https" if at(item, "spec", "tls") else "http"
            by = f"Ingress {name}" + (f" of class {found}" if (found := text(item, "spec", "ingressClassName")) else "")
            for rule in items(item, "spec", "rules"):
                yield from (
                    f"{scheme}://{text(rule, 'host')}{text(path, 'path')} by {by}"
                    for path in items(rule, "http", "paths")
                )
        for name, item in self._named("HTTPRoute"):
            paths = [
                text(match, "path", "value")
                for rule in items(item, "spec", "rules")
                for match in items(rule, "matches")
            ]
            parents = [*items(item, "spec", "parentRefs")]
            for host, to, parent in product(at(item, "spec", "hostnames") or (), paths, parents):
                gateway = f"{text(parent, 'namespace')}/{text(parent, 'name')}"
                listener = text(parent, "sectionName", default="every listener")
                yield f"{host}{to} by HTTPRoute {name} at {listener} of the Gateway {gateway}"

    def _allowed_to_teams(self) -> Iterator[tuple[str, float]]:
        held_to, tree = self.held_to, self.tree
        yield "takes GPU slices", math.inf if held_to.gpu_slices is None else held_to.gpu_slices
        yield "spends money a month", math.inf if held_to.monthly_budget is None else held_to.monthly_budget
        if held_to.kind == "local":
            yield "is a local trial: folders of nodes and images without a digest are allowed", True
        if not tree:
            return
        promotion = mapping(tree, "promotion")
        who = [*(promotion.get("principals") or ()), *(promotion.get("groups") or ())]
        for name in who or ["the writers of its repositories"]:
            yield f"lets {name} bring in versions of models", True
        yield "rolls out to so many data planes at once", mapping(tree, "rollout").get("maxParallel", 1)
        for name, dataset in mapping(tree, "datasets").items():
            yield from ((f"lets {writer} write the dataset {name}", True) for writer in at(dataset, "writers") or ())
        for name, server in mapping(tree, "servers").items():
            for writer in at(server, "repository", "writers") or ():
                yield f"lets {writer} write the repository of {name}", True
        for alert in at(tree, "gate", "alerts", "ignore") or ():
            yield f"leaves the alert {alert} out of its gate", True

    # -- what callers are offered, which weakens nothing --

    def _offered(self) -> Iterator[tuple[tuple[str, str], float]]:
        yield from ((("", f"answers at {address}"), True) for address in self._addresses())
        if not any(text(item, "spec", "mtls", "mode") == "STRICT" for _, item in self._named("PeerAuthentication")):
            yield ("", "accepts callers without a certificate of the mesh"), True
        issuers = [
            f"{text(item, 'spec', 'issuerRef', 'kind')} {text(item, 'spec', 'issuerRef', 'name')}"
            for _, item in self._named("Certificate")
        ]
        for issuer in issuers or [f"the Secret {name}" for name in self._mounted("tls")]:
            yield ("", f"shows callers the certificate of {issuer}"), True
        for name, image in mapping(self.tree, "images").items():
            for backend in at(image, "backends") or ():
                yield (f"image {name}", f"loads models of the backend {backend} by the image {name}"), True
        for kind, name, key, value in self._annotated():
            if not _PROTECTS.search(key):
                yield (f"{kind} {name}", f"has {key}: {value} at {kind} {name}"), True
        for name, item in self._named("ConfigMap"):
            for setting, words in (
                ("body_limit_bytes", "takes request bodies of bytes"),
                ("request_timeout_seconds", "waits seconds for a response"),
                ("concurrency", "works on requests at the same time in each replica of the proxy"),
            ):
                if (value := text(item, "data", variable(setting))).isdecimal():
                    yield (f"ConfigMap {name}", words), int(value)
            eviction = json_tree(at(item, "data", eviction_process.SETTINGS_FILE))
            for window in items(eviction, "warmWindows"):
                for model in at(window, "models") or ():
                    words = f"keeps the model {model} loaded by the window {text(window, 'name')}"
                    yield (f"ConfigMap {name}", words), True
            if isinstance(wait := at(eviction, "waitSeconds"), int):
                yield (f"ConfigMap {name}", f"lets callers wait seconds for a load ({name})"), wait
        kinds = {text(server, "name"): text(server, "kind") for server in items(self.routing, "servers")}
        for model in items(self.routing, "models"):
            name, server = text(model, "name"), text(model, "server")
            about = f"model {name}"
            if model.get("pinned") is True:
                yield (about, f"keeps the model {name} loaded"), True
            for called in model.get("servedNames") or ():
                yield (about, f"answers to the name {called} with the model {name}"), True
            for share in items(model, "versions"):
                yield (about, f"calls version {share.get('version')} of the model {name}"), True
            if alias := text(model, "alias"):
                yield (about, f"calls the version of the model {name} that has the alias {alias}"), True
            if kinds.get(server):
                yield (about, f"speaks the API of kind {kinds[server]} for the model {name}"), True
        for name, server in mapping(self.tree, "servers").items():
            if isinstance(length := at(server, "openai", "contextLength"), int):
                yield (f"server {name}", f"takes tokens of context at the server {name}"), length

    # -- what is demanded --

    def _demanded(self) -> Iterator[tuple[tuple[str, str], float]]:
        yield from ((("", words), amount) for words, amount in self._demanded_by_definition())
        if self.held_to.kind == "production":
            yield ("", "is held to production's rules"), True
        for rule in guardrails.BY_NAME.values():
            if self.held_to.severities.get(rule.name, rule.severity(self.held_to.kind)) == "mandatory":
                yield ("", f"stops at the guardrail {rule.name}"), True
        for name, item in self._named("Namespace"):
            if (level := text(item, "metadata", "labels", "pod-security.kubernetes.io/enforce")) == "restricted":
                yield ("", f"enforces Pod Security {level} in {name}"), True
        if any(at(item, "data", variable("tls")) == "true" for _, item in self._named("ConfigMap")):
            yield ("", "answers HTTPS at the proxy itself"), True
        for name, item in self._named("PeerAuthentication"):
            if text(item, "spec", "mtls", "mode") == "STRICT":
                yield ("", f"accepts only callers of the mesh by PeerAuthentication {name}"), True
        for _, item in self._named("PrometheusRule"):
            for each in (each for group in items(item, "spec", "groups") for each in items(group, "rules")):
                if name := text(each, "alert"):
                    promised = _PROMISED.search(text(each, "expr"))
                    words = f"fires {name} ({text(each, 'labels', 'severity')})"
                    yield ("", words), float(promised[1]) if promised else True
        for server in items(self.routing, "servers"):
            if any(pool.get("grpcTls") is True for pool in items(server, "pools")):
                name = self._server(text(server, "name"))
                yield (f"server {name}", f"encrypts gRPC between the proxy and server {name}"), True
        for kind, name, key, value in self._annotated():
            if _PROTECTS.search(key):
                yield (f"{kind} {name}", f"has {key}: {value} at {kind} {name}"), True

    def _annotated(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield kind, name, key and value of each annotation of what leads to the proxy."""
        for kind in ("Ingress", "HTTPRoute", "Service"):
            for name, item in self._named(kind):
                for key, value in mapping(item, "metadata", "annotations").items():
                    yield kind, name, key, str(value)

    def _demanded_by_definition(self) -> Iterator[tuple[str, float]]:
        if not (tree := self.tree):
            return
        promotion, gate = mapping(tree, "promotion"), mapping(tree, "gate")
        if source := promotion.get("from"):
            yield f"asks that versions of models served in {source} before", True
        if promotion.get("separationOfDuties"):
            yield "asks for separation of duties in promotions", True
        if hours := promotion.get("soakHours"):
            yield "asks for hours of service before a promotion", hours
        for key, words in (("probe", "sends a probe in its gate"), ("alerts", "looks for alerts in its gate")):
            if key in gate:
                yield words, True
        yield "holds its gate for seconds", gate.get("settleSeconds", 0)
        if canary := at(tree, "rollout", "canary"):
            yield f"sends {canary} ahead as canary", True
        yield "comes in wave", at(tree, "dataPlane", "wave") or 1

    # -- ways through the network --

    def ways(self, there: set[str]) -> list["_Way"]:
        """Return what NetworkPolicies allow to pods that are there before and after, with peers outside."""
        return [
            _Way(text(policy, "metadata", "name"), pod, direction, peer, port, only=frozenset(pods) == {PROXY_PODS})
            for policy, pods in self._policies()
            for direction, of in (("ingress", "from"), ("egress", "to"))
            for rule in items(policy, "spec", direction)
            for peer in [*items(rule, of)] or [{}]
            if not _is_internal(peer)
            for port in [_port(port) for port in items(rule, "ports")] or [_EVERY_PORT]
            for pod in sorted(pods & there)
        ]

    def held(self, there: set[str]) -> list[tuple[str, str]]:
        """Return the pods that can do only what NetworkPolicies name, and in which direction."""
        found = {
            (pod, str(direction).lower())
            for policy, pods in self._policies()
            for direction in at(policy, "spec", "policyTypes") or ("Ingress",)
            for pod in pods & there
        }
        return sorted(each for each in found if each[0] == _EVERY_POD or (_EVERY_POD, each[1]) not in found)

    def _policies(self) -> Iterator[tuple[Tree, set[str]]]:
        for _, policy in self._named("NetworkPolicy"):
            selector = mapping(policy, "spec", "podSelector")
            pods = {name for name, labels in self.pods.items() if matches(selector, labels)}
            yield policy, pods if any(selector.values()) else {_EVERY_POD, *pods}

    # -- who may call what --

    def _rights(self) -> Iterator["_Right"]:
        for rule in items(self.access, "rules"):
            reached: list[tuple[str, str]] = []
            for server, glob in product(rule.get("servers") or (), rule.get("models") or ()):
                here = self._server(server)
                some = [
                    each for each in sorted(self.models) if fnmatchcase(each[0], here) and fnmatchcase(each[1], glob)
                ]
                reached += [*some, (here, glob)] if _is_glob(glob) or not some else some
            for kind in ("principal", "group"):
                for name, action, model in product(rule.get(f"{kind}s") or (), rule.get("actions") or (), reached):
                    yield _Right(kind, name, text(rule, "source"), str(action), *model)


PROXY_PODS = f"the pods of Deployment {PROXY}"


# ---- ways through the network ----


class _Way(NamedTuple):
    """What one rule of a NetworkPolicy allows to the pods of one workload."""

    policy: str
    pod: str  # The workload, or every pod of the namespace.
    direction: str
    peer: Tree  # As the policy has it; empty for anyone.
    port: str
    only: bool  # Whether the policy is about the proxy alone.

    def covers(self, other: "_Way") -> bool:
        """Say whether it allows all that another one does."""
        return (
            self.direction == other.direction
            and self.pod in (other.pod, _EVERY_POD)
            and self.port in (other.port, _EVERY_PORT)
            and _covers(self.peer, other.peer)
        )


def _ways_in_words(ways: Iterable[_Way]) -> list[str]:
    """Return a sentence for each policy and peer: which pods reach which, and at which ports, unless they are ours."""
    ports: dict[tuple[str, str, str, bool], list[str]] = {}
    for way in ways:
        found = ports.setdefault((way.policy, way.direction, _peer(way.peer), way.only), [])
        found += [way.port] if way.port not in found else []
    lines = []
    for (policy, direction, peer, only), at_ports in ports.items():
        ours = "the proxy" if only else f"the pods of NetworkPolicy {policy}"
        where = f" at {', '.join(at_ports)}"
        if direction == "egress":
            lines.append(f"lets {ours} reach {peer}{where}")
        elif only and set(at_ports) == _CALLS:
            lines.append(f"lets {peer} call the proxy")
        else:
            lines.append(f"lets {peer} reach {ours}{where}")
    return lines


def _port(port: Tree) -> str:
    last = f" to {port['endPort']}" if "endPort" in port else ""
    return f"{port.get('protocol', 'TCP')} {port.get('port', _EVERY_PORT)}{last}"


def _is_internal(peer: Tree) -> bool:
    """Say whether a peer is one of the environment's own pods: between these, the product opens ports by itself."""
    own = mapping(peer, "podSelector", "matchLabels")
    return set(peer) == {"podSelector"} and "app.kubernetes.io/instance" in own


def _peer(peer: Tree) -> str:
    if cidr := text(peer, "ipBlock", "cidr"):
        without = at(peer, "ipBlock", "except")
        return f"{cidr} except {', '.join(map(str, without))}" if without else cidr
    pods, spaces = (_labels(mapping(peer, key)) for key in ("podSelector", "namespaceSelector"))
    where = f" in namespaces with {spaces}" if "namespaceSelector" in peer else ""
    return f"pods {f'with {pods}' if 'podSelector' in peer else 'with any labels'}{where}" if peer else "anyone"


def _labels(selector: Tree) -> str:
    found = [f"{key}={value}" for key, value in sorted(mapping(selector, "matchLabels").items())]
    found += [
        f"{text(one, 'key')} {text(one, 'operator')} {', '.join(map(str, one.get('values') or ()))}".rstrip()
        for one in items(selector, "matchExpressions")
    ]
    return ", ".join(found) or "any labels"


def _covers(wide: Tree, narrow: Tree) -> bool:
    """Say whether a peer means all that another one means."""
    if wide == narrow or not wide:
        return True
    if "ipBlock" in wide or "ipBlock" in narrow:
        return _holds(mapping(wide, "ipBlock"), mapping(narrow, "ipBlock"))
    return ("namespaceSelector" in wide) == ("namespaceSelector" in narrow) and all(
        mapping(wide, key, "matchLabels").items() <= mapping(narrow, key, "matchLabels").items()
        and all(one in [*items(narrow, key, "matchExpressions")] for one in items(wide, key, "matchExpressions"))
        for key in ("namespaceSelector", "podSelector")
    )


def _holds(wide: Tree, narrow: Tree) -> bool:
    """Say whether a range, less what it leaves out, lies in another one, less what that one leaves out."""
    try:
        (outer, *closed), (inner, *left_out) = (
            [ip_network(cidr, strict=False) for cidr in (block["cidr"], *(block.get("except") or ()))]
            for block in (wide, narrow)
        )
        return inner.subnet_of(outer) and all(  # type: ignore[arg-type]
            not each.overlaps(inner) or any(each.subnet_of(other) for other in left_out)  # type: ignore[arg-type]
            for each in closed
        )
    except (KeyError, TypeError, ValueError):  # no ranges, or of two versions
        return False


def _holds_back(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[1] == other[1] and one[0] in (other[0], _EVERY_POD)


def _held_in_words(held: tuple[str, str]) -> str:
    return f"refuses {held[0]} the {held[1]} that no NetworkPolicy names"


# ---- exceptions from guardrails ----


def _waives(one: Any, other: Any) -> bool:
    return bool(one.rule == other.rule and one.object in (None, other.object) and one.until >= other.until)


def _waiver_in_words(waiver: Any) -> str:
    about = f" for {waiver.object}" if waiver.object else ""
    return f"has an exception from {waiver.rule}{about} until {waiver.until}: {waiver.name}"


# ---- who may call what ----


class _Right(NamedTuple):
    """That callers may do something with models; names are globs, or models that are served."""

    kind: str  # `principal` or `group`.
    name: str
    source: str  # Which source vouches for them; empty for any that is trusted.
    action: str
    server: str
    model: str

    @property
    def who(self) -> str:
        """The caller, in words."""
        return f"{self.kind} {self.name}" + (f" of {self.source}" if self.source else "")

    def covers(self, other: "_Right") -> bool:
        """Say whether a caller that has this one gains nothing by another one; a glob covers no model that is new."""
        return (
            self.kind == other.kind
            and self.action == other.action
            and self.source in ("", other.source)
            and _is_within(other.name, self.name)
            and (_is_glob(other.model) or self[-2:] == other[-2:])
            and _is_within(other.server, self.server)
            and _is_within(other.model, self.model)
        )


def _by_caller(
    was: Sequence[_Right], now: Sequence[_Right], served: set[tuple[str, str]] | None
) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each caller and action, and the models of the rights in `now` that those in `was` do not cover.

    With `served`, a model that is not among them is left out: that it is no longer served is shown elsewhere.
    """
    # A right to one model is covered by rights to the same model alone, so it is not compared with all others.
    had: dict[tuple[str, ...], list[_Right]] = {}
    for one in was:
        for key in ((one.kind, one.action), (one.kind, one.action, one.server, one.model)):
            had.setdefault(key, []).append(one)
    known, found = {*was}, dict[tuple[str, str], dict[tuple[str, str], None]]()
    for right in now:
        model = (right.server, right.model)
        others = had.get((right.kind, right.action, *(() if _is_glob(right.model) else model)), [])
        if right in known or any(other.covers(right) for other in others):
            continue
        if served is None or _is_glob(right.model) or model in served:
            found.setdefault((right.who, right.action), {})[model] = None
    yield from ((who, action, [*models]) for (who, action), models in found.items())


def _listed(models: Iterable[tuple[str, str]]) -> str:
    return listed([f"{name} of {server}" for server, name in models], MOST_MODELS)


def _is_glob(name: Any) -> bool:
    return any(sign in name for sign in "*?[")


def _is_within(narrow: str, wide: str) -> bool:
    """Say whether a glob names no caller that another one does not name; in doubt it may."""
    return narrow == wide or (
        not any(sign in wide for sign in "?[") and ("[" not in narrow or wide == "*") and fnmatchcase(narrow, wide)
    )


# ---- what objects carry ----


def _annotation(objects: Sequence[Tree], name: str) -> str:
    spaces = (item for item in objects if item.get("kind") == "Namespace")
    found = (at(item, "metadata", "annotations", name) for item in spaces)
    return next((value for value in found if isinstance(value, str)), "")


def definition_in(objects: Sequence[Tree]) -> Tree:
    """Return the part of the definition that the Namespace carries; an empty mapping if it carries none."""
    return mapping(json_tree(_annotation(objects, settings.ANNOTATION)))


def definitions(before: Sequence[Tree], after: Sequence[Tree]) -> tuple[Tree, Tree]:
    """Return `definition_in` before and after, both in the names of after; empty unless both carry one."""
    was, now = definition_in(before), definition_in(after)
    if not was or not now:  # an older version wrote none
        return {}, {}
    rollout, promotion = {**mapping(was, "rollout")}, {**mapping(was, "promotion")}
    if "canary" in rollout and at(now, "rollout", "canary"):
        rollout["canary"] = at(now, "rollout", "canary")  # one is as good as another, and it may be the same one
    if source := _past(now, ENVIRONMENT).get(text(promotion, "from")):
        promotion["from"] = source
    parts = {
        f"{kind}s": {past.get(name, name): value for name, value in mapping(was, f"{kind}s").items()}
        for kind, past in {kind: _past(now, kind) for kind in ("dataset", "server")}.items()
    }
    return {**was, **parts, "rollout": rollout, "promotion": promotion}, now


def _past(definition: Tree, kind: str) -> dict[str, str]:
    """Return the names of after of things of a kind, by the names that they had."""
    pasts = mapping(definition, "formerly").items()
    return {name: what.removeprefix(f"{kind} ") for what, past in pasts if what.startswith(f"{kind} ") for name in past}


def _file(objects: Sequence[Tree], name: str) -> Tree:
    maps = (item for item in objects if item.get("kind") == "ConfigMap")
    found = (json_tree(at(item, "data", name)) for item in maps)
    return next((tree for tree in found if isinstance(tree, Mapping)), {})
