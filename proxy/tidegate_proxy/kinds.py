"""The seam for kinds of inference servers: what the proxy asks of a kind, and which kinds there are.

`routing.Server.kind` names the kind of each server. Everything that is true of one kind alone stands in its folder.
"""

import re
from collections.abc import Callable, Collection
from typing import Final, Protocol

from .bodies import Bytes, OfVersion, Unpacked
from .openai.kind import OpenAIKind
from .pools import Pool
from .problems import CONTENT_TYPE, Problem
from .targets import LONGEST, ModelListing, Target, origin_form, plain_path, without_path
from .triton.kind import TritonKind
from .upstream.load_watch import IndexQuestion
from .upstream.replica import Replica
from .upstream.request import Answer


class UsageReader(Protocol):
    """What an answer goes through, a part after the other, for the tokens that it says its call used."""

    def feed(self, data: bytes) -> bytes:
        """Return what can go on, now that this has come."""

    def end(self) -> bytes:
        """Return what is left at the end of the answer."""

    def breaks_off(self) -> bool:
        """Tell whether the answer is a stream that ended before its last event."""

    def told(self) -> tuple[int, int] | None:
        """Return the tokens of the prompt, and of the completion, as the answer says; None where it does not."""

    def estimated(self, asked: int, answered: int) -> int:
        """Return about how many tokens a call of so many bytes used whose answer tells nothing of that: a guess, and no
        upper bound."""


class ServerKind(Protocol):
    """How servers of a kind are asked, and how what they say is read."""

    root: str  # What the addresses of its protocol begin with: problems are told there as the protocol has it.
    listing: ModelListing | None  # How the proxy tells which models there are; None: that has no address.
    live_path: bytes  # Where a replica answers 200 while it is alive, whatever it loads.
    index: IndexQuestion | None
    """How a replica that loads its models by itself is asked which it could not load; None: that cannot be asked."""
    answers_v2: bool  # Whether its servers answer KServe v2's questions about a server: `/v2` and `/v2/models/stats`.
    speaks_grpc: bool  # Whether they are called over gRPC, too, as KServe v2 has it.

    @property
    def usage_of(self) -> Callable[[bool, bool], UsageReader] | None:
        """What reads how many tokens a call used: whether its answer is a stream, and whether what the proxy has asked
        for is hidden in it. None where nobody tells that."""

    def parse_path(self, path: str) -> Target | None:
        """Return what a path asks of a model; None for a path that is none of this kind's."""

    def open_body(self, target: Target, body: Bytes) -> tuple[Target, OfVersion | Bytes]:
        """Return what the body of a target that is `in_body` asks, and the body to send on; raises Problem.

        That is a function where the body depends on the version.
        """

    def version_name(self, model: str, version: str) -> str | None:
        """Return the name by which callers ask for a version of a model, where a request has no other word for it."""

    def serves(self, config: bytes) -> Collection[str] | None:
        """Return the names of the models that a replica serves, by what it answers at `config_path`; None where that is
        of one model. Raises ValueError."""

    def path(self, target: Target, version: str | None) -> bytes:
        """Return the path at the server; None leaves the version to it."""

    async def answer_without_lease(self, target: Target, pool: Pool, seconds: float, own_bound: bool) -> Answer:
        """Answer a target that `needs_no_lease`, where models are loaded on demand; raises Problem.

        `own_bound`: the seconds are the proxy's own bound, and not a caller's shorter one.
        """

    def config_path(self, model: str) -> bytes:
        """Return the path at which a replica hands a model's configuration out."""

    def alias(self, config: bytes, alias: str) -> tuple[str, str]:
        """Return the name and the value of what an alias is written as in a configuration; raises ValueError."""

    def keeps_sequences(self, config: bytes) -> bool:
        """Tell whether a model keeps state between requests; raises ValueError."""

    async def sequence_of(self, headers: bytes, unpacked: Unpacked) -> bytes | None:
        """Return the id of the sequence that a request is of, None for none; raises Problem.

        `headers` are the header lines that go on; `unpacked` returns the body's first bytes, or all of them without a
        number, where it is encoded like this.
        """

    def says_lost(self, status: int, answer: bytes) -> bool:
        """Tell whether an answer over HTTP says that the replica does not have the model."""

    async def lacks(self, status: int, pool: Pool, replica: Replica, model: str, version: str | None) -> bool:
        """Tell whether a replica that is to have a model, by a lease or at all times, lacks it, as `says_lost` thinks.

        Of one at all times, another is tried then.
        """

    def says_lost_over_grpc(self, code: int, headers: bytes) -> bool:
        """Tell whether a gRPC status, and the headers that carry its message, say so."""

    def problem_body(self, problem: Problem, request_id: str) -> tuple[str, bytes]:
        """Return how a problem of the proxy's own is told: its media type and body."""

    def error_text(self, body: bytes) -> str:
        """Return the text of a server's error, for the log."""


KINDS: Final[dict[str, ServerKind]] = {"triton": TritonKind(), "openai": OpenAIKind()}
_ROOT = re.compile(r"(?:/servers/[^/]*)?(/[^/]*)")


def problem_body(path: str, problem: Problem, request_id: str) -> tuple[str, bytes]:
    """Return how a problem is told at an address: as the protocol has it that it is of, else by RFC 9457."""
    root = match[1] if (match := _ROOT.match(path)) else ""
    kind = next((kind for kind in KINDS.values() if kind.root == root), None)
    return (CONTENT_TYPE, problem.body(request_id)) if kind is None else kind.problem_body(problem, request_id)


def parse_path(path: str | None) -> Target | None:
    """Return what a path asks of a model, whatever the kind of server; None for a path of none."""
    if path is None:
        return None
    return next((target for kind in KINDS.values() if (target := kind.parse_path(path)) is not None), None)


MOST_KNOWN_TARGETS = 20_000
MOST_KNOWN_BYTES = 4 * 1024 * 1024  # Of all addresses that are kept.


class KnownTargets(dict[bytes, Target]):
    """What addresses of models ask, for those that callers with a credential have used.

    Below `path` everything is asked as it is without it.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._bytes = 0

    def parse_path(self, url: bytes, is_kept: bool) -> Target | None:
        """Return what an address asks of a model, None for one that asks nothing; keep it for the next request."""
        target = parse_path(plain_path(without_path(origin_form(url), self._path)))
        if target is not None and is_kept and len(url) <= LONGEST:
            self._bytes += len(url)
            if len(self) >= MOST_KNOWN_TARGETS or self._bytes > MOST_KNOWN_BYTES:
                self.clear()
                self._bytes = len(url)
            self[url] = target
        return target
