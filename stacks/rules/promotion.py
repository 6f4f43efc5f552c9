"""Rules of promotion: a version can reach each environment, and the people who promote it have the access they need."""

from collections.abc import Iterator

from ..definition import Header
from ..load import Document
from ..problems import Problem, listed
from ..stack import Stack
from .references import matches, suggestion
from .rule import header_rule, stack_rule


@header_rule("`promotion.from` names another environment")
def promotions_come_from_other_environments(header: Header, document: Document) -> Iterator[Problem]:
    names = [environment.name for environment in header.environments]
    hosted = {name for plane in header.data_planes for name in plane.environments}
    for index, environment in enumerate(header.environments):
        source = environment.promotion.source
        if source is not None and (source == environment.name or source not in names):
            what = "itself" if source == environment.name else f'an unknown environment, "{source}"'
            what = f'environment "{environment.name}" takes versions from {what}'
            do = suggestion(source, [name for name in names if name != environment.name])
            do = f"{do} Without from, it takes versions that no environment has served."
            yield document.problem(("environments", index, "promotion", "from"), what, do=do, at="value")
        elif source is not None and source not in hosted:
            where = ("environments", index, "promotion", "from")
            what = f'environment "{environment.name}" takes versions from "{source}", which is on no data plane'
            why = "No one can deploy there, so no one can promote from there."
            do = f'Add "{source}" to the environments of a data plane, or set from to another environment.'
            yield document.problem(where, what, why, do, at="value", severity="advisory")


@header_rule("Promotions do not form a circle")
def promotions_begin_somewhere(header: Header, document: Document) -> Iterator[Problem]:
    """Environments that take versions from each other in a circle never get a version."""
    sources = {environment.name: environment.promotion.source for environment in header.environments}
    reported: set[str] = set()
    for index, environment in enumerate(header.environments):
        circle = [environment.name]
        while (source := sources.get(circle[-1])) is not None and source not in circle:
            circle.append(source)
        if source == environment.name and len(circle) > 1 and not reported.intersection(circle):
            reported.update(circle)
            what = f"promotions form a circle: {' ← '.join([*circle, environment.name])}"
            why = "Each environment waits for the other, so none ever gets a version."
            do = "Remove from in one of them, so that it takes registered versions."
            yield document.problem(("environments", index, "promotion", "from"), what, why=why, do=do, at="value")


@stack_rule("An issuer's tokens contain the groups that may promote", "advisory")
def groups_that_promote_are_told_by_an_issuer(stack: Stack) -> Iterator[Problem]:
    """Only an issuer's tokens contain groups. Callers with API keys, or of Domino, have none."""
    promotion = stack.environment.promotion
    if promotion.groups and not promotion.principals and not stack.platform.proxy.auth.oidc:
        what = (
            f'only {", ".join(promotion.groups)} may promote to environment "{stack.environment.name}", but its proxy '
            "trusts no source that has groups"
        )
        why = "Only tokens of an issuer contain groups, and proxy.auth.oidc has no issuer."
        do = "Add an issuer, or set principals in the environment's promotion."
        yield stack.source.problem(("proxy", "auth"), what, why=why, do=do)


@stack_rule("Those who may promote have an access rule", "advisory")
def those_who_promote_may_look_and_call(stack: Stack) -> Iterator[Problem]:
    """Before a version gets traffic, `tidegate promote` checks that it is ready, and sends it a request."""
    promotion, barred = stack.environment.promotion, dict[str, list[str]]()
    for action in ("inspect", "infer"):
        rules = [rule for rule in stack.platform.proxy.access if action in rule.actions]
        kept_out = [
            name for name in promotion.principals if not matches(name, [g for r in rules for g in r.principals])
        ]
        kept_out += [name for name in promotion.groups if not matches(name, [g for r in rules for g in r.groups])]
        if kept_out:
            barred.setdefault(", ".join(kept_out), []).append(action)
    why = "`tidegate promote` checks whether a version is ready (inspect), and sends the golden request (infer)."
    for who, actions in barred.items():
        what = f'{who} may promote to environment "{stack.environment.name}"'
        what = f"{what}, but no access rule lets them {' or '.join(actions)} there"
        do = f"Add an access rule that names them, with {' and '.join(actions)} in its actions."
        yield stack.source.problem(("proxy", "access"), what, why, do)
    if barred or not (promotion.principals or promotion.groups):
        return
    names = {*promotion.principals, *promotion.groups}
    rules = [
        rule
        for rule in stack.platform.proxy.access
        if any(matches(name, [*rule.principals, *rule.groups]) for name in names)
    ]
    missed: dict[str, list[str]] = {}
    for model in stack.platform.models:
        theirs = [rule for rule in rules if matches(model.server, rule.servers) and matches(model.name, rule.models)]
        if {"infer", "inspect"} - {action for rule in theirs for action in rule.actions}:
            missed.setdefault(model.server, []).append(model.name)
    if missed:
        models = ", and ".join(f"{listed(names, most=5)} of {server}" for server, names in missed.items())
        what = f'no one who may promote to environment "{stack.environment.name}" may inspect and call {models}'
        do = f"Add {listed(missed)} to the servers of their access rule, with actions: [infer, inspect]."
        yield stack.source.problem(("proxy", "access"), what, why, do)
