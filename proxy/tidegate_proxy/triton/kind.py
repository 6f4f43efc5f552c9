"""Triton as one kind of inference server: see `tidegate_proxy.kinds.ServerKind`, which this fulfils."""

import re
from time import monotonic

import msgspec
from tidegate_contracts.triton import ALIAS_PARAMETER

from ..pools import Pool, ask
from ..targets import Target
from ..upstream.request import Answer
from . import paths, predict, sequences

NO_STATISTICS = b'{"model_stats":[]}'
"""What there is of a model that is loaded nowhere."""
LOST = re.compile(rb"unknown model: '[^']*' (is not found|has no available versions|version \d+ is not at ready state)")
"""In Triton's errors: it has not loaded the model, or not any more. (A version that never was "is not found".)"""
LOST_STATUSES = frozenset({400, 404, 503})
"""HTTP statuses with which that is said: by older Tritons, of a model never loaded, and of one that was unloaded."""
LOST_CODES = frozenset({5, 14})
"""gRPC's: NOT_FOUND, UNAVAILABLE."""


class _Value(msgspec.Struct):
    string_value: str = ""


class _Configuration(msgspec.Struct):
    parameters: dict[str, _Value] = {}


_decoder = msgspec.json.Decoder(_Configuration)


class Triton:
    """What the proxy knows of Triton."""

    def understand(self, path: str) -> Target | None:
        """Return what a path asks of a model; None for a path that is not of Triton's protocol."""
        return paths.understand(path)

    def open_body(self, body: bytes | bytearray | memoryview) -> tuple[Target, memoryview]:
        """Return what the envelope of `/predict` asks, and its payload; raises Problem."""
        return predict.open_envelope(body)

    def path(self, target: Target, version: str | None) -> bytes:
        """Return Triton's path."""
        return paths.path(target, version)

    async def look(self, target: Target, pool: Pool, seconds: float, own_bound: bool) -> Answer:
        """Answer whether a model is ready, or its statistics, without loading it; raises Problem."""
        assert pool.leases is not None
        if target.verb == "ready":
            return Answer(200 if await pool.leases.is_ready(target.model) else 400, "text/plain", b"")
        if (replica := pool.leases.warm_at(target.model, monotonic())) is None:
            return Answer(200, "application/json", NO_STATISTICS)
        return await ask(pool, paths.path(target, target.version), seconds, replica, own_bound=own_bound)

    def config_path(self, model: str) -> bytes:
        """Return the path of a model's configuration."""
        return f"/v2/models/{model}/config".encode()

    def alias(self, config: bytes, alias: str) -> tuple[str, str]:
        """Return the parameter of config.pbtxt that is the alias, and its value; raises ValueError.

        Contract with the publisher: an entry of `parameters`, whose key is `ALIAS_PARAMETER` and the alias, and whose
        `string_value` is the number of the version.
        """
        parameter = ALIAS_PARAMETER + alias
        try:
            return parameter, _decoder.decode(config).parameters.get(parameter, _Value()).string_value
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError("it is no configuration") from error

    def keeps_sequences(self, config: bytes) -> bool:
        """Tell whether the model is batched by sequence; raises ValueError."""
        try:
            return "sequence_batching" in msgspec.json.decode(config)
        except (msgspec.MsgspecError, RecursionError, TypeError) as error:
            raise ValueError("it is no configuration") from error

    def sequence_of(self, headers: bytes, body: bytes | bytearray | memoryview, most: int) -> bytes | None:
        """Return the request's `sequence_id`; raises Problem."""
        return sequences.sequence_of(headers, body, most)

    def says_lost(self, status: int, answer: bytes) -> bool:
        """Tell whether Triton says that it does not have the model."""
        return status in LOST_STATUSES and LOST.search(answer) is not None

    def says_lost_over_grpc(self, code: int, headers: bytes) -> bool:
        """Tell the same over gRPC."""
        return code in LOST_CODES and LOST.search(headers) is not None
