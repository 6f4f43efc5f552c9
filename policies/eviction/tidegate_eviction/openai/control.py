"""What is asked of the processes of an engine's container, and of who starts them there (`engines.py`).

vLLM's are the endpoints of its sleep mode, with `--enable-sleep-mode` and VLLM_SERVER_DEV_MODE=1, as published in
docs/features/sleep_mode.md and vllm/entrypoints/serve/{sleep,rpc,cache}/api_router.py of vllm-project/vllm.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from tidegate_contracts.openai import HTTP_PORT, PROCESS_PORTS, SECRET_HEADER

CALL_SECONDS = 10.0  # That an answer may take which changes nothing.


class EngineError(Exception):
    """A call that failed, or had no answer in time; the text is for people."""


class GoneError(EngineError):
    """Nobody listens there."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs one model."""

    port: int
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What runs in the engine's container, which start of that it is, and how much memory is in use."""

    instance: str
    source: str
    used_bytes: int
    total_bytes: int | None
    processes: Mapping[str, Process] = field(default_factory=dict)


class EngineControl:
    """Client of the engine's container; each call has a connection of its own."""

    def __init__(self, address: str | None, secret: str) -> None:
        """`address` is host and port; None: as in a pod, of which all containers have the same addresses."""
        host, _, port = (address or f"127.0.0.1:{HTTP_PORT}").rpartition(":")
        self._host, self._port, self._secret = host, int(port), secret

    async def look(self) -> Seen:
        """Return what runs; raises EngineError."""
        answer = await self._call(self._port, "GET", "/processes", CALL_SECONDS)
        try:
            said = json.loads(answer)
            memory = said["memory"]
            processes = {model: Process(one["port"], tuple(one["command"])) for model, one in said["processes"].items()}
            seen = Seen(said["instance"], memory["source"], memory["used"], memory.get("total"), processes)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise EngineError(f"what the engine's container answers tells of no processes: {answer!r:.100}") from None
        for model, process in processes.items():
            if process.port not in PROCESS_PORTS:  # calls would go there, and the control secret
                ports = f"{PROCESS_PORTS[0]} to {PROCESS_PORTS[-1]}"
                raise EngineError(
                    f"the engine's container says that {model} is at port {process.port!r}, not at {ports}"
                )
        return seen

    async def start(self, model: str, command: tuple[str, ...], port: int) -> None:
        """Start a model's process; raises EngineError."""
        body = json.dumps({"command": command, "port": port}).encode()
        await self._call(self._port, "PUT", f"/processes/{quote(model)}", CALL_SECONDS, body)

    async def end(self, model: str, seconds: float) -> None:
        """End a model's process, which may take so long before it is killed; raises EngineError."""
        path = f"/processes/{quote(model)}?seconds={seconds:g}"
        await self._call(self._port, "DELETE", path, seconds + CALL_SECONDS)

    async def restart(self) -> None:
        """Have all of it end, which Kubernetes starts anew; raises EngineError."""
        await self._call(self._port, "DELETE", "/processes", CALL_SECONDS)

    async def is_healthy(self, port: int) -> bool:
        """Tell whether a process answers; it listens once its model is loaded."""
        try:
            await self._call(port, "GET", "/health", CALL_SECONDS)
        except EngineError:
            return False
        return True

    async def is_sleeping(self, port: int) -> bool:
        """Tell whether a process sleeps, also in part; raises EngineError."""
        answer = await self._call(port, "GET", "/is_sleeping", CALL_SECONDS)
        try:
            return bool(json.loads(answer)["is_sleeping"])
        except (ValueError, KeyError, TypeError):
            raise EngineError(f"vLLM does not say whether it sleeps: {answer!r:.100}") from None

    async def sleep(self, port: int, level: int, seconds: float) -> None:
        """Put a process to sleep: its weights go to the memory of the host (1), or are dropped (2); raises EngineError.

        What is in flight ends first; versions that do not know `mode` cut it, but no lease lives any more.
        """
        await self._call(port, "POST", f"/sleep?level={level}&mode=wait", seconds)

    async def wake(self, port: int, level: int, seconds: float) -> None:
        """Wake a process; one whose weights were dropped (level 2) reads them again. Raises EngineError."""
        if level == 1:
            await self._call(port, "POST", "/wake_up", seconds)
            return
        await self._call(port, "POST", "/wake_up?tags=weights", seconds)
        await self._call(port, "POST", "/collective_rpc", seconds, b'{"method":"reload_weights"}')
        await self._call(port, "POST", "/wake_up?tags=kv_cache", seconds)
        await self._call(port, "POST", "/reset_prefix_cache", seconds)

    async def _call(self, port: int, method: str, path: str, seconds: float, body: bytes = b"") -> bytes:
        where = f"{method} {path.partition('?')[0]} at port {port}"
        try:
            async with asyncio.timeout(seconds):
                status, said = await self._exchange(port, method, path, body)
        except TimeoutError:
            raise EngineError(f"{where} has no answer after {seconds:g} s") from None
        except ConnectionRefusedError:
            raise GoneError(f"nobody listens at port {port}") from None
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
            raise EngineError(f"{where} has no whole answer: {error}") from None
        if not 200 <= status < 300:
            raise EngineError(f"{where} answers {status}: {said[:200].decode(errors='replace')}")
        return said

    async def _exchange(self, port: int, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection(self._host, port)
        try:
            # HTTP/1.0: the answer ends with the connection, and is never chunked.
            head = f"{method} {path} HTTP/1.0\r\nhost: {self._host}\r\n{SECRET_HEADER}: {self._secret}\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            lines, _, said = (await reader.read(-1)).partition(b"\r\n\r\n")
            return int(lines.split(b" ", 2)[1]), said
        finally:
            writer.close()
