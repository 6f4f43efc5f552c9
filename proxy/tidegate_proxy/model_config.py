"""What is learned of a model from its own configuration: the version that its alias names, whether it has sequences.

A replica that has the model hands the configuration out; the server's kind reads it.
"""

import asyncio
import re
from time import monotonic

from .kinds import ServerKind
from .pools import Pool, ask
from .problems import Kind, Problem

ASK_AGAIN_SECONDS = 5.0
"""Seconds after which a call has the alias asked anew, in the background."""
RETRY_SECONDS = 1.0
"""The same after no answer, and for sequences."""
HOLD_SECONDS = 60.0
"""Seconds for which an alias's answer holds where no newer one can be had; no call gets a version of long ago."""
ANSWER_SECONDS = 5.0
_VERSION = re.compile(r"[1-9][0-9]{0,15}")


class NoConfigurationError(Exception):
    """Says why there is no configuration to read."""


async def configuration(pool: Pool, kind: ServerKind, model: str, seconds: float) -> bytes:
    """Return a model's configuration from a replica that has it loaded; raises NoConfigurationError."""
    replica = None
    if pool.leases is not None:
        if (lease := pool.leases.find(model, monotonic())) is None:
            raise NoConfigurationError("the model is not loaded")
        replica = lease.replica
    try:
        answer = await ask(pool, kind.config_path(model), seconds, replica)
    except Problem as problem:
        raise NoConfigurationError(problem.detail.rstrip(".")) from None
    if answer.status != 200:
        why = f"asked for the model's configuration, the inference server answered {answer.status}"
        raise NoConfigurationError(why)
    return answer.body


class Alias:
    """The alias that stands for a version of one model on one server."""

    __slots__ = ("_ask_at", "_asking", "_holds_until", "_kind", "_model", "_name", "_pool", "_version", "_why")

    def __init__(self, name: str, model: str, pool: Pool, kind: ServerKind) -> None:
        self._name = name
        self._model = model
        self._pool = pool
        self._kind = kind
        self._version: str | None = None
        self._why = "it was not asked yet"
        self._holds_until = 0.0
        self._ask_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    def known(self, now: float) -> str | None:
        """Return the version, if it is known; where that is some seconds ago, it is asked anew in the background."""
        if now >= self._ask_at and self._asking is None:
            self._ask_at = now + RETRY_SECONDS
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._version if now < self._holds_until else None

    async def find(self) -> str:
        """Return the version; calls that come meanwhile wait for the same answer. Raises Problem (busy) without one."""
        version = self.known(monotonic())
        if version is None and self._asking is not None:
            await asyncio.shield(self._asking)
            version = self.known(monotonic())
        if version is None:  # no other version may answer instead
            which = f"Which version of the model {self._model} its alias {self._name} stands for is not known"
            raise Problem(Kind.BUSY, f"{which}: {self._why}.", RETRY_SECONDS)
        return version

    async def _ask(self) -> None:
        try:
            config = await configuration(self._pool, self._kind, self._model, ANSWER_SECONDS)
            parameter, said = self._kind.alias(config, self._name)
            now = monotonic()
            if _VERSION.fullmatch(said):
                self._version, self._holds_until, self._ask_at = said, now + HOLD_SECONDS, now + ASK_AGAIN_SECONDS
            else:
                self._version, self._holds_until = None, 0.0
                self._why = f"the parameter {parameter} of the model's configuration names no version"
        except NoConfigurationError as error:
            self._why = str(error)
        except ValueError:
            self._why = "the model's configuration cannot be read"
        finally:
            self._asking = None


class Sequences:
    """Whether one model on one server keeps sequences."""

    __slots__ = ("_asked_at", "_asking", "_kind", "_model", "_pool", "known")

    def __init__(self, model: str, pool: Pool, kind: ServerKind) -> None:
        self.known: bool | None = None
        """None while it is not known."""
        self._model = model
        self._pool = pool
        self._kind = kind
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def find(self, seconds: float) -> bool | None:
        """Return it; where it cannot be told now, it is asked later again.

        Requests that come meanwhile wait for the same answer: they may be of sequences that have just begun.
        """
        if self.known is None:
            now = monotonic()
            if self._asking is None and now >= self._asked_at + RETRY_SECONDS:
                self._asked_at = now
                self._asking = asyncio.create_task(self._ask(seconds))
            if self._asking is not None:
                await asyncio.shield(self._asking)
        return self.known

    async def _ask(self, seconds: float) -> None:
        try:
            config = await configuration(self._pool, self._kind, self._model, seconds)
            self.known = self._kind.keeps_sequences(config)
        except (NoConfigurationError, ValueError):
            return
        finally:
            self._asking = None
