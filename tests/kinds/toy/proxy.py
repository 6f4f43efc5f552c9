"""A toy kind of inference server for the proxy: calls are `POST /toy`, and the first line of a body names the model."""

import re
from collections.abc import Collection

from tidegate_proxy.bodies import Bytes, OfVersion
from tidegate_proxy.pools import Pool
from tidegate_proxy.problems import CONTENT_TYPE, Problem, ProblemType
from tidegate_proxy.targets import NAME_PATTERN, ModelListing, Target
from tidegate_proxy.upstream.load_watch import IndexQuestion
from tidegate_proxy.upstream.request import Answer

NAME = "toy"
_READY = re.compile(rf"/toy/({NAME_PATTERN})")


class ToyKind:
    """See `tidegate_proxy.kinds.ServerKind`."""

    root = "/toy"
    listing: ModelListing | None = None
    live_path = b"/alive"
    index: IndexQuestion | None = None
    answers_v2 = speaks_grpc = False
    usage_of = None

    def understand(self, path: str) -> Target | None:
        if path == "/toy":
            return Target(NAME, "run", b"POST", "infer", "toy", in_body=True)
        match = _READY.fullmatch(path)
        return Target(NAME, "ready", b"GET", "inspect", match[1], looks_only=True) if match else None

    def version_name(self, _model: str, _version: str) -> str | None:
        return None

    def serves(self, _config: bytes) -> Collection[str] | None:
        return None

    def open_body(self, _target: Target, body: Bytes) -> tuple[Target, OfVersion]:
        model, found, rest = bytes(body).partition(b"\n")
        if not found:
            raise Problem(ProblemType.MALFORMED, "The first line names the model.")
        target = Target(NAME, "run", b"POST", "infer", model.decode(), may_be_of_sequence=True)
        return target, lambda *_: [rest]

    def path(self, target: Target, version: str | None) -> bytes:
        return f"/{target.verb}/{target.model}@{version or 'newest'}".encode()

    async def look(self, target: Target, _pool: Pool, _seconds: float, _own_bound: bool) -> Answer:
        return Answer(200, "text/plain", target.model.encode())

    def config_path(self, model: str) -> bytes:
        return f"/about/{model}".encode()

    def alias(self, config: bytes, alias: str) -> tuple[str, str]:
        lines = dict(line.split("=") for line in config.decode().splitlines())
        return alias, lines.get(alias, "")

    def keeps_sequences(self, config: bytes) -> bool:
        return b"sequences" in config

    async def sequence_of(self, _headers: bytes, _unpacked: object) -> bytes | None:
        return None

    def says_lost(self, status: int, answer: bytes) -> bool:
        return status == 410 and b"gone" in answer

    async def lacks(self, *_: object) -> bool:
        return False

    def says_lost_over_grpc(self, _code: int, _headers: bytes) -> bool:
        return False

    def tell_problem(self, problem: Problem, request_id: str) -> tuple[str, bytes]:
        return CONTENT_TYPE, problem.body(request_id)

    def plain_error(self, body: bytes) -> tuple[bytes, str]:
        return body, body.decode()
