"""Eviction policies: Tidegate's own, and others that your image of the eviction policy has."""

from typing import Annotated

from pydantic import Field

from .base import DnsLabel, Named, Without

SHIPPED = ("break-even", "lru-idle", "cost-aware")
"""The policies that the eviction policy's image has by itself."""
PolicyName = Annotated[DnsLabel, Field(json_schema_extra={"examples": [*SHIPPED]})]
_OURS = "is a policy of Tidegate's own"


class EvictionPolicy(Named):
    """An eviction policy of your own: your image eviction-policy has it."""

    name: Annotated[DnsLabel, Without(rf"^({'|'.join(SHIPPED)})$", _OURS)]
    """Its name, which pools say in loading.policy, and which its entry point has."""
