"""A real MLflow server: a process of its own with a SQL store, its artifacts in a folder or in object storage."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .process import HOST, Process, answers, free_ports, running
from .wheels import environment

GLIBC = (2, 28)  # What the wheels of its libraries want.
READY_SECONDS = 300.0  # It imports for a quarter of a minute by itself, and for minutes beside much else.
_SETTINGS = ("MLFLOW_", "_MLFLOW_", "TIDEGATE_")


@dataclass(frozen=True)
class MLflow:
    """An MLflow server that runs."""

    process: Process
    port: int

    @property
    def uri(self) -> str:
        """What MLFLOW_TRACKING_URI is to be."""
        return f"http://{HOST}:{self.port}"

    def wait_until_ready(self) -> None:
        """Wait until it answers. Raises ProcessError."""
        self.process.wait_until(lambda: answers(self.port, "/health"), READY_SECONDS)


@contextmanager
def mlflow_server(
    folder: Path,
    artifacts: str | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    wait: bool = True,
) -> Iterator[MLflow]:
    """Run an MLflow server with its SQLite store in a folder; it is ready, and it ends with the block.

    Without `wait` it is ready when `wait_until_ready` returns: others can start beside it meanwhile.

    `artifacts` is where artifacts go, a URI such as `s3://bucket/prefix` (`<folder>/artifacts` where nothing is said),
    and `variables` are what the server needs to get there (`ObjectStore.variables`). The server hands artifacts
    through, so that clients need no credentials of the store. Raises CannotBeHadError where its wheels do not fit.
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
    kept.pop("PYTHONPATH", None)  # the server has packages of its own
    said = kept | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nothing here wants its other processes
        **(variables or {}),
    }
    with running("MLflow", command, folder / "mlflow.log", said, folder=folder) as process:
        server = MLflow(process, port)
        if wait:
            server.wait_until_ready()
        yield server
