"""Access: the table that the proxy follows."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_contracts import proxy_process

from ..findings import Breach
from ..objects import Environment, items, mapping, mappings, text


def access_rules_name_their_callers(environment: Environment) -> Iterator[Breach]:
    """No access rule is for every principal or every group.

    A rule for everybody is no rule: whoever gets any token of the identity provider may use it.
    """
    for item, rule in _rules(environment):
        for key in ("principals", "groups"):
            if _any(rule.get(key)):
                yield Breach(item, f'access rule "{rule.get("name")}" is for all {key}')


def access_rules_name_servers_or_models(environment: Environment) -> Iterator[Breach]:
    """An access rule that lets its callers use models names servers, models, or both.

    With wildcards for both, a model that is added later is open to them the moment it is there.
    """
    for item, rule in _rules(environment):
        if "infer" in items(rule.get("actions")) and _any(rule.get("servers")) and _any(rule.get("models")):
            yield Breach(item, f'access rule "{rule.get("name")}" lets its callers use every model of every server')


def _rules(environment: Environment) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for item in environment.of_kind("ConfigMap"):
        table = mapping(item.get("data")).get(proxy_process.ACCESS_FILE)
        if table is None:
            continue
        try:
            tree = json.loads(text(table))
        except (ValueError, RecursionError):
            continue  # the proxy refuses such a table: it grants nothing
        for rule in mappings(mapping(tree).get("rules")):
            yield item, rule


def _any(globs: Any) -> bool:
    """Say whether one of the globs matches any name."""
    return any(isinstance(glob, str) and not glob.strip("*?") for glob in items(globs))
