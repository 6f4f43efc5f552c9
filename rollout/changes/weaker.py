"""What a change weakens: what an environment newly allows, what it no longer asks for, and who may newly call what.

All of it is read from objects; what no object needs rides on the Namespace as annotations.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, NamedTuple

from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_settings import variable

from policies import guardrails
from policies.guardrails.settings import settings_of
from stacks.problems import listed
from stacks.resolve import settings
from stacks.resolve.settings import ENVIRONMENT

from .compare import json_tree
from .reach import newly_reached, no_longer_refused
from .workloads import Tree, at, items, mapping, text

MOST_MODELS = 12
_PROMISED = re.compile(r"\(1 - ([\d.]+) / 100\)")  # The percent of calls that an alert stands for.
_PROTECTS = re.compile(r"/.*(internal|scheme|range|cidr|security-group|whitelist|allowlist|auth|waf|ssl|tls|protocol)")
"""Annotations of what leads to the proxy from outside that may say who may come, and how."""

Ways = dict[str, float]
"""Sentences without a subject, with how much there is of each: True, or a number."""


@dataclass(frozen=True)
class Grant:
    """Models that somebody may newly call."""

    who: str
    action: str
    models: str
    wider: bool  # Whether models are among them that were served before.


class _Right(NamedTuple):
    """That callers may do something with models; names are globs, or what is there now."""

    kind: str  # `principal` or `group`.
    name: str
    source: str  # Who vouches for them; an empty text for anybody who is believed.
    action: str
    server: str
    model: str

    @property
    def who(self) -> str:
        """The caller, in words."""
        return f"{self.kind} {self.name}" + (f" of {self.source}" if self.source else "")

    def covers(self, other: "_Right") -> bool:
        """Say whether whoever has this one gains nothing by another one; a glob covers no model that is new."""
        return (
            self.kind == other.kind
            and self.action == other.action
            and self.source in ("", other.source)
            and _is_within(other.name, self.name)
            and (_is_glob(other.model) or self[-2:] == other[-2:])
            and _is_within(other.server, self.server)
            and _is_within(other.model, self.model)
        )


def weaker(before: Sequence[Tree], after: Sequence[Tree]) -> list[str]:
    """Return what is weaker after a change, in sentences without a subject: `no longer asks for …`."""
    trees = definitions(before, after)
    was, now = (_allowed(*each) for each in zip((before, after), trees, strict=True))
    lines = [_newly(way, was.get(way), amount) for way, amount in now.items() if way not in was or amount > was[way]]
    lines += [f"newly lets {words}" for words in newly_reached(before, after)]
    lines += [f"no longer {words}" for words in (*no_longer_refused(before, after), *_lost(before, after))]
    lines += [f"newly {words}" for words in _waived(before, after)]
    had, has = (_asked(*each) for each in zip((before, after), trees, strict=True))
    lines += [
        f"{way}: {_shown(amount)} → {_shown(has[way])}" if way in has else f"no longer {way}"
        for way, amount in had.items()
        if way not in has or has[way] < amount
    ]
    return lines


def _newly(way: str, was: float | None, now: float) -> str:
    if was is not None:
        return f"{way}: {_shown(was)} → {_shown(now)}"
    return f"newly {way}" if now is True else f"newly {way}: {_shown(now)}"


def _shown(amount: float) -> str:
    return "any number" if amount == math.inf else f"{amount:.12g}"


def _waived(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[str]:
    old, new = (settings_of(_annotation(objects, guardrails.ANNOTATION)).waivers for objects in (before, after))
    for each in new:
        if not any(
            had.rule == each.rule and had.object in (None, each.object) and had.until >= each.until for had in old
        ):
            about = f" for {each.object}" if each.object else ""
            yield f"has an exception from {each.rule}{about} until {each.until}: {each.name}"


def _named(objects: Sequence[Tree], kind: str) -> Iterator[tuple[str, Tree]]:
    yield from ((text(item, "metadata", "name"), item) for item in objects if item.get("kind") == kind)


def _annotation(objects: Sequence[Tree], name: str) -> str:
    found = (at(item, "metadata", "annotations", name) for _, item in _named(objects, "Namespace"))
    return next((said for said in found if isinstance(said, str)), "")


def definition_in(objects: Sequence[Tree]) -> Tree:
    """Return what the definition says of a stack beyond its objects; an empty mapping where they do not say it."""
    return mapping(json_tree(_annotation(objects, settings.ANNOTATION)))


def definitions(before: Sequence[Tree], after: Sequence[Tree]) -> tuple[Tree, Tree]:
    """Return what is said of the definition before and after, both in the names of now; nothing unless both say it."""
    was, now = definition_in(before), definition_in(after)
    if not was or not now:  # an older version wrote none
        return {}, {}
    rollout, promotion = {**mapping(was, "rollout")}, {**mapping(was, "promotion")}
    if "canary" in rollout and at(now, "rollout", "canary"):
        rollout["canary"] = at(now, "rollout", "canary")  # one is as good as another, and it may be the same one
    if source := _past(now, ENVIRONMENT).get(text(promotion, "from")):
        promotion["from"] = source
    names = {kind: _past(now, kind) for kind in ("dataset", "server")}
    parts = {
        f"{kind}s": {past.get(name, name): said for name, said in mapping(was, f"{kind}s").items()}
        for kind, past in names.items()
    }
    return {**was, **parts, "rollout": rollout, "promotion": promotion}, now


def _past(definition: Tree, kind: str) -> dict[str, str]:
    """Return what things of a kind are called now, by the names that they had."""
    pasts = mapping(definition, "formerly").items()
    return {name: what.removeprefix(f"{kind} ") for what, past in pasts if what.startswith(f"{kind} ") for name in past}


def _file(objects: Sequence[Tree], name: str) -> Tree:
    found = (json_tree(at(item, "data", name)) for _, item in _named(objects, "ConfigMap"))
    return next((tree for tree in found if isinstance(tree, Mapping)), {})


# ---- what is allowed, and what is asked ----


def _allowed(objects: Sequence[Tree], tree: Tree) -> Ways:
    found: Ways = _allowed_by_definition(tree) if tree else {}
    held_to = settings_of(_annotation(objects, guardrails.ANNOTATION))
    found["takes GPU slices"] = math.inf if held_to.gpu_slices is None else held_to.gpu_slices
    found["spends money a month"] = math.inf if held_to.monthly_budget is None else held_to.monthly_budget
    if held_to.kind == "local":
        found["is a local trial: folders of nodes and images without a digest are allowed"] = True
    access = _file(objects, proxy_process.ACCESS_FILE)
    for issuer in items(access, "issuers"):
        for audience in at(issuer, "audiences") or ():
            claim, keys = text(issuer, "groupsClaim"), text(issuer, "jwksUrl")
            told = f"with groups by {claim}" + (f" and keys of {keys}" if keys else "")
            found[f"believes tokens of {text(issuer, 'issuer')} for {audience}, {told}"] = True
    for key in ("requestsPerMinute", "burst"):
        if isinstance(rate := at(access, "rateLimit", key), int):
            found[f"lets one caller send a model ({key})"] = rate
    tokens = at(access, "rateLimit", "tokensPerMinute")
    found["lets one caller use tokens of a model a minute"] = tokens if isinstance(tokens, int) else math.inf
    for _, item in _named(objects, "ConfigMap"):
        if at(item, "data", variable("api_keys")) == "true":
            found["believes API keys"] = True
        if url := text(item, "data", variable("domino_principal_url")):
            found[f"believes Domino's principals, as {url} tells them"] = True
    for _, item in _named(objects, "Deployment"):
        for volume in items(item, "spec", "template", "spec", "volumes"):
            for source in items(volume, "projected", "sources") if volume.get("name") == "authorities" else ():
                for kind, words in (("configMap", "ConfigMap"), ("secret", "Secret")):
                    if name := text(source, kind, "name"):
                        found[f"believes issuers by the authorities in the {words} {name}"] = True
    for name, item in _named(objects, "Service"):
        if (kind := text(item, "spec", "type", default="ClusterIP")) != "ClusterIP":
            found[f"opens the Service {name} to the outside as {kind}"] = True
    for kind in ("Ingress", "HTTPRoute"):
        found |= {f"opens the proxy to the outside by {kind} {name}": True for name, _ in _named(objects, kind)}
    for name, item in _named(objects, "Ingress"):
        if not at(item, "spec", "tls"):
            found[f"lets calls in without TLS at Ingress {name}"] = True
    for name, item in _named(objects, "HTTPRoute"):
        if any(not text(parent, "sectionName") for parent in items(item, "spec", "parentRefs")):
            found[f"lets calls in at every listener of the Gateway of HTTPRoute {name}"] = True
    for name, item in _named(objects, "ServiceAccount"):
        for key, value in mapping(item, "metadata", "annotations").items():
            if not key.startswith("tidegate.dev/"):
                found[f"lets pods of ServiceAccount {name} be {value} ({key})"] = True
    for name, item in _named(objects, "Role"):
        for rule in items(item, "rules"):
            for resource, verb in product(at(rule, "resources") or (), at(rule, "verbs") or ()):
                found[f"lets whom Role {name} is bound to {verb} {resource}"] = True
    return found


def _allowed_by_definition(tree: Tree) -> Ways:
    found: Ways = {}
    promotion, rollout = mapping(tree, "promotion"), mapping(tree, "rollout")
    who = [*(promotion.get("principals") or ()), *(promotion.get("groups") or ())]
    for name in who or ["the writers of its repositories"]:
        found[f"lets {name} bring in versions of models"] = True
    found["rolls out to so many data planes at once"] = rollout.get("maxParallel", 1)
    for name, dataset in mapping(tree, "datasets").items():
        found |= {f"lets {writer} write the dataset {name}": True for writer in at(dataset, "writers") or ()}
    for name, server in mapping(tree, "servers").items():
        for writer in at(server, "repository", "writers") or ():
            found[f"lets {writer} write the repository of {name}"] = True
    for alert in at(tree, "gate", "alerts", "ignore") or ():
        found[f"leaves the alert {alert} out of its gate"] = True
    return found


def _asked(objects: Sequence[Tree], tree: Tree) -> Ways:
    found: Ways = _asked_by_definition(tree) if tree else {}
    held_to = settings_of(_annotation(objects, guardrails.ANNOTATION))
    if held_to.kind == "production":
        found["is held to production's rules"] = True
    for rule in guardrails.BY_NAME.values():
        if held_to.severities.get(rule.name, rule.severity(held_to.kind)) == "mandatory":
            found[f"stops at the guardrail {rule.name}"] = True
    for name, item in _named(objects, "Namespace"):
        if (level := text(item, "metadata", "labels", "pod-security.kubernetes.io/enforce")) == "restricted":
            found[f"enforces Pod Security {level} in {name}"] = True
    if any(at(item, "data", variable("tls")) == "true" for _, item in _named(objects, "ConfigMap")):
        found["answers HTTPS at the proxy itself"] = True
    for name, item in _named(objects, "PeerAuthentication"):
        if text(item, "spec", "mtls", "mode") == "STRICT":
            found[f"takes callers of the mesh alone by PeerAuthentication {name}"] = True
    for _, item in _named(objects, "PrometheusRule"):
        for each in (each for group in items(item, "spec", "groups") for each in items(group, "rules")):
            if name := text(each, "alert"):
                promised = _PROMISED.search(text(each, "expr"))
                found[f"fires {name} ({text(each, 'labels', 'severity')})"] = float(promised[1]) if promised else True
    return found


def _asked_by_definition(tree: Tree) -> Ways:
    found: Ways = {}
    promotion, gate = mapping(tree, "promotion"), mapping(tree, "gate")
    if source := promotion.get("from"):
        found[f"asks that versions of models served in {source} before"] = True
    if promotion.get("separationOfDuties"):
        found["asks for separation of duties in promotions"] = True
    if hours := promotion.get("soakHours"):
        found["asks for hours of service before a promotion"] = hours
    for key, words in (("probe", "has its gate ask a probe"), ("alerts", "has its gate look for alerts")):
        if key in gate:
            found[words] = True
    found["has its gate hold for seconds"] = gate.get("settleSeconds", 0)
    if canary := at(tree, "rollout", "canary"):
        found[f"sends {canary} ahead as canary"] = True
    found["comes in wave"] = at(tree, "dataPlane", "wave") or 1
    return found


def _lost(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[str]:
    """Yield what protected something that is still there."""
    names = _past(definition_in(after), "server")
    was, now = _encrypted(before), _encrypted(after)
    for server in (names.get(name, name) for name, encrypted in was.items() if encrypted):
        if now.get(server) is False:
            yield f"encrypts gRPC between the proxy and server {server}"
    for kind in ("Ingress", "HTTPRoute", "Service"):
        old, new = (dict(_named(objects, kind)) for objects in (before, after))
        for name in (name for name in old if name in new):
            said, says = (mapping(item, "metadata", "annotations") for item in (old[name], new[name]))
            yield from (
                f"has {key}: {value} at {kind} {name}"
                for key, value in said.items()
                if _PROTECTS.search(key) and says.get(key) != value
            )


def _encrypted(objects: Sequence[Tree]) -> dict[str, bool]:
    return {
        text(server, "name"): any(pool.get("grpcTls") is True for pool in items(server, "pools"))
        for server in items(_file(objects, proxy_process.ROUTING_FILE), "servers")
    }


# ---- who may call what ----


def grants(before: Sequence[Tree], after: Sequence[Tree]) -> list[Grant]:
    """Return who may newly call which models; of a glob that matches none, what it is."""
    names = _past(definitions(before, after)[1], "server")
    served = {(names.get(server, server), model) for server, model in _models(before)}
    had = {right._replace(server=names.get(right.server, right.server)) for right in _granted(before)}
    found: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for right in _granted(after):
        if right not in had and not any(one.covers(right) for one in had):
            found.setdefault((right.who, right.action), {})[right.server, right.model] = None
    return [
        Grant(who, action, listed([_model(*model) for model in models], MOST_MODELS), not served.isdisjoint(models))
        for (who, action), models in found.items()
    ]


def _model(server: str, name: str) -> str:
    return f"{name} of {server}"


def _models(objects: Sequence[Tree]) -> Iterator[tuple[str, str]]:
    table = _file(objects, proxy_process.ROUTING_FILE)
    yield from dict.fromkeys((text(model, "server"), text(model, "name")) for model in items(table, "models"))


def _granted(objects: Sequence[Tree]) -> Iterator[_Right]:
    models = [*_models(objects)]
    for rule in items(_file(objects, proxy_process.ACCESS_FILE), "rules"):
        reached: list[tuple[str, str]] = []
        for server in rule.get("servers") or ():
            for glob in rule.get("models") or ():
                some = [each for each in models if fnmatchcase(each[0], server) and fnmatchcase(each[1], glob)]
                reached += [*some, (server, glob)] if _is_glob(glob) or not some else some
        for kind in ("principal", "group"):
            for name in rule.get(f"{kind}s") or ():
                for action in rule.get("actions") or ():
                    yield from (_Right(kind, name, text(rule, "source"), str(action), *model) for model in reached)


def _is_glob(name: Any) -> bool:
    return any(sign in name for sign in "*?[")


def _is_within(narrow: str, wide: str) -> bool:
    """Say whether a glob names nobody whom another one does not name; in doubt it may."""
    return narrow == wide or (
        not any(sign in wide for sign in "?[") and ("[" not in narrow or wide == "*") and fnmatchcase(narrow, wide)
    )
