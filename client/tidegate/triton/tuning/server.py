"""The Triton that is measured: one of our own for each configuration, or one that runs somewhere."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import UnreachableError, UsageError
from ..entries.entry import Entry
from ..entries.text import CONFIG, config_text
from .plan import Protocol, SweepPlan

HOST: Final = "127.0.0.1"
_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05
_SHARED_MEMORY: Final = Path("/dev/shm")
_WHERE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_ERROR: Final = re.compile(r"^E\d{4} [^\]]*\] ?(.*)")
_LINES: Final = 12
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""For what is measured must not go through an HTTP proxy that the environment names."""
_OURS: Final = (
    "model-repository", "model-control-mode", "http-", "grpc-", "metrics-", "allow-http", "allow-grpc", "allow-metrics",
    "exit-on-error",
)  # fmt: skip


@dataclass(frozen=True)
class Address:
    """Where one side of a Triton listens."""

    where: str
    protocol: Protocol = "grpc"
    metrics: str | None = None  # URL of its metrics, which tell the memory of its GPUs.

    def __post_init__(self) -> None:
        if not _WHERE.fullmatch(self.where):
            shown = self.where.rpartition("@")[2]  # before it stands a password, maybe
            why = "tune measures a Triton itself, without TLS and credentials, not a proxy before it"
            do = "say host:port of its gRPC side, such as localhost:8001 (of its HTTP side with --protocol http)"
            raise UsageError(f"--url {shown!r} is no host and port", why=why, do=do)


@dataclass(frozen=True)
class Running:
    """A Triton that has loaded the model."""

    address: Address
    config: ModelConfig  # The model's, with what Triton has completed in it.
    group: int | None = None  # Its process group, where it is our own.


class NotLoadedError(UnreachableError):
    """A configuration that Triton did not load."""


@dataclass(frozen=True)
class TritonProgram:
    """A tritonserver that can be run here."""

    path: Path
    options: tuple[str, ...] = ()

    @classmethod
    def find(cls, program: str | Path | None, options: tuple[str, ...] = ()) -> "TritonProgram":
        """Return the one that is named, else the one on the PATH; raises UsageError without one."""
        do = "name it with --tritonserver (it is in Triton's image), or measure one that runs with --url"
        found = find(program or "tritonserver", "each configuration is measured on a Triton of its own", do)
        for option in options:
            if option.removeprefix("--").startswith(_OURS):
                raise UsageError(f"--triton-option {option}: tune sets that itself")
        return cls(found, options)

    @contextmanager
    def serving(self, entry: Entry, config: ModelConfig, plan: SweepPlan, folder: Path) -> Iterator[Running]:
        """Run a Triton with links to the entry's files, and its model loaded; NotLoadedError has what Triton says."""
        repository = folder / "models"
        _link(entry, config, repository / entry.name)
        http, grpc, metrics = _free_ports(3)
        shared = f"tidegate_tune_{os.getpid()}_{http}_"
        command = [
            str(self.path), f"--model-repository={repository}", "--model-control-mode=none", "--exit-on-error=true",
            *(f"--{side}-address={HOST}" for side in ("http", "grpc", "metrics")),
            f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", "--metrics-interval-ms=250",
            "--exit-timeout-secs=5", f"--backend-config=python,shm-region-prefix-name={shared}", *self.options,
        ]  # fmt: skip
        # Whatever ends this process takes Triton along.
        leash = [setpriv, "--pdeathsig", "TERM"] if (setpriv := shutil.which("setpriv")) else []
        log = folder / "triton.log"
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    [*leash, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise UsageError(f"cannot be run: {error.strerror}", where=self.path) from None
        try:
            ready = f"http://{HOST}:{http}/v2/models/{urllib.parse.quote(entry.name, safe='')}/ready"
            _wait(process, ready, plan.load_seconds, log)
            port = grpc if plan.protocol == "grpc" else http
            address = Address(f"{HOST}:{port}", plan.protocol, f"http://{HOST}:{metrics}/metrics")
            yield Running(address, described(Address(f"{HOST}:{http}", "http"), entry.name), process.pid)
        finally:
            _end(process)
            for left in _SHARED_MEMORY.glob(f"{shared}*"):  # of one that had to be killed
                left.unlink(missing_ok=True)


def find(program: str | Path, why: str, do: str) -> Path:
    """Return a program by its path, or by its name on the PATH; raises UsageError, which says why and what to do."""
    if (found := shutil.which(program)) is None:
        raise UsageError(f"there is no program {program}", why=why, do=do)
    return Path(found).absolute()


def opened(url: str, seconds: float) -> Any:
    """Open a URL of a Triton's, directly; raises OSError, or ValueError for what is none."""
    return _DIRECT.open(url, timeout=seconds)


def described(address: Address, model: str) -> ModelConfig:
    """Return a model's configuration as a Triton tells it; raises UnreachableError."""
    config = ModelConfig()
    try:
        if address.protocol == "grpc":
            import tritonclient.grpc
            from tritonclient.utils import InferenceServerException

            try:
                direct = [("grpc.enable_http_proxy", 0)]
                with tritonclient.grpc.InferenceServerClient(address.where, channel_args=direct) as client:
                    config.CopyFrom(client.get_model_config(model, client_timeout=30).config)
            except InferenceServerException as error:
                raise ValueError(error.message()) from None
        else:
            url = f"http://{address.where}/v2/models/{urllib.parse.quote(model, safe='')}/config"
            with opened(url, 30) as answer:
                json_format.ParseDict(json.load(answer), config, ignore_unknown_fields=True)
    except (OSError, ValueError) as error:
        said = error.read(2000).decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else str(error)
        side = "gRPC" if address.protocol == "grpc" else "HTTP"
        do = f"check that a Triton's {side} side listens there, and that the model is loaded"
        raise UnreachableError(f"model {model} cannot be measured", where=address.where, why=said, do=do) from None
    return config


def _link(entry: Entry, config: ModelConfig, home: Path) -> None:
    """Make an entry of links to another's files, in folders of its own: backends write beside what they read."""
    shutil.copytree(entry.folder.absolute(), home, copy_function=os.symlink)
    (home / CONFIG).unlink(missing_ok=True)
    (home / CONFIG).write_text(config_text(config), "utf-8")


def _wait(process: "subprocess.Popen[bytes]", ready: str, seconds: float, log: Path) -> None:
    end = time.monotonic() + seconds
    while True:
        if process.poll() is not None:
            raise NotLoadedError(f"Triton does not load the model: {_why(log)}")
        with suppress(OSError), opened(ready, 5) as answer:
            if answer.status == 200:
                return
        if time.monotonic() > end:
            raise NotLoadedError(f"Triton has not loaded the model within {seconds:.0f} s: {_why(log)}")
        time.sleep(_POLL_SECONDS)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end, insist after a while, and leave none of its group."""
    try:
        process.terminate()
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _why(log: Path) -> str:
    """Return what Triton's log says went wrong; its last lines where no error stands in it."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    errors = [found[1].strip(' "') for line in lines if (found := _ERROR.match(line)) and found[1].strip(' "')]
    return "\n".join(dict.fromkeys(errors[:_LINES])) or "\n".join(lines[-_LINES:]) or "it said nothing"


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]
