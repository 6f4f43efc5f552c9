"""The policies there are: those built in, and those that installed packages bring."""

from collections.abc import Mapping
from importlib import metadata
from typing import Final

from .built_in import COST_AWARE, LRU, LRU_IDLE, PINNED
from .policy import Policy

GROUP: Final = "tidegate_eviction.policies"
"""Entry points of this group are `Policy` objects; the entry's name is the policy's."""
BUILT_IN: Final[Mapping[str, Policy]] = {policy.name: policy for policy in (LRU_IDLE, LRU, COST_AWARE, PINNED)}


def names() -> list[str]:
    """Return the names of all policies, the built-in ones first."""
    return [*BUILT_IN, *sorted({entry.name for entry in metadata.entry_points(group=GROUP)} - set(BUILT_IN))]


def find(name: str) -> Policy:
    """Return a policy by its name; ValueError, in one sentence, if there is none or it cannot be used."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    entries = [entry for entry in metadata.entry_points(group=GROUP) if entry.name == name]
    if not entries:
        raise ValueError(
            f'there is no policy "{name}": built in are {", ".join(BUILT_IN)}; others come as entry points of the '
            f"group {GROUP}, from packages installed beside the policy"
        )
    entry = entries[0]
    package = entry.dist.name if entry.dist else "an unnamed package"
    if len(entries) > 1:
        raise ValueError(f'there are {len(entries)} policies "{name}": uninstall all packages but one that bring it')
    try:
        policy = entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise ValueError(f'policy "{name}" of {package} cannot be imported from {entry.value}: {error}') from error
    if not isinstance(policy, Policy) or policy.name != name:
        raise ValueError(f'policy "{name}" of {package}: {entry.value} is no Policy with this name')
    return policy
