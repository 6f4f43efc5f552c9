"""Rules of effect: settings that do nothing, and names that mislead."""

import re
from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from policies.guardrails import BY_NAME
from policies.guardrails.settings import Kind

from ..definition import Header
from ..definition.base import Section
from ..definition.openai import OpenaiServer
from ..definition.pools import OnDemand
from ..load import Document, PathInTree
from ..problems import Position, Problem, listed
from ..stack import Definition, Stack
from .rule import definition_rule, header_rule, stack_rule

_PRODUCTION = re.compile(r"(^|-)(prod|production|prd|live)([0-9]*)(-|$)")
_NOT_PRODUCTION = re.compile(r"(^|-)(pre|non|not|no|dev|test|stage|staging|sandbox|local|lab|mock|like)(-|$)")


@header_rule("An environment that is named production is production", "advisory")
def production_is_production_by_name(header: Header, document: Document) -> Iterator[Problem]:
    """Without `production: true`, guardrails that are mandatory in production are warnings, or do not apply."""
    for index, environment in enumerate(header.environments):
        names = [environment.name, *([environment.namespace] if environment.namespace else [])]
        is_named = any(_PRODUCTION.search(name) and not _NOT_PRODUCTION.search(name) for name in names)
        if is_named and not environment.production and not environment.local:
            what = f'environment "{environment.name}" is named like production, but production is not true'
            why = "Production's guardrails are not mandatory there, and it may share writable datasets with others."
            yield document.problem(("environments", index), what, why, "Set production: true, or rename it.")


@stack_rule("The proxy has two replicas or more in production", "advisory")
def the_proxy_is_redundant_in_production(stack: Stack) -> Iterator[Problem]:
    """With one replica, a node drain or a crash stops all requests until the next one is ready."""
    proxy = stack.platform.proxy
    least = proxy.autoscaling.min if proxy.autoscaling else proxy.replicas
    if stack.environment.production and least == 1:
        key = ("autoscaling", "min") if proxy.autoscaling else ("replicas",)
        what = "the proxy has one replica in production"
        yield stack.source.problem(("proxy", *key), what, do="Set it to 2 or more.")


@stack_rule("A guardrail of production is lowered only by a waiver", "advisory")
def production_lowers_guardrails_by_waivers(stack: Stack) -> Iterator[Problem]:
    """A waiver names an owner, a reason and a last day. A severity has none of them, and covers later breaches too."""
    kind: Kind = "production"
    lowered = [
        name
        for name, severity in stack.platform.guardrails.severities.items()
        # `tidegate up` on a cluster requires digests anyway.
        if severity == "advisory"
        and BY_NAME[name].severity(kind) == "mandatory"
        and name != "images-are-pinned-by-digest"
    ]
    if stack.environment.production and lowered:
        what = f"severities makes {listed(lowered)} advisory in production, without an owner, a reason and an end"
        do = "Add a waiver for each under guardrails.waivers (rule, object, owner, reason, until) instead."
        yield stack.source.problem(("guardrails", "severities"), what, do=do)


@definition_rule("Images, datasets and eviction policies are used", "advisory")
def what_is_defined_is_used(definition: Definition) -> Iterator[Problem]:
    used: set[tuple[str, str]] = set()
    for stack in definition.stacks:
        for _, server, pool in stack.pools():
            used |= {("images", server.image), ("datasets", getattr(server.repository, "dataset", ""))}
            if isinstance(pool.loading, OnDemand):
                used |= {("eviction_policies", pool.loading.policy), ("images", "eviction-policy")}
        used.add(("images", "proxy"))
    seen: set[tuple[str, str]] = set()
    for stack in definition.stacks:
        for key in ("images", "datasets", "eviction_policies"):
            for index, item in enumerate(getattr(stack.platform, key)):
                if (key, item.name) not in used | seen and item.name not in ("proxy", "eviction-policy"):
                    seen.add((key, item.name))
                    what = f'no server of any stack uses "{item.name}" under {to_camel(key)}'
                    do = "Remove it, or name it where a server should use it."
                    yield stack.source.problem((to_camel(key), index), what, do=do)


@definition_rule("Every setting has an effect in some stack", "advisory")
def settings_have_an_effect(definition: Definition) -> Iterator[Problem]:
    """If another setting disables a setting in every stack, one of them is a mistake."""
    found: dict[Position | str | None, Problem] = {}
    effective: set[Position | str | None] = set()
    for stack in definition.stacks:
        for path, section, keys, is_effective, because, do in _dependent(stack):
            for key in keys.split():
                if key in section.model_fields_set:
                    name = type(section).model_fields[key].alias or key
                    problem = stack.source.problem((*path, name), f"{name} has no effect: {because}", do=do)
                    found.setdefault(problem.where, problem)
                    effective |= {problem.where} if is_effective else set()
    yield from (problem for where, problem in found.items() if where not in effective)


def _dependent(stack: Stack) -> Iterator[tuple[PathInTree, Section, str, bool, str, str]]:
    """Yield each section with dependent keys: its path, the keys, whether they have an effect, why not, the remedy."""
    proxy, monitoring, domino = stack.platform.proxy, stack.platform.monitoring, stack.platform.domino
    yield (
        ("proxy", "rateLimit"),
        proxy.rate_limit,
        "tokens_per_minute",
        any(isinstance(server, OpenaiServer) for server in stack.platform.servers),
        "no server is of kind openai, and the proxy counts only their tokens",
        "Remove it.",
    )
    rules = "rules, objectives and runbooks need the PrometheusRule objects of monitoring.operator and monitoring.rules"
    do = "Set monitoring.operator to true, or remove it."
    yield ("monitoring",), monitoring, "objectives runbooks", monitoring.operator and monitoring.rules, rules, do
    because = "monitoring.operator is not true, so Tidegate creates no PodMonitor and no PrometheusRule"
    yield ("monitoring",), monitoring, "interval_seconds labels rules", monitoring.operator, because, do
    because = "monitoring.dashboards is not true"
    do = "Set monitoring.dashboards to true, or remove it."
    yield ("monitoring",), monitoring, "dashboard_labels", monitoring.dashboards, because, do
    if domino:
        because = "proxy.auth.dominoPrincipal is not true, so the proxy never calls Domino"
        do = "Set proxy.auth.dominoPrincipal to true, or remove it."
        yield ("domino",), domino, "principal_url", proxy.auth.domino_principal, because, do
    because = "proxy.auth has no issuer and no dominoPrincipal whose certificates it could verify"
    is_used = bool(proxy.auth.oidc or proxy.auth.domino_principal)
    yield ("proxy", "auth"), proxy.auth, "authorities", is_used, because, "Add an issuer, or remove it."
    for path, server, pool in stack.pools():
        evicts = isinstance(pool.loading, OnDemand)
        because = f"{server.name}/{pool.name} preloads its models, and never evicts"
        do = "Remove it. In an overlay, set `policyResources: null`."
        yield path, pool, "policy_resources", evicts, because, do
        for model in stack.models_of(server, pool):
            do = "Remove it, or put the model on an on-demand pool."
            yield stack.path_of(model), model, "pinned", evicts, because, do
            because, do = ("a pinned model always stays in memory", "Remove it.") if evicts else (because, do)
            yield stack.path_of(model), model, "idle_seconds", evicts and not model.pinned, because, do
    pools = ((path, pool.autoscaling) for path, _, pool in stack.pools())
    for path, scaling in ((("proxy",), proxy.autoscaling), *pools):
        if scaling:
            do = f"Raise max, or set replicas: {scaling.min} instead of autoscaling."
            because = "it is equal to min, so the number of replicas never changes"
            yield (*path, "autoscaling"), scaling, "max", scaling.min != scaling.max, because, do
