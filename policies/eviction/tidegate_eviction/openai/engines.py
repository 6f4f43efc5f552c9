"""Starts and ends the processes of models that share a slice, in the container that has it. The policy writes it there.

A device plugin allots a device to one container, so all of them run in one. Each answers at a port of its own, so that
no call goes through here. What vLLM answers in its development mode is for who has the control secret: `Guard`, which
vLLM puts before its API (`--middleware`, vllm/entrypoints/openai/cli_args.py), refuses it to others. Nothing here is
imported that Python does not bring.
"""

import hmac
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..readings import gpu_memory, nvml, own_memory

FOLDER = os.path.dirname(os.path.abspath(__file__))
HEADER = "tidegate-control"
OPEN = ("/health", "/metrics")  # With all of the API, below /v1/, what is answered without the secret.
LOOK_SECONDS = 0.02  # Between two looks whether a process has ended.
ASK_SECONDS = 4.0  # For an answer of a process here.
METRICS_SECONDS = 1.0  # For its metrics: who asks for those of all processes waits four (components/openai/relay.py).


def secret() -> str:
    """Return the control secret, which lies beside this file."""
    with open(os.path.join(FOLDER, "secret"), encoding="ascii") as file:
        return file.read()


def is_secret(said: str) -> bool:
    """Tell whether a header is the control secret."""
    return hmac.compare_digest(said.encode("latin-1"), secret().encode("ascii"))


class Guard:
    """ASGI middleware before a process's API: all but inference, health and metrics needs the control secret."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand a request on, or refuse it with 403."""
        if scope["type"] in ("http", "websocket"):
            said = dict(scope["headers"]).get(HEADER.encode(), b"").decode("latin-1")
            path, root = scope["path"], scope.get("root_path", "")
            if path.startswith(f"{root}/"):  # what comes before is taken away before it is routed
                path = path.removeprefix(root)
            if not (path in OPEN or path.startswith("/v1/") or is_secret(said)):
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close", "code": 1008})
                    return
                await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
                await send({"type": "http.response.body", "body": b""})
                return
        await self._app(scope, receive, send)


class Engines:
    """The processes, by their models."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.instance = f"{os.getpid()}:{time.time_ns()}"
        self._nvml = nvml()
        self._running: dict[str, tuple[int, int, list[str]]] = {}  # Process, port and command.
        self._lock = threading.Lock()

    def told(self) -> dict[str, Any]:
        """Return what there is, and how much memory is in use."""
        gpu = gpu_memory(self._nvml)
        memory = {"source": "process", "used": own_memory(os.getpid())} if gpu is None else {"source": "nvml", **gpu}
        with self._lock:
            running = {model: {"port": port, "command": said} for model, (_, port, said) in self._running.items()}
        return {"instance": self.instance, "memory": memory, "processes": running}

    def start(self, model: str, command: list[str], port: int) -> bool:
        """Start a model's process; False where it has one. Raises OSError."""
        arguments = [*command, f"--port={port}", "--middleware=tidegate_engines.Guard"]
        arguments += [f"--host={self.host}"] if self.host else []
        path = os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH"))))
        with self._lock:
            if model in self._running:
                return False
            variables = {**os.environ, "PYTHONPATH": path, "VLLM_SERVER_DEV_MODE": "1"}
            # A group of its own: whatever it starts ends with it.
            process = os.posix_spawnp(
                arguments[0], arguments, variables, setpgroup=0, setsigmask=[], setsigdef=[signal.SIGPIPE]
            )
            self._running[model] = process, port, command
        print(f"{model} is started as process {process} at port {port}", flush=True)
        return True

    def end(self, model: str, seconds: float) -> None:
        """End a model's process, if it has one: it may take so many seconds before it is killed."""
        with self._lock:
            process, *_ = self._running.get(model, (0,))
        until, said = time.monotonic() + seconds, signal.SIGTERM
        while process and self._is(model, process):
            with suppress(ProcessLookupError):  # its end is about to be seen
                (os.kill if said is signal.SIGTERM else os.killpg)(process, said)
            while self._is(model, process) and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)
            said, until = signal.SIGKILL, time.monotonic() + 1

    def end_all(self, seconds: float) -> None:
        """End all of them at the same time."""
        ends = [threading.Thread(target=self.end, args=(model, seconds)) for model in list(self._running)]
        for each in ends:
            each.start()
        for each in ends:
            each.join()

    def ask(self, model: str, path: str, seconds: float = ASK_SECONDS) -> bytes:
        """Return what a model's process answers; raises OSError, also where it has none, or is silent for so long."""
        _, port, _ = self._running.get(model, (0, 0, []))
        if not port:
            raise OSError(f"{model} has no process")
        url = f"http://{self.host or '127.0.0.1'}:{port}{path}"
        request = urllib.request.Request(url, headers={HEADER: secret()})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=seconds) as answer:
            body: bytes = answer.read()
        return body

    def is_awake(self, model: str) -> bool:
        """Tell whether a model answers calls."""
        try:
            return bool(json.loads(self.ask(model, "/is_sleeping")) == {"is_sleeping": False})
        except (OSError, ValueError):
            return False

    def metrics(self) -> bytes:
        """Return vLLM's own series of all models, which say whose they are."""
        running = list(self._running)
        with ThreadPoolExecutor(len(running) or 1) as threads:
            return b"".join(threads.map(self._metrics, running))

    def _metrics(self, model: str) -> bytes:
        try:
            lines = self.ask(model, "/metrics", METRICS_SECONDS).splitlines()
        except OSError:
            return b""
        return b"".join(line + b"\n" for line in lines if line.startswith(b"vllm:"))

    def reap(self) -> None:
        """Take the ends of processes, for ever; those of what they left behind, too, where this is process 1."""
        while True:
            try:
                process, status = os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(LOOK_SECONDS)
                continue
            with self._lock:
                model = next((model for model, (one, *_) in self._running.items() if one == process), "")
            if model:
                with suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)  # workers that it left hold memory
                with self._lock:
                    del self._running[model]
                print(f"{model}: process {process} ended with {os.waitstatus_to_exitcode(status)}", flush=True)

    def _is(self, model: str, process: int) -> bool:
        with self._lock:
            return self._running.get(model, (0,))[0] == process


class Server(ThreadingHTTPServer):
    """Says nothing of callers that hang up, as probes do."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Leave it: who calls sees that there is no answer."""


class Handler(BaseHTTPRequestHandler):
    """Health, metrics and readiness for all; processes for who has the secret."""

    engines: Engines
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Tell of what runs here."""
        if self.path == "/health":
            self._say(200)
        elif self.path == "/metrics":
            self._say(200, self.engines.metrics(), "text/plain; version=0.0.4")
        elif self.path.startswith("/v1/models/"):
            self._say(200 if self.engines.is_awake(self.path.removeprefix("/v1/models/")) else 404)
        elif self.path == "/processes" and self._may():
            self._say(200, json.dumps(self.engines.told()).encode())

    def do_POST(self) -> None:
        """Refuse a call of a model: each answers at its own port, and who lost sight of that may come again."""
        self.close_connection = True  # what it brings is not read
        self._say(503, b'{"error":{"message":"Models answer at ports of their own.","type":"server_error"}}')

    def do_PUT(self) -> None:
        """Start a model's process."""
        if self._may():
            said = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                made = self.engines.start(self._model(), said["command"], said["port"])
                self._say(201 if made else 409)
            except OSError as error:
                self._say(500, f"{said['command'][0]} cannot be started: {error.strerror}".encode())

    def do_DELETE(self) -> None:
        """End a model's process; without a model, all of them, and this one."""
        if self._may():
            seconds = float(parse_qs(urlsplit(self.path).query).get("seconds", ["0"])[0])
            if model := self._model():
                self.engines.end(model, seconds)
                self._say(200)
            else:
                self._say(202)
                os.kill(os.getpid(), signal.SIGTERM)

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""

    def _model(self) -> str:
        return urlsplit(self.path).path.removeprefix("/processes").removeprefix("/")

    def _may(self) -> bool:
        if self.path.startswith("/processes") and is_secret(self.headers.get(HEADER, "")):
            return True
        self.close_connection = True  # what it brings is not read
        self._say(403)
        return False

    def _say(self, status: int, body: bytes = b"", kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(host: str = "", port: str = "8000", seconds: str = "30") -> None:
    """Serve until SIGTERM; then processes may take so many seconds to end."""
    Handler.engines = engines = Engines(host)
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # in every thread: another one would take them, and wake nobody
    server = Server((host, int(port)), Handler)
    for work in (engines.reap, server.serve_forever):
        threading.Thread(target=work, daemon=True).start()
    print(f"ready port={server.server_address[1]}", flush=True)
    signal.sigwait(ends)
    engines.end_all(float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
