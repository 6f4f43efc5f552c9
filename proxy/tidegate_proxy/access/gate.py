"""The one decision about every call: who is it, may it, and is it not too much."""

from dataclasses import dataclass
from typing import Protocol

from ..paths import Action
from ..routes import Route
from .identity import Credential, Identity
from .limits import Bucket


@dataclass(slots=True)
class Grant:
    """Leave for one principal to do one thing with one model, for as long as its identity holds."""

    identity: Identity
    route: Route
    bucket: Bucket | None
    """What counts its requests; None for what is not limited (inspecting)."""


class Gate(Protocol):
    """What the door asks."""

    def known(self, credential: Credential, server: str | None, model: str, action: Action) -> Grant | None:
        """Return a grant that was found before and still holds; None when it must be asked for."""

    async def ask(self, credential: Credential, server: str | None, model: str, action: Action) -> Grant:
        """Return a grant; raises Problem (unauthenticated, denied, unknown)."""

    async def identify(self, credential: Credential) -> Identity:
        """Return who a caller is; raises Problem (unauthenticated)."""

    def permits(self, identity: Identity, route: Route, action: Action) -> bool:
        """Tell whether a rule grants it."""
