"""Access: the table that the proxy follows."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_contracts import proxy_process

from ..objects import Environment, items, mapping, mappings, text
from ..rule import Breach, guardrail

_SET = re.compile(r"\[!?\]?[^\]]*\]")  # A wildcard for one of several characters, as fnmatch has it.


@guardrail("Name the principals or groups.")
def access_rules_name_their_callers(environment: Environment) -> Iterator[Breach]:
    """No access rule is for every principal or every group.

    A rule for everybody is no rule: every holder of a token of the identity provider may use it. Globs that name
    somebody, such as team-* or *@example.com, are allowed; those that name nobody, such as * or *@*, are not.
    """
    for item, rule in _rules(environment):
        for key in ("principals", "groups"):
            if _any(rule.get(key)):
                yield Breach(item, f'access rule "{rule.get("name")}" is for all {key}')


@guardrail("Name servers or models in proxy.access; whoever really may use all that there will ever be gets a waiver.")
def access_rules_name_servers_or_models(environment: Environment) -> Iterator[Breach]:
    """No access rule is for every model of every server: it names servers, models, or both.

    With wildcards for both, a model or a server that is added later is open to its callers the moment it is there.
    All models of a server that is named are no such wildcard, and neither is one model on all servers.
    """
    for item, rule in _rules(environment):
        if _any(rule.get("servers")) and _any(rule.get("models")):
            yield Breach(item, f'access rule "{rule.get("name")}" is for every model of every server')


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
    """Say whether one of the globs names nothing: no letter and no digit stands in it outside of its wildcards."""
    return any(isinstance(glob, str) and not any(map(str.isalnum, _SET.sub("", glob))) for glob in items(globs))
