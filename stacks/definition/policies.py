"""Eviction policies: Tidegate's, and custom ones of your eviction-policy image."""

from typing import Annotated

from pydantic import Field

from .base import DnsLabel, Named, Without

SHIPPED = ("break-even", "lru-idle", "cost-aware")
"""The policies of Tidegate's eviction-policy image."""
PolicyName = Annotated[DnsLabel, Field(json_schema_extra={"examples": [*SHIPPED]})]
_OURS = "is one of Tidegate's policies: remove it, or set another name"


class EvictionPolicy(Named):
    """Custom eviction policies, which your image eviction-policy contains."""

    name: Annotated[DnsLabel, Without(rf"^({'|'.join(SHIPPED)})$", _OURS)]
    """Name in loading.policy, and of its entry point."""
