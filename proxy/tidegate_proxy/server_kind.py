"""What the proxy asks of a kind of inference server: what the two kinds have in common, and what most need not say."""

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
    """How servers of a kind are asked, and how what they say is read."""

    root: str  # What the addresses of its protocol begin with: problems there have the protocol's form.
    live_path: bytes  # Where a replica answers 200 while it is alive, whatever it loads.
    index: IndexQuestion | None = None
    """How a replica that loads its models by itself is asked which it could not load; None: that cannot be asked."""
    speaks_v2 = False
    """Whether its servers are called over gRPC, too, and answer questions about a server, as KServe v2 has it."""
    usage_of: type[Usage] | None = None  # What reads how many tokens a call used; None where no server says that.

    def parse_path(self, path: str) -> Target | None:
        """Return what a path asks of a model; None for a path that is none of this kind's."""
        raise NotImplementedError

    def open_body(self, target: Target, body: Bytes) -> tuple[Target, OfVersion | Bytes]:
        """Return what the body of a target that is `in_body` asks, and the body to send on; raises Problem.

        That is a function where the body depends on the version.
        """
        raise NotImplementedError

    def version_name(self, _model: str, _version: str) -> str | None:
        """Return the name by which callers ask for a version of a model, where a request has no other word for it."""
        return None

    def serves(self, _config: bytes) -> Collection[str] | None:
        """Return the names of the models that a replica serves, by what it answers at `config_path`; None where that is
        of one model. Raises ValueError."""
        return None

    def path(self, target: Target, version: str | None) -> bytes:
        """Return the path at the server; None leaves the version to it."""
        raise NotImplementedError

    async def answer_without_lease(self, target: Target, pool: Pool, seconds: float, own_bound: bool) -> Answer:
        """Answer a target that `needs_no_lease`, where models are loaded on demand; raises Problem.

        `own_bound`: the seconds are the proxy's own bound, and not a caller's shorter one.
        """
        raise NotImplementedError

    def config_path(self, model: str) -> bytes:
        """Return the path at which a replica hands a model's configuration out."""
        raise NotImplementedError

    def alias(self, _config: bytes, _alias: str) -> tuple[str, str]:
        """Return the name and the value of what an alias is written as in a configuration; raises ValueError."""
        raise ValueError("servers of this kind keep no aliases of versions")

    def keeps_sequences(self, _config: bytes) -> bool:
        """Tell whether a model keeps state between requests; raises ValueError."""
        return False

    async def sequence_of(self, _headers: bytes, _unpacked: Unpacked) -> bytes | None:
        """Return the id of the sequence that a request is of, None for none; raises Problem.

        The header lines that go on come first. `_unpacked` returns the body's first bytes, or all of them without a
        number, where it is encoded like this.
        """
        return None

    def says_lost(self, status: int, answer: bytes) -> bool:
        """Tell whether an answer over HTTP says that the replica does not have the model."""
        raise NotImplementedError

    async def lacks(self, status: int, pool: Pool, replica: Replica, model: str, version: str | None) -> bool:
        """Tell whether a replica that is to have a model, by a lease or at all times, lacks it, as `says_lost` thinks.

        Of one at all times, another is tried then.
        """
        raise NotImplementedError

    def says_lost_over_grpc(self, _code: int, _headers: bytes) -> bool:
        """Tell whether a gRPC status, and the headers that carry its message, say so."""
        return False

    def problem_body(self, problem: Problem, request_id: str) -> tuple[str, bytes]:
        """Return how a problem of the proxy's own is written: its media type and body."""
        raise NotImplementedError

    def error_text(self, body: bytes) -> str:
        """Return the text of a server's error, for the log."""
        raise NotImplementedError
