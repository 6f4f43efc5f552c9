"""Which version a model's alias stands for: its own configuration says so, and whoever publishes it writes that.

Contract with the publisher: an entry of `parameters` in the model's config.pbtxt, whose key is `ALIAS_PARAMETER` and
the alias, and whose value's `string_value` is the number of the version. Triton hands it out with the configuration.
"""

import asyncio
import re
from time import monotonic

import msgspec
from tidegate_contracts.triton import ALIAS_PARAMETER

from .pools import Pool, ask
from .problems import Kind, Problem

ASK_AGAIN_SECONDS = 5.0
"""Seconds after which a call has it asked anew, in the background."""
RETRY_SECONDS = 1.0
"""The same after no answer."""
HOLD_SECONDS = 60.0
"""Seconds for which an answer holds where no newer one can be had; nobody gets a version of long ago."""
ANSWER_SECONDS = 5.0
_VERSION = re.compile(r"[1-9][0-9]{0,15}")


class _Value(msgspec.Struct):
    string_value: str = ""


class _Configuration(msgspec.Struct):
    parameters: dict[str, _Value] = {}


_decoder = msgspec.json.Decoder(_Configuration)


class Alias:
    """Of one model, on one server."""

    __slots__ = ("_ask_at", "_asking", "_holds_until", "_model", "_name", "_pool", "_version", "_why")

    def __init__(self, name: str, model: str, pool: Pool) -> None:
        self._name = name
        self._model = model
        self._pool = pool
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
        """Return the version; who asks meanwhile waits for the same answer. Raises Problem (busy) without one."""
        version = self.known(monotonic())
        if version is None and self._asking is not None:
            await asyncio.shield(self._asking)
            version = self.known(monotonic())
        if version is None:
            raise self.unknown()
        return version

    def unknown(self) -> Problem:
        """Return what a caller is told while it is not known: no other version may answer instead."""
        which = f"Which version of the model {self._model} its alias {self._name} stands for is not known"
        return Problem(Kind.BUSY, f"{which}: {self._why}.", RETRY_SECONDS)

    async def _ask(self) -> None:
        replica = None
        try:
            if (leases := self._pool.leases) is not None:
                if (lease := leases.find(self._model, monotonic())) is None:
                    self._why = "the model is not loaded"
                    return
                replica = lease.replica
            answer = await ask(self._pool, f"/v2/models/{self._model}/config".encode(), ANSWER_SECONDS, replica)
            if answer.status != 200:
                self._why = f"asked for the model's configuration, the inference server answered {answer.status}"
                return
            self._learn(
                _decoder.decode(answer.body).parameters.get(ALIAS_PARAMETER + self._name, _Value()).string_value
            )
        except Problem as problem:
            self._why = problem.detail.rstrip(".")
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            self._why = "the model's configuration cannot be read"
        finally:
            self._asking = None

    def _learn(self, said: str) -> None:
        now = monotonic()
        if _VERSION.fullmatch(said):
            self._version, self._holds_until, self._ask_at = said, now + HOLD_SECONDS, now + ASK_AGAIN_SECONDS
        else:
            self._version, self._holds_until = None, 0.0
            self._why = f"the parameter {ALIAS_PARAMETER}{self._name} of the model's configuration names no version"
