"""Access: the table that the proxy follows, and what the cluster's own API is told."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_contracts import proxy_process

from ..dynamo import is_discovery, others_bound
from ..objects import Environment, at, items, mapping, mappings, name_of, text
from ..rule import Breach, guardrail

_READ = ("get", "list", "watch")
_SENSITIVE = {"secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"}
"""What must not even be read: to get pods/exec is to run a command there."""
_EVERYBODY = re.compile(r"system:(anonymous|authenticated|unauthenticated|serviceaccounts(:|$))")
_SET = re.compile(r"\[!?\]?[^\]]*\]")  # A wildcard for one of several characters, as fnmatch has it.


@guardrail("No access rule is for every principal or every group", "Name the principals or groups.")
def access_rules_name_their_callers(environment: Environment) -> Iterator[Breach]:
    """A rule for all principals admits every holder of a token of the identity provider.

    Globs that name some principals, such as team-* or *@example.com, are allowed; * and *@* are not.
    """
    for item, rule in _rules(environment):
        for key in ("principals", "groups"):
            if _any(rule.get(key)):
                yield Breach(item, f'access rule "{rule.get("name")}" is for all {key}')


@guardrail(
    "Every access rule names servers, models, or both",
    "Name servers or models in proxy.access. For callers that may use all models, also later ones, set a waiver.",
)
def access_rules_name_servers_or_models(environment: Environment) -> Iterator[Breach]:
    """With wildcards for both, a model or a server that is added later is open to its callers the moment it is there.

    All models of a server that is named are no such wildcard, and neither is one model on all servers.
    """
    for item, rule in _rules(environment):
        if _any(rule.get("servers")) and _any(rule.get("models")):
            yield Breach(item, f'access rule "{rule.get("name")}" is for every model of every server')


@guardrail(
    "Roles grant reading only, and no Secrets; every binding is of such a role, and names its subjects",
    "Let a Role get, list and watch what it names, no Secrets among it; bind that, or the ClusterRole view.",
    shared="mandatory",
    local="advisory",
)
def roles_let_only_read(environment: Environment) -> Iterator[Breach]:
    """No part of Tidegate asks the cluster's API but Dynamo, where its frontends are shared.

    Its pods, and no others, may have the one Role by which they tell each other what workers serve. To create pods, or
    to get into one, is to be every account of the namespace; a wildcard holds what is added later; what a role from
    elsewhere grants is not seen.
    """
    roles = environment.of_kind("Role", "ClusterRole")
    for role in roles:
        if role.get("aggregationRule"):
            yield Breach(role, "it is made of other roles, which are not seen here")
        if is_discovery(role):
            continue
        for what in dict.fromkeys(what for rule in mappings(role.get("rules")) for what in _more_than_read(rule)):
            yield Breach(role, f"it grants {what}")
    ours = {(role.get("kind"), name_of(role)) for role in roles} | {("ClusterRole", "view")}
    discovery = {("Role", name_of(role)) for role in roles if is_discovery(role)}
    for binding in environment.of_kind("RoleBinding", "ClusterRoleBinding"):
        kind, name = (at(binding, "roleRef", key) for key in ("kind", "name"))
        if (kind, name) not in ours:
            yield Breach(binding, f"it grants {kind} {name}, which the stack does not hold")
        for other in others_bound(environment, binding) if (kind, name) in discovery else ():
            yield Breach(
                binding,
                f"it lets {other or 'an unnamed account'}, which is no worker, write what Dynamo's workers serve",
            )
        for subject in mappings(binding.get("subjects")):
            if _EVERYBODY.match(text(subject.get("name"))):
                yield Breach(binding, f"it is for a group of all accounts: {subject['name']}")


def _more_than_read(rule: Mapping[str, Any]) -> Iterator[str]:
    for verb in items(rule.get("verbs")):
        if verb not in _READ:
            yield "all verbs" if verb == "*" else f"{verb}"
    for resource in items(rule.get("resources")):
        if "*" in text(resource) or resource in _SENSITIVE:
            yield "all resources" if resource == "*" else f"{resource}"
    if "*" in items(rule.get("apiGroups")):
        yield "resources of all groups"
    yield from (f"the address {url}" for url in items(rule.get("nonResourceURLs")) if "*" in text(url))


def _rules(environment: Environment) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for item, table in access_tables(environment):
        for rule in mappings(table.get("rules")):
            yield item, rule


def access_tables(environment: Environment) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the access table in each ConfigMap that has one, behind the ConfigMap."""
    for item in environment.of_kind("ConfigMap"):
        table = mapping(item.get("data")).get(proxy_process.ACCESS_FILE)
        if table is None:
            continue
        try:
            tree = json.loads(text(table))
        except (ValueError, RecursionError):
            continue  # the proxy refuses such a table: it grants nothing
        yield item, mapping(tree)


def _any(globs: Any) -> bool:
    """Say whether one of the globs names nothing: no letter and no digit stands in it outside of its wildcards."""
    return any(isinstance(glob, str) and not any(map(str.isalnum, _SET.sub("", glob))) for glob in items(globs))
