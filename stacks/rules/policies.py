"""Eviction policies: pools load by one that is there."""

from collections.abc import Iterator

from ..definition.policies import SHIPPED
from ..definition.pools import OnDemand
from ..problems import Problem
from ..stack import Stack
from .references import unknown
from .rule import stack_rule


@stack_rule("Pools name eviction policies that exist")
def policies_that_pools_name_exist(stack: Stack) -> Iterator[Problem]:
    """A pool evicts by one of Tidegate's own policies, or by one that evictionPolicies names."""
    known = {*SHIPPED, *(policy.name for policy in stack.platform.eviction_policies)}
    for path, server, pool in stack.pools():
        if isinstance(pool.loading, OnDemand):
            what = f"{server.name}/{pool.name} evicts by an unknown policy"
            yield from unknown(stack.source, (*path, "loading", "policy"), what, pool.loading.policy, known)
