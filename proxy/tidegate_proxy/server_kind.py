"""The interface of a kind of inference server, with defaults for what most kinds do not need."""

from collections.abc import Collection

from .bodies import Bytes, OfVersion, Unpacked
from .openai.usage import Usage
from .pools import Pool
from .problems import Problem
from .targets import Target
from .upstream.load_watch import IndexQuestion
from .upstream.replica import Replica
from .upstream.request import Answer


class ServerKind:
    """The protocol of a kind of inference server: how to send requests, and how to read responses."""

    root: str  # Beginning of its protocol's addresses. Problems below it have the protocol's form.
    live_path: bytes  # A replica returns 200 here while it is alive, whatever it loads.
    index: IndexQuestion | None = None
    """How to query a replica that loads its models by itself for failed loads. None if that is impossible."""
    speaks_v2 = False
    """Whether its servers also speak gRPC and have metadata of servers, as in KServe v2."""
    usage_of: type[Usage] | None = None  # Reads a call's tokens. None if servers of this kind report none.

    def parse_path(self, path: str) -> Target | None:
        """Return the target of a path. Return None for a path of another protocol."""
        raise NotImplementedError

    def open_body(self, target: Target, body: Bytes) -> tuple[Target, OfVersion | Bytes]:
        """Return the target in the body of a target that is `in_body`, and the body to send. Raises Problem. The latter
        is a function if the body depends on the version."""
        raise NotImplementedError

    def version_name(self, _model: str, _version: str) -> str | None:
        """Return the name by which callers name a version of a model, if a request has no other field for it."""
        return None

    def serves(self, _config: bytes) -> Collection[str] | None:
        """Return the names of the models that a replica serves, from its response at `config_path`. Raises ValueError.
        Return None if that response is about one model."""
        return None

    def path(self, target: Target, version: str | None) -> bytes:
        """Return the path at the server. With version None, the server chooses."""
        raise NotImplementedError

    async def answer_without_lease(self, target: Target, pool: Pool, seconds: float, own_bound: bool) -> Answer:
        """Return the response to a target that `needs_no_lease`, if models are loaded on demand. Raises Problem.
        `own_bound`: `seconds` is the proxy's own timeout, and not a caller's shorter one."""
        raise NotImplementedError

    def config_path(self, model: str) -> bytes:
        raise NotImplementedError

    def alias(self, _config: bytes, _alias: str) -> tuple[str, str]:
        """Return the name and the value of an alias in a configuration. Raises ValueError."""
        raise ValueError("servers of this kind have no aliases of versions")

    def keeps_sequences(self, _config: bytes) -> bool:
        """Return whether a model keeps state between requests. Raises ValueError."""
        return False

    async def sequence_of(self, _headers: bytes, _unpacked: Unpacked) -> bytes | None:
        """Return the id of a request's sequence, or None. Raises Problem. The first argument is the header lines for
        the replica. `_unpacked` returns the body's first bytes, or all of them without a number, decompressed."""
        return None

    def reports_lost(self, status: int, answer: bytes) -> bool:
        """Return whether a response over HTTP reports that the replica does not have the model."""
        raise NotImplementedError

    async def lacks(self, status: int, pool: Pool, replica: Replica, model: str, version: str | None) -> bool:
        """Return whether a replica lacks a model that it should have, after `reports_lost`. If so, and its models need
        no lease, another replica is tried."""
        raise NotImplementedError

    def reports_lost_over_grpc(self, _code: int, _headers: bytes) -> bool:
        """Return whether a gRPC status, and the headers that carry its message, report that."""
        return False

    def problem_body(self, problem: Problem, request_id: str) -> tuple[str, bytes]:
        """Return the media type and body of one of the proxy's problems."""
        raise NotImplementedError

    def error_text(self, body: bytes) -> str:
        """Return the text of a server's error, for the log."""
        raise NotImplementedError
