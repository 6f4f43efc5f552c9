"""Conditions of promoting a version of a model to an environment. The client checks them, not the cluster."""

from typing import Annotated, ClassVar

from pydantic import Field

from .base import Condition, Conditional, DnsLabel, Text, Without

ExactName = Annotated[Text, Without(r"[*?]", "is a glob, but promotion needs exact names: set each name, or a group")]


_WHERE = "soakHours counts hours of service in another environment: set from"


class Promotion(Conditional):
    """Conditions for deploying and promoting versions of models to the environment. They are not access control:
    restrict write permissions on the repository too."""

    conditions: ClassVar = (
        Condition("hours_of_service_are_counted_somewhere", _WHERE, needs=("from",), when={"soakHours": ()}),
    )
    source: DnsLabel | None = Field(default=None, alias="from")
    """Environment that must have had the version. The default is any registered version."""
    principals: tuple[ExactName, ...] = ()
    """Principals that may deploy, promote, roll back and remove versions. No globs."""
    groups: tuple[ExactName, ...] = ()
    """Groups that may. Without principals and groups, the writers of the server's repository may, or else all
    callers."""
    separation_of_duties: bool = False
    """Whether the person who registered a version must not promote it."""
    soak_hours: Annotated[float, Field(ge=0.1, le=8760)] | None = None
    """Hours that a version must have served in `from` without an error."""
