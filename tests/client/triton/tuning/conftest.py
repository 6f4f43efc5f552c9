"""A real Triton, a real perf_analyzer, and models that behave."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate.triton.tuning.server import opened

from lab.local_plane.process import CannotBeHadError
from lab.local_plane.triton import Triton, installed, triton

from .programs import SLEEPER, TALKER, Programs, write_model, write_programs


@pytest.fixture(scope="package")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    try:
        return write_programs(tmp_path_factory.mktemp("bin"), installed())
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: A REAL TRITON CANNOT BE HAD HERE ({error}), so that nothing was tuned with it.")


@pytest.fixture(scope="module")
def running(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:  # noqa: ARG001
    """A Triton that somebody runs, with models that take batches, stream, and leave dimensions open."""
    folder = tmp_path_factory.mktemp("triton")
    repository = folder / "models"
    write_model(repository, "sleeper", SLEEPER.format(seconds=0.01))
    write_model(repository, "talker", TALKER, "model_transaction_policy { decoupled: true }\n", batch=0)
    write_model(repository, "open", SLEEPER.format(seconds=0), dims="3, -1")
    with triton(folder / "server", repository) as server:
        metrics = f"http://127.0.0.1:{server.metrics_port}/metrics"  # which it serves a moment after it is ready
        server.process.wait_until(lambda: _answers(metrics), 60)
        yield server


def _answers(url: str) -> bool:
    try:
        return bool(opened(url, 5).status == 200)
    except OSError:
        return False


@pytest.fixture
def sleeper(tmp_path: Path) -> Path:
    """An entry whose model takes a hundredth of a second for a batch, however full, on any machine."""
    return write_model(tmp_path / "models", "sleeper", SLEEPER.format(seconds=0.02))
