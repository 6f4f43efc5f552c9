"""Access: the access table of the proxy, and Kubernetes roles and bindings."""

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
"""Resources that a role must not even read: `get` on pods/exec can run a command in a pod."""
_ALL_ACCOUNTS = re.compile(r"system:(anonymous|authenticated|unauthenticated|serviceaccounts(:|$))")
_SET = re.compile(r"\[!?\]?[^\]]*\]")  # A wildcard for one of several characters, as fnmatch has it.


@guardrail("No access rule is for every principal or every group", "Name the principals or groups.")
def access_rules_name_their_callers(environment: Environment) -> Iterator[Breach]:
    """A rule for all principals admits every holder of a token. Globs such as team-* or *@example.com are allowed, but
    * and *@* are not."""
    for item, rule in _rules(environment):
        for key in ("principals", "groups"):
            if _any(rule.get(key)):
                yield Breach(item, f'access rule "{rule.get("name")}" is for all {key}')


@guardrail(
    "Every access rule names servers, models, or both", "Name servers or models in proxy.access, or add a waiver."
)
def access_rules_name_servers_or_models(environment: Environment) -> Iterator[Breach]:
    """With wildcards for both, callers can use every model that someone adds. A wildcard for one of them is allowed."""
    for item, rule in _rules(environment):
        if _any(rule.get("servers")) and _any(rule.get("models")):
            yield Breach(item, f'access rule "{rule.get("name")}" is for every model of every server')


@guardrail(
    "Roles grant read access only, without Secrets, and bindings grant only such roles to named subjects",
    "Grant only get, list and watch on named resources, without Secrets. Bind such a Role or the ClusterRole view, "
    "or add a waiver.",
    shared="mandatory",
    local="advisory",
)
def roles_let_only_read(environment: Environment) -> Iterator[Breach]:
    """A user who can create pods, or run commands in them, can act as every service account there.

    The check cannot see what roles outside the stack grant. Only Dynamo pods with shared frontends may have one more
    Role, to find workers.
    """
    roles = environment.of_kind("Role", "ClusterRole")
    for role in roles:
        if role.get("aggregationRule"):
            yield Breach(role, "it aggregates other roles, which the check cannot see")
        if is_discovery(role):
            continue
        for what in dict.fromkeys(what for rule in mappings(role.get("rules")) for what in _more_than_read(rule)):
            yield Breach(role, f"it grants {what}")
    ours = {(role.get("kind"), name_of(role)) for role in roles} | {("ClusterRole", "view")}
    discovery = {("Role", name_of(role)) for role in roles if is_discovery(role)}
    for binding in environment.of_kind("RoleBinding", "ClusterRoleBinding"):
        kind, name = (at(binding, "roleRef", key) for key in ("kind", "name"))
        if (kind, name) not in ours:
            yield Breach(binding, f"it grants {kind} {name}, which is not in the stack")
        for other in others_bound(environment, binding) if (kind, name) in discovery else ():
            yield Breach(
                binding,
                f"it lets {other or 'an unnamed account'}, which is not a Dynamo worker, write the worker registry",
            )
        for subject in mappings(binding.get("subjects")):
            if _ALL_ACCOUNTS.match(text(subject.get("name"))):
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
            continue  # The proxy refuses such a table, so it grants nothing.
        yield item, mapping(tree)


def _any(globs: Any) -> bool:
    """Return whether one of the globs matches any name: it has no letter and no digit outside its wildcards."""
    return any(isinstance(glob, str) and not any(map(str.isalnum, _SET.sub("", glob))) for glob in items(globs))
