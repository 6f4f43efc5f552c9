"""Eviction policies: pools load by one that is there, with settings that it takes."""

from collections.abc import Iterator

from ..definition.policies import SHIPPED
from ..definition.pools import OnDemand
from ..load import PathInTree
from ..problems import Problem
from ..stack import Stack
from .references import suggestion, unknown
from .rule import stack_rule


@stack_rule("Pools name eviction policies that exist")
def policies_that_pools_name_exist(stack: Stack) -> Iterator[Problem]:
    """A pool evicts by one of Tidegate's own policies, or by one that evictionPolicies names."""
    known = {*SHIPPED, *(policy.name for policy in stack.platform.eviction_policies)}
    for path, name, loading in _loadings(stack):
        yield from unknown(
            stack.source, (*path, "policy"), f"{name} evicts by an unknown policy", loading.policy, known
        )


@stack_rule("An eviction policy accepts the settings of its pool")
def policies_are_told_settings_that_they_take(stack: Stack) -> Iterator[Problem]:
    """Names and bounds are those that evictionPolicies says; what is misspelt would be refused in the pod only."""
    own = {policy.name: policy for policy in stack.platform.eviction_policies}
    for path, name, loading in _loadings(stack):
        policy = own.get(loading.policy)
        if policy is None and loading.policy not in SHIPPED:
            continue
        for setting, value in loading.policy_settings.items():
            where = (*path, "policySettings", setting)
            taken = {each.name: each for each in policy.settings} if policy else {}
            if setting not in taken:
                what = f'the policy "{loading.policy}" of {name} takes no setting "{setting}"'
                yield stack.source.problem(where, what, do=suggestion(setting, taken))
            elif not taken[setting].takes(value):
                what = f'the policy "{loading.policy}" of {name} cannot have {setting} "{value}"'
                yield stack.source.problem(where, what, do=f"Write {taken[setting].wanted}.")


def _loadings(stack: Stack) -> Iterator[tuple[PathInTree, str, OnDemand]]:
    for path, server, pool in stack.pools():
        if isinstance(pool.loading, OnDemand):
            yield (*path, "loading"), f"{server.name}/{pool.name}", pool.loading
