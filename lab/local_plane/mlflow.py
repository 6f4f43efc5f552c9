"""A real MLflow server as a process, with a SQL store and artifacts in a directory or in object storage."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .process import HOST, Process, answers, free_ports, running
from .wheels import environment

GLIBC = (2, 28)  # The requirement of its libraries' wheels.
READY_SECONDS = 300.0  # Its imports take a quarter of a minute, and minutes on a busy machine.
_SETTINGS = ("MLFLOW_", "_MLFLOW_", "TIDEGATE_")


@dataclass(frozen=True)
class MLflow:
    """A running MLflow server."""

    process: Process
    port: int

    @property
    def uri(self) -> str:
        """The value for MLFLOW_TRACKING_URI."""
        return f"http://{HOST}:{self.port}"

    def wait_until_ready(self) -> None:
        """Wait until it responds. Raises ProcessError."""
        self.process.wait_until(lambda: answers(self.port, "/health"), READY_SECONDS)


@contextmanager
def mlflow_server(
    folder: Path,
    artifacts: str | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    wait: bool = True,
) -> Iterator[MLflow]:
    """Run an MLflow server with its SQLite store in a directory until the block ends.

    Without `wait` it starts in the background, and `wait_until_ready` waits for it.

    `artifacts` is the URI of the artifacts, such as `s3://bucket/prefix` (default: `<folder>/artifacts`). `variables`
    give the server access to it (`ObjectStore.variables`). The server proxies artifacts, so clients need no credentials
    of the store. Raises CannotBeHadError if its wheels do not fit.
    """
    venv = environment("mlflow", "a real MLflow server", GLIBC)
    folder.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    destination = artifacts or (folder / "artifacts").as_uri()
    python = venv / "bin" / "python"
    command: list[str | Path] = [python, "-m", "mlflow", "server", f"--host={HOST}", f"--port={port}", "--workers=1"]
    command.append(f"--backend-store-uri=sqlite:///{folder / 'mlflow.db'}")
    command += ["--serve-artifacts", f"--artifacts-destination={destination}"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    kept.pop("PYTHONPATH", None)  # The server has its own packages.
    environment_variables = kept | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # Its other processes are not needed here.
        **(variables or {}),
    }
    with running("MLflow", command, folder / "mlflow.log", environment_variables, folder=folder) as process:
        server = MLflow(process, port)
        if wait:
            server.wait_until_ready()
        yield server
