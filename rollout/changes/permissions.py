"""Permissions before and after a change. One comparison, run in both directions, finds gains and losses.

Both sides come from the definition that the Namespace carries, and from the proxy's access and routing tables. Manual
changes in a cluster appear in its objects, field by field.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_network
from itertools import product
from typing import Any, Literal, NamedTuple, TypeVar

from tidegate_contracts import eviction_process, proxy_process
from tidegate_contracts.labels import LOADING
from tidegate_contracts.proxy_settings import variable

from policies import guardrails
from policies.guardrails.objects import at, mapping, mappings, text
from policies.guardrails.settings import settings_of
from stacks.definition.base import byte_count
from stacks.problems import listed
from stacks.resolve import settings
from stacks.resolve.settings import ENVIRONMENT

from .compare import json_tree
from .workloads import Pool, Tree, pool_of

MOST_MODELS = 12
_PROTECTS = re.compile(r"/.*(internal|scheme|range|cidr|security-group|whitelist|allowlist|auth|waf|ssl|tls|protocol)")
"""Annotations of the proxy's exposure that may restrict its callers."""
_EVERY_PORT = "every port"
_SERVERS = "all servers"
_PROXY = "the proxy"
Thing = TypeVar("Thing")


Side = Literal["allowed", "offered", "demanded"]
SIDES: Mapping[Side, tuple[str, str]] = {
    "allowed": ("weaker", "lost"),
    "offered": ("stricter", "lost"),
    "demanded": ("stricter", "weaker"),
}
"""Fields of PermissionChange for more and for less of what a state allows, offers or demands."""
FACTS: Sequence[tuple[Side, str, str]] = (
    ("allowed", "proxy.auth.apiKeys.secret", "trusts API keys of the Secret {}"),
    ("allowed", "proxy.auth.authorities.configMap", "trusts issuers by the authorities in the ConfigMap {}"),
    ("allowed", "proxy.auth.authorities.secret", "trusts issuers by the authorities in the Secret {}"),
    ("allowed", "promotion.principals", "lets {} change the versions of its models"),
    ("allowed", "promotion.groups", "lets {} change the versions of its models"),
    ("allowed", "rollout.maxParallel", "rolls out to data planes in parallel"),
    ("allowed", "datasets.*.writers", "lets {1} write the dataset {0}"),
    ("allowed", "servers.*.repository.writers", "lets {1} write the repository of {0}"),
    ("allowed", "servers.*.openai.frontends", "lets the pods of server {} write DynamoWorkerMetadata objects"),
    ("allowed", "servers.*.identity.roleArn", "gives the pods of server {} the identity {} (roleArn)"),
    ("allowed", "servers.*.identity.serviceAccount", "gives the pods of server {} the identity {} (serviceAccount)"),
    ("allowed", "servers.*.identity.clientId", "gives the pods of server {} the identity {} (clientId)"),
    ("allowed", "gate.alerts.ignore", "leaves the alert {} out of its gate"),
    ("offered", "proxy.timeouts.requestSeconds", "waits seconds for a response"),
    ("offered", "proxy.timeouts.drainSeconds", "lets requests end within seconds when a replica of the proxy stops"),
    ("offered", "staying.*.triton.exitTimeoutSeconds", "lets requests end within seconds when a replica of {} stops"),
    ("offered", "staying.*.openai.exitTimeoutSeconds", "lets requests end within seconds when a replica of {} stops"),
    ("offered", "proxy.tls.secret", "shows callers the certificate of the Secret {}"),
    ("offered", "proxy.tls.issuer", "shows callers the certificate of the issuer {}"),
    ("offered", "images.*.backends", "loads models of the backend {1} with the image {0}"),
    ("offered", "staying.*.openai.contextLength", "accepts tokens of context at the server {}"),
    ("demanded", "proxy.tls", "requires HTTPS at the proxy itself"),
    ("demanded", "staying.*.triton.grpcTls", "encrypts gRPC between the proxy and server {}"),
    ("demanded", "network.apiServer", "verifies proxies at the lease port"),
    ("demanded", "promotion.from", "requires that versions of models served in {} before"),
    ("demanded", "promotion.separationOfDuties", "requires separation of duties in promotions"),
    ("demanded", "promotion.soakHours", "requires hours of service before a promotion"),
    ("demanded", "gate.probe", "sends a probe in its gate"),
    ("demanded", "gate.alerts", "checks alerts in its gate"),
    ("demanded", "gate.settleSeconds", "holds its gate for seconds"),
    ("demanded", "rollout.canary", "rolls out to {} first, as canary"),
    ("demanded", "dataPlane.wave", "is in wave"),
)
"""Keys of the definition, and a sentence for each, which may have an amount. `staying`: servers on both sides."""
POOL_FACTS = (
    ("waitSeconds", "lets callers wait seconds for a load in"),
    ("idleSeconds", "keeps idle models loaded for seconds in"),
    ("capacityBytes", "has bytes for models in each replica of"),
)
"""Settings of the eviction policy. Only those of a pool that loads on demand before and after are compared."""


@dataclass(frozen=True)
class Grant:
    """Models that callers may newly call."""

    who: str
    action: str
    models: str
    wider: bool  # Whether one of these models was served before.

    def __str__(self) -> str:
        return f"newly lets {self.who} {self.action}: {self.models}"


class PermissionChange(NamedTuple):
    """The effect of a change on permissions, as sentences without a subject."""

    weaker: tuple[str, ...] = ()  # Gained permissions, and dropped demands.
    lost: tuple[str, ...] = ()  # Lost abilities of callers, pods and teams.
    stricter: tuple[str, ...] = ()  # New demands, and raised limits.
    grants: tuple[Grant, ...] = ()


def permission_change(before: Sequence[Tree], after: Sequence[Tree]) -> PermissionChange:
    """Return what callers, pods and teams gain and lose. `after` records former names."""
    trees = definitions(before, after)
    past = _past(trees[1], "server")
    servers = mapping(trees[0], "servers").keys() & mapping(trees[1], "servers").keys()
    was, now = (_State(objects, tree, past, servers) for objects, tree in zip((before, after), trees, strict=True))
    models, rights = _moved(was, now.models)
    found: dict[str, list[str]] = {"weaker": [], "lost": [], "stricter": []}
    differences = (
        *_amounts(dict(was.facts(now.pools)), dict(now.facts(was.pools))),
        *_both_ways([*was.ways()], [*now.ways()], _Way.covers, str),
        *_both_ways(was.settings.waivers, now.settings.waivers, _waives, _waiver_in_words),
    )
    for side, is_more, words in differences:
        found[SIDES[side][not is_more]].append(words)
    found["lost"] += [
        f"no longer lets {who} {action}: {_listed(reached)}"
        for who, action, reached in _by_caller(now.rights, rights, now.models)
    ]
    return PermissionChange(
        **{field: tuple(lines) for field, lines in found.items()},
        grants=tuple(
            Grant(who, action, _listed(reached), not models.isdisjoint(reached))
            for who, action, reached in _by_caller(rights, now.rights, None)
        ),
    )


def _moved(was: "_State", served: set[tuple[str, str]]) -> tuple[set[tuple[str, str]], list["_Right"]]:
    """Return models and rights before, both also at the new server of each model that another server serves now."""
    new = served - was.models
    moves = {gone: [there for there in new if there[1] == gone[1]] for gone in was.models - served}
    moved = ((right, server) for right in was.rights for server, _ in moves.get((right.server, right.model), ()))
    rights = [*was.rights, *(right._replace(server=server) for right, server in moved)]
    return was.models.union(*moves.values()), rights


Fact = tuple[tuple[Side, str], float]
"""A side and a sentence without a subject, and its amount: True, or a number."""
Difference = tuple[Side, bool, str]
"""A side, whether the change increases it, and the sentence: `newly …`, `no longer …`, `…: 1000 → 10`."""


def _amounts(was: Mapping[tuple[Side, str], float], now: Mapping[tuple[Side, str], float]) -> Iterator[Difference]:
    for fact in dict.fromkeys((*was, *now)):
        (side, words), before, after = fact, was.get(fact), now.get(fact)
        if before is not None and after is not None:
            if before != after:
                yield side, after > before, f"{words}: {_shown(before)} → {_shown(after)}"
        elif amount := (after if before is None else before):
            how_much = "" if amount is True else f": {_shown(amount)}"
            yield side, before is None, f"{'newly' if before is None else 'no longer'} {words}{how_much}"


def _both_ways(
    was: Sequence[Thing], now: Sequence[Thing], covers: Callable[[Thing, Thing], bool], in_words: Callable[[Thing], str]
) -> Iterator[Difference]:
    for some, others, is_more in ((was, now, True), (now, was, False)):
        new = [in_words(other) for other in others if not any(covers(one, other) for one in some)]
        for words in dict.fromkeys(new):
            yield "allowed", is_more, f"{'newly' if is_more else 'no longer'} {words}"


def _shown(amount: float) -> str:
    return "any number" if amount == math.inf else f"{amount:.12g}"


def _leaves(tree: Any, path: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the names that replace each * of a path, and the value at the end. For a list, yield each element."""
    if isinstance(tree, list):
        yield from (leaf for item in tree for leaf in _leaves(item, path))
    elif not path:
        yield (tree,)
    elif path[0] == "*":
        yield from ((name, *leaf) for name, inside in mapping(tree).items() for leaf in _leaves(inside, path[1:]))
    else:
        yield from _leaves(at(tree, path[0]), path[1:])


class _State:
    """The permissions, offers and demands of one state of a stack, by the names after the change."""

    def __init__(self, objects: Sequence[Tree], tree: Tree, past: Mapping[str, str], staying: set[str]) -> None:
        """Read the tables once. `past` maps former names of servers to new ones. `staying` are servers on both sides:
        effects of new and removed servers are shown elsewhere."""
        servers = {name: server for name, server in mapping(tree, "servers").items() if name in staying}
        self.objects, self.tree, self.past = objects, {**tree, "staying": servers} if tree else tree, past
        self.routing, self.access = (
            _file(objects, name) for name in (proxy_process.ROUTING_FILE, proxy_process.ACCESS_FILE)
        )
        self.settings = settings_of(_annotation(objects, guardrails.ANNOTATION))
        models = mappings(self.routing, "models")
        self.models = {(self._server(text(model, "server")), text(model, "name")) for model in models}
        pools = (item for item in objects if item.get("kind") == "StatefulSet")
        self.pools = {pool_of(item): text(item, "spec", "template", "metadata", "labels", LOADING) for item in pools}
        self.rights = list(dict.fromkeys(self._rights()))

    def _server(self, name: str) -> str:
        return self.past.get(name, name)

    def facts(self, others: Mapping[Pool | None, str]) -> Iterator[Fact]:
        for side, path, words in FACTS:
            for *names, value in _leaves(self.tree, path.split(".")):
                if value not in (None, False, 0):
                    is_amount = isinstance(value, int | float)
                    yield (side, words.format(*names, value)), value if is_amount else True
        yield from ((("allowed", words), amount) for words, amount in self._allowed())
        yield from ((("offered", words), amount) for words, amount in self._offered(others))
        yield from ((("demanded", words), amount) for words, amount in self._demanded())
        exposure = mapping(self.tree, "proxy", "exposure")
        for key, value in {**mapping(exposure, "serviceAnnotations"), **mapping(exposure, "annotations")}.items():
            kind: Side = "demanded" if _PROTECTS.search(key) else "offered"
            yield (kind, f"has {key}: {value} at its exposure"), True

    def _allowed(self) -> Iterator[tuple[str, float]]:
        for issuer in mappings(self.access, "issuers"):
            for audience in at(issuer, "audiences") or ():
                keys = text(issuer, "jwksUrl")
                how = f"with groups by {text(issuer, 'groupsClaim')}" + (f" and keys of {keys}" if keys else "")
                yield f"trusts tokens of {text(issuer, 'issuer')} for {audience}, {how}", True
        for key, words in (
            ("requestsPerMinute", "lets one caller send a model requests a minute"),
            ("burst", "lets one caller send a model requests in a burst"),
            ("tokensPerMinute", "lets one caller use tokens of a model a minute"),
        ):
            if "rateLimit" in self.access:
                rate = at(self.access, "rateLimit", key)
                yield words, rate if isinstance(rate, int) else math.inf
        if at(self.tree, "proxy", "auth", "dominoPrincipal"):
            url = text(self.tree, "domino", "principalUrl", default=text(self.tree, "domino", "platformNamespace"))
            yield f"trusts Domino's principals, as {url} names them", True
        exposure = mapping(self.tree, "proxy", "exposure")
        if (kind := text(exposure, "kind", default="cluster-ip")) != "cluster-ip":
            yield f"opens the proxy to the outside by {kind}", True
        if kind == "ingress" and not at(self.tree, "proxy", "tls"):
            yield "lets calls in without TLS at its Ingress", True
        if kind == "http-route" and not text(exposure, "listener"):
            yield "lets calls in at every listener of its Gateway", True
        slices, budget = self.settings.gpu_slices, self.settings.monthly_budget
        yield "takes GPU slices", math.inf if slices is None else slices
        yield "spends money a month", math.inf if budget is None else budget
        if self.settings.kind == "local":
            yield "is a local trial: directories of nodes and images without a digest are allowed", True
        if self.tree and at(self.tree, "mesh", "mtls") != "STRICT":
            yield "lets callers outside the mesh call the proxy", True
        if self.tree and mapping(self.tree, "promotion").keys().isdisjoint(("principals", "groups")):
            yield "lets every writer deploy versions of models", True

    def _offered(self, others: Mapping[Pool | None, str]) -> Iterator[tuple[str, float]]:
        if proxy := mapping(self.tree, "proxy"):
            exposure = mapping(proxy, "exposure")
            scheme = "https" if "tls" in proxy else "http"
            yield f"answers by {scheme} within the cluster", True
            to = f"{text(exposure, 'host')}{text(exposure, 'path')}"
            if exposure.get("kind") == "ingress":
                of = f" of class {name}" if (name := text(exposure, "className")) else ""
                yield f"answers at {scheme}://{to} by an Ingress{of}", True
            elif exposure.get("kind") == "http-route":
                gateway = f"{text(exposure, 'gatewayNamespace')}/{text(exposure, 'gateway')}"
                listener = text(exposure, "listener", default="every listener")
                yield f"answers at {to} by an HTTPRoute at {listener} of the Gateway {gateway}", True
            with suppress(ValueError):  # edited by hand
                yield "accepts request bodies of bytes", byte_count(text(proxy, "bodyLimit"))
        for model in mappings(self.routing, "models"):
            name = text(model, "name")
            if model.get("pinned") is True:
                yield f"keeps the model {name} loaded", True
            for called in model.get("servedNames") or ():
                yield f"serves the model {name} under the name {called}", True
        for item in (item for item in self.objects if item.get("kind") == "ConfigMap"):
            if (value := text(item, "data", variable("concurrency"))).isdecimal():
                yield "works on requests at the same time in each replica of the proxy", int(value)
            eviction, pool = json_tree(at(item, "data", eviction_process.SETTINGS_FILE)), pool_of(item)
            for key, words in POOL_FACTS if others.get(pool) == "on-demand" else ():
                if isinstance(amount := at(eviction, key), int):
                    yield f"{words} pool {'/'.join(pool or ())}", amount
        for pool, loading in self.pools.items():
            if pool and loading == "preload" and pool in others:
                yield f"keeps all models of pool {'/'.join(pool)} loaded: no call waits for a load", True

    def _demanded(self) -> Iterator[tuple[str, float]]:
        if self.settings.kind == "production":
            yield "follows production's rules", True
        for rule in guardrails.RULES:
            if self.settings.severities.get(rule.name, rule.severity(self.settings.kind)) == "mandatory":
                yield f"enforces the guardrail {rule.name}", True
        monitoring = mapping(self.tree, "monitoring")
        if monitoring.get("operator") and monitoring.get("rules", True):
            yield "makes alert rules", True
            for key in ("availability", "answered", "latency"):
                yield f"promises percent of calls ({key})", float(at(monitoring, "objectives", key) or 0)

    def ways(self) -> Iterator["_Way"]:
        domino = text(self.tree, "domino", "computeNamespace")
        own = [{"namespaceLabels": {"kubernetes.io/metadata.name": domino}}] if domino else []
        for peer in (*mapping(self.tree, "network", "callers").values(), *own):
            yield _Way("ingress", _PROXY, peer, _EVERY_PORT)
        exposure = mapping(self.tree, "proxy", "exposure")
        if exposure.get("kind") == "load-balancer":
            for cidr in exposure.get("sourceRanges") or ("0.0.0.0/0", "::/0"):
                yield _Way("ingress", "the load balancer", {"cidr": cidr}, _EVERY_PORT)
        for peer in mapping(self.tree, "network", "reach").values():
            server = self._server(text(peer, "server"))
            by = [_PROXY if who == "proxy" else _SERVERS for who in peer.get("by") or ()]
            by += [f"server {server}"] if server else []
            for who, port in product(by, [f"port {port}" for port in peer.get("ports") or ()] or [_EVERY_PORT]):
                yield _Way("egress", who, peer, port)

    def _rights(self) -> Iterator["_Right"]:
        for rule in mappings(self.access, "rules"):
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


class _Way(NamedTuple):
    """One entry of the definition's network."""

    direction: str
    who: str  # The proxy, all servers, or one server.
    peer: Tree  # A CIDR with its exceptions, or labels of namespaces and pods.
    port: str

    def covers(self, other: "_Way") -> bool:
        same = self.who == other.who or (self.who == _SERVERS and other.who.startswith("server "))
        return (
            same
            and self.direction == other.direction
            and self.port in (other.port, _EVERY_PORT)
            and _covers(self.peer, other.peer)
        )

    def __str__(self) -> str:
        peer = text(self.peer, "cidr")
        if without := self.peer.get("except"):
            peer += f" except {', '.join(without)}"
        if not peer:
            pods, spaces = (_labels(mapping(self.peer, key)) for key in ("podLabels", "namespaceLabels"))
            peer = f"pods with {pods} in namespaces with {spaces}"
        if self.direction == "ingress":
            return f"lets {peer} call {self.who}"
        return f"lets {self.who} reach {peer} at {self.port}"


def _labels(labels: Tree) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "any labels"


def _covers(wide: Tree, narrow: Tree) -> bool:
    if "cidr" in wide and "cidr" in narrow:
        return _holds(wide, narrow)
    return ("cidr" in wide) == ("cidr" in narrow) and all(
        mapping(wide, key).items() <= mapping(narrow, key).items() for key in ("namespaceLabels", "podLabels")
    )


def _holds(wide: Tree, narrow: Tree) -> bool:
    """Whether a range, without its exceptions, is within another one, without the exceptions of that one."""
    try:
        (outer, *closed), (inner, *left_out) = (
            [ip_network(cidr, strict=False) for cidr in (block["cidr"], *(block.get("except") or ()))]
            for block in (wide, narrow)
        )
    except ValueError:  # edited by hand
        return False
    if outer.version != inner.version:
        return False
    return inner.subnet_of(outer) and all(  # type: ignore[arg-type]
        not each.overlaps(inner) or any(each.subnet_of(other) for other in left_out)  # type: ignore[arg-type]
        for each in closed
    )


def _waives(one: Any, other: Any) -> bool:
    return bool(one.rule == other.rule and one.object in (None, other.object) and one.until >= other.until)


def _waiver_in_words(waiver: Any) -> str:
    about = f" for {waiver.object}" if waiver.object else ""
    return f"has an exception from {waiver.rule}{about} until {waiver.until}: {waiver.name}"


class _Right(NamedTuple):
    """A permission of callers for models. Names are globs, or models that are served."""

    kind: str  # `principal` or `group`.
    name: str
    source: str  # The source that authenticates the caller. Empty for any trusted source.
    action: str
    server: str
    model: str

    @property
    def who(self) -> str:
        return f"{self.kind} {self.name}" + (f" of {self.source}" if self.source else "")

    def covers(self, other: "_Right") -> bool:
        """Whether a caller with this right gains nothing by another one. A glob does not cover new models."""
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
    """Yield each caller and action, and the models of rights in `now` that those in `was` do not cover. Given `served`,
    leave out other models: that a model is no longer served is shown elsewhere."""
    # Only rights to the same model can cover a right to one model, so it is not compared with all others.
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
    """Whether every caller of a glob is also one of another glob. False if that is uncertain."""
    return narrow == wide or (
        not any(sign in wide for sign in "?[") and ("[" not in narrow or wide == "*") and fnmatchcase(narrow, wide)
    )


def _annotation(objects: Sequence[Tree], name: str) -> str:
    spaces = (item for item in objects if item.get("kind") == "Namespace")
    return next(filter(None, (text(item, "metadata", "annotations", name) for item in spaces)), "")


def definition_in(objects: Sequence[Tree]) -> Tree:
    """Return the part of the definition that the Namespace carries. Empty if it carries none."""
    return mapping(json_tree(_annotation(objects, settings.ANNOTATION)))


def definitions(before: Sequence[Tree], after: Sequence[Tree]) -> tuple[Tree, Tree]:
    """Return `definition_in` before and after, both with the new names. Empty unless both carry one."""
    was, now = definition_in(before), definition_in(after)
    if not was or not now:  # older versions recorded none
        return {}, {}
    rollout, promotion = {**mapping(was, "rollout")}, {**mapping(was, "promotion")}
    if "canary" in rollout and at(now, "rollout", "canary"):
        rollout["canary"] = at(now, "rollout", "canary")  # a changed canary is not a weakened demand
    if source := _past(now, ENVIRONMENT).get(text(promotion, "from")):
        promotion["from"] = source
    parts = {
        f"{kind}s": {past.get(name, name): value for name, value in mapping(was, f"{kind}s").items()}
        for kind, past in {kind: _past(now, kind) for kind in ("dataset", "server")}.items()
    }
    return {**was, **parts, "rollout": rollout, "promotion": promotion}, now


def _past(definition: Tree, kind: str) -> dict[str, str]:
    pasts = mapping(definition, "formerly").items()
    return {name: what.removeprefix(f"{kind} ") for what, past in pasts if what.startswith(f"{kind} ") for name in past}


def _file(objects: Sequence[Tree], name: str) -> Tree:
    maps = (item for item in objects if item.get("kind") == "ConfigMap")
    found = (json_tree(at(item, "data", name)) for item in maps)
    return next((tree for tree in found if isinstance(tree, Mapping)), {})
