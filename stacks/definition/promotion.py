"""What must hold before a version of a model comes into an environment: the client's part, not the cluster's."""

from typing import Annotated, ClassVar

from pydantic import Field

from .base import Condition, Conditional, DnsLabel, Text, Without

ExactName = Annotated[
    Text, Without(r"[*?]", "is a glob, and promotion takes names as they are: name each, or a group that has them")
]


_WHERE = "soakHours counts hours of service in another environment: name it in from"


class Promotion(Conditional):
    """Who may bring versions of models into the environment, and what they must have been through before.

    The client keeps these rules for people who mean well; others are kept out of a repository by its own
    permissions.
    """

    conditions: ClassVar = (
        Condition("hours_of_service_are_counted_somewhere", _WHERE, needs=("from",), when={"soakHours": ()}),
    )
    source: DnsLabel | None = Field(default=None, alias="from")
    """Environment in which a version must have been deployed before; without it, whatever is registered will do."""
    principals: tuple[ExactName, ...] = ()
    """Callers that may, by name: as the environment's proxy knows them. No globs."""
    groups: tuple[ExactName, ...] = ()
    """Groups whose members may, as the tokens of its issuers tell them. No globs. Where neither principals nor groups
    are named, the writers of the server's repository may."""
    separation_of_duties: bool = False
    """Whether the person that registered a version must leave it to somebody else to bring it in."""
    soak_hours: Annotated[float, Field(ge=0.1, le=8760)] | None = None
    """Hours that a version must have served in that environment without an error; none are asked for without it."""
