"""Triton's model control, over gRPC only: a load over HTTP can stall other inference (triton-inference-server#8958)."""

import asyncio
import logging
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
from cryptography import x509
from tidegate_contracts import triton
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc

RECONNECT_MILLISECONDS = 500
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # Triton is in the same pod, whatever the environment sets.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # The timeout of one attempt.
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MILLISECONDS),
]
_RESTRICTED = "restricted"
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.03, 1.0  # Seconds between two reads of the index, at first and at last.
LONGER = 1.07  # Each pause is longer by this factor, so an end is detected at most a fifteenth of its time late.
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TritonTimes:
    """How long the policy waits for a Triton."""

    call_seconds: float = 10.0  # The timeout of a call that changes nothing.
    reading_seconds: float = 5.0  # The timeout of a reading of memory.
    unseen_load_seconds: float = 60.0  # After this time, a load without a response or an index entry has failed.
    unload_seconds: float = 350.0  # The timeout of an unload: requests in flight end first (SageMaker's figure).
    ignored_unload_seconds: float = 20.0  # A model that is still ready after this time was not unloaded.
    silent_call_seconds: float = 20.0  # After this time without a response, the index is also read.
    unreadable_seconds: float = 30.0  # After this time without a reading, memory counts as unreadable.
    retry_seconds: float = 2.0  # Between attempts to control Triton.
    restart_retry_seconds: float = 10.0  # Between attempts to request its restart.
    index_interval_seconds: float = 10.0  # Between reads of the index. A model that two of them lack has vanished.
    settled_seconds: float = 1.0  # After this time, the index shows an unload that a predecessor just ordered.


class ServerCallError(Exception):
    """A call to Triton failed or timed out."""


class RefusedError(ServerCallError):
    """Triton returned this error."""


class LostError(ServerCallError):
    """There is no connection to Triton, or it broke: the outcome of the call is unknown."""


@dataclass(frozen=True, slots=True)
class VersionState:
    """One version of a model in the repository index."""

    version: int
    state: str  # READY, LOADING, UNLOADING or UNAVAILABLE.
    reason: str  # Why it is not ready, in Triton's words. `unloaded` after an unload.


@dataclass(frozen=True, slots=True)
class ModelIndex:
    """The repository index: every model, and the versions of those that were ever loaded."""

    models: Mapping[str, tuple[VersionState, ...]]

    def in_state(self, model: str, state: str) -> tuple[int, ...]:
        """Return the versions of a model in a state, in order."""
        return tuple(sorted(each.version for each in self.models.get(model, ()) if each.state == state))

    def having(self, state: str) -> frozenset[str]:
        return frozenset(name for name in self.models if self.in_state(name, state))

    def why_not(self, model: str) -> str:
        """Return why a model is not ready, in Triton's words, or an empty text."""
        reasons = {each.reason for each in self.models.get(model, ()) if each.state == "UNAVAILABLE" and each.reason}
        return "; ".join(sorted(reasons - {"unloaded"}))

    def is_unloaded(self, model: str) -> bool:
        """Return whether Triton has nothing of a model in memory: every version is `unloaded`, or failed."""
        return all(each.state in ("", "UNAVAILABLE") for each in self.models.get(model, ()))


class TritonControl:
    """The only holder of the key to a Triton's model control."""

    def __init__(
        self, address: str, secret: str, tls_root: Path | None = None, times: TritonTimes = TritonTimes()
    ) -> None:
        self.address = address
        self.times = times
        self._metadata = ((f"triton-grpc-protocol-{triton.RESTRICTED_KEY}", secret),)
        self._tls_root = tls_root
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    async def connect(self) -> None:
        """Connect with the present certificates. Waits until Triton is ready."""
        logged = ""
        while True:
            await self.close()
            try:
                self._channel = self._open()
                self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
                async with asyncio.timeout(self.times.call_seconds):
                    await self._channel.channel_ready()
                if (await self._call("ServerLive", messages.ServerLiveRequest(), self.times.call_seconds)).live:
                    return
                why = f"Triton at {self.address} reports that it is not alive"
            except TimeoutError:
                why = f"no response from {self.address}"
            except ServerCallError as error:
                why = str(error)
            if why != logged:
                log.info("waiting for Triton: %s", why)
            logged = why
            await asyncio.sleep(RECONNECT_MILLISECONDS / 1000)

    async def lost(self) -> None:
        """Wait until the connection breaks, which shows the end of Triton immediately."""
        assert self._channel is not None
        # Another connection may lead to another Triton, even shortly afterwards.
        await self._channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

    async def close(self) -> None:
        """Close the connection. Calls in progress end with LostError."""
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def index(self) -> ModelIndex:
        """Return the repository index. Raises ServerCallError."""
        answer = await self._call("RepositoryIndex", messages.RepositoryIndexRequest(), self.times.call_seconds)
        models: dict[str, tuple[VersionState, ...]] = {}
        for each in answer.models:
            found = (VersionState(int(each.version), each.state, each.reason),) if each.version else ()
            models[each.name] = models.get(each.name, ()) + found
        return ModelIndex(models)

    async def served(self) -> dict[str, tuple[int, ...]]:
        """Return the served models and versions, even of removed directories. Raises ServerCallError."""
        answer = await self._call("ModelStatistics", messages.ModelStatisticsRequest(), self.times.call_seconds)
        versions: dict[str, tuple[int, ...]] = {}
        for each in answer.model_stats:
            versions[each.name] = tuple(sorted((*versions.get(each.name, ()), int(each.version))))
        return versions

    async def load(
        self, model: str, seconds: float | None, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Load a model. `config` (JSON) replaces its config.pbtxt, and `files` its directory. Raises RefusedError if
        the load failed, and another ServerCallError if that is unknown."""
        request = messages.RepositoryModelLoadRequest(model_name=model)
        if config is not None:
            request.parameters["config"].string_param = config
        for path, content in (files or {}).items():
            request.parameters[f"file:{path}"].bytes_param = content
        await self._call("RepositoryModelLoad", request, seconds)

    async def unload(self, model: str, seconds: float) -> None:
        """Begin to unload a model without its parts. The index shows the end. Raises ServerCallError."""
        request = messages.RepositoryModelUnloadRequest(model_name=model)
        request.parameters["unload_dependents"].bool_param = False
        await self._call("RepositoryModelUnload", request, seconds)

    async def text(self, model: str, output: str, seconds: float) -> bytes:
        """Call a model without inputs and with one text output. Raises ServerCallError."""
        request = messages.ModelInferRequest(model_name=model)
        request.outputs.add(name=output)
        answer = await self._call("ModelInfer", request, seconds)
        raw: bytes = answer.raw_output_contents[0] if answer.raw_output_contents else b""
        if len(raw) < 4 or struct.unpack_from("<I", raw)[0] != len(raw) - 4:
            raise RefusedError(f"the output of {model} is not text")
        return raw[4:]

    async def _call(self, method: str, request: Any, seconds: float | None) -> Any:
        if self._stub is None:
            raise LostError(f"there is no connection to Triton at {self.address}")
        try:
            return await getattr(self._stub, method)(request, timeout=seconds, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            details = error.details() or error.code().name
            # Triton also returns UNAVAILABLE for a wrong secret.
            if error.code() is grpc.StatusCode.UNAVAILABLE and _RESTRICTED in details:
                raise RefusedError(f"Triton has another control secret than this policy: {details}") from None
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ServerCallError(f"Triton did not respond to {method} within {seconds:g} s") from None
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise LostError(f"the connection to Triton at {self.address} broke: {details}") from None
            raise RefusedError(details) from None
        except (asyncio.InvalidStateError, grpc.aio.UsageError):  # It was closed meanwhile.
            raise LostError(f"the connection to Triton at {self.address} was closed") from None

    def _open(self) -> grpc.aio.Channel:
        if self._tls_root is None:
            return grpc.aio.insecure_channel(self.address, options=_OPTIONS)
        try:
            authority = (self._tls_root / "ca.crt").read_bytes()
            name = certified_name((self._tls_root / "tls.crt").read_bytes())
        except OSError as error:
            raise LostError(f"{error.filename} cannot be read: {error.strerror}") from None
        credentials = grpc.ssl_channel_credentials(authority)
        # The certificate is for its name, but it is called at its address in the pod.
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", name)]
        return grpc.aio.secure_channel(self.address, credentials, options=options)


def certified_name(certificate: bytes) -> str:
    """Return a name of a certificate (PEM, the first of the chain). Raises LostError if it has none."""
    try:
        extensions = x509.load_pem_x509_certificate(certificate).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return names.value.get_values_for_type(x509.DNSName)[0].replace("*", "any")
    except (ValueError, x509.ExtensionNotFound, IndexError) as error:
        raise LostError(f"Triton's certificate (tls.crt) names no host: {error}") from None


def retrieve(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a task that may not be awaited, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


class IndexWatcher:
    """Reads the index once at a time, for all watched loads and unloads."""

    def __init__(self, control: TritonControl) -> None:
        self._control = control
        self._looking: asyncio.Task[ModelIndex] | None = None
        self._look_seconds = 0.0

    async def load(self, model: str, call: "asyncio.Task[None] | None") -> str | None:
        """Return how a load ended: None, or the error. Without a response of `call`, the index decides."""
        quiet_since = monotonic()
        failed = 0
        pause = FIRST_LOOK_SECONDS
        while True:
            if call is not None and call.done():
                try:
                    call.result()
                except RefusedError as error:
                    return str(error)
                except ServerCallError as error:
                    log.warning("whether %s was loaded is unknown, so its index entry is watched: %s", model, error)
                    call, quiet_since = None, monotonic()
                else:
                    return None
            if (index := await self.index()) is not None:
                if index.in_state(model, "LOADING"):
                    quiet_since, failed = monotonic(), 0
                elif index.in_state(model, "READY"):
                    return None
                elif why := index.why_not(model):
                    failed += 1
                    # During the call, it can be the result of an earlier load.
                    if failed > 2 and call is None:
                        return why
                if monotonic() - quiet_since > self._control.times.unseen_load_seconds * (1 if call is None else 10):
                    return index.why_not(model) or "Triton did not respond, and its index does not show the load"
            if call is not None:
                await asyncio.wait({call}, timeout=pause)
            else:
                await asyncio.sleep(pause)
            pause = self._longer(pause)

    async def unloads(self, names: Sequence[str], refused: str = "", accepted: Collection[str] = ()) -> str | None:
        """Return how an unload ended: None, or the error. `refused` is Triton's error. A model that the index does not
        list counts as unloaded if its call was `accepted`, or if Triton does not serve it."""
        begun, times = monotonic(), self._control.times
        pause = FIRST_LOOK_SECONDS
        while True:
            if (index := await self.index()) is not None:
                left = [
                    name
                    for name in names
                    if not index.is_unloaded(name) or (name not in index.models and name not in accepted)
                ]
                if not left:
                    return None
                seconds = monotonic() - begun
                ready = [name for name in left if index.in_state(name, "READY") or name not in index.models]
                if seconds > times.unload_seconds or (ready and (refused or seconds > times.ignored_unload_seconds)):
                    return refused or f"{', '.join(ready or left)} is not unloaded after {seconds:.0f} s"
            await asyncio.sleep(pause)
            pause = self._longer(pause)

    async def index(self) -> ModelIndex | None:
        """Return the present index. None: Triton does not respond. Concurrent calls share one response."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(retrieve)
        try:
            return await asyncio.shield(self._looking)
        except ServerCallError as error:
            log.debug("cannot read the index: %s", error)
            return None

    async def _look(self) -> ModelIndex:
        begun = monotonic()
        try:
            return await self._control.index()
        finally:
            self._look_seconds = monotonic() - begun

    def _longer(self, pause: float) -> float:
        """Return the seconds until the next read: reads take at most a tenth of the time."""
        return min(max(pause * LONGER, 10 * self._look_seconds), LONGEST_LOOK_SECONDS)

    async def versions(self, model: str) -> tuple[int, ...]:
        """Return the ready versions of a model, or none if Triton does not respond."""
        try:
            return (await self._look()).in_state(model, "READY")  # Not a read from before the load ended.
        except ServerCallError:
            return ()
