"""Triton's own load generator completes over HTTP, as it does over gRPC (see grpc/test_grpc_real_triton.py)."""

from pathlib import Path

import pytest

from ..rigs.perf_analyzer import perf_analyzer
from ..rigs.pytest_rigs import Front

# One number: of more it writes the first only, https://github.com/triton-inference-server/perf_analyzer/issues/451.
AS_JSON = ("--shape", "INPUT:1", "--input-tensor-format", "json", "--output-tensor-format", "json")


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("add_sub", ()),
        ("add_sub", ("--async",)),
        ("echo", AS_JSON),
        ("echo", ("--shape", "INPUT:150528")),
        ("versions", ("-x", "1", "--shape", "INPUT:4")),
        ("accumulate", ("--sequence-length", "5")),
        ("accumulate", ("--async", "--sequence-length", "5")),
    ],
)
def test_it_completes(front: Front, tmp_path: Path, model: str, options: tuple[str, ...]) -> None:
    found = perf_analyzer(tmp_path, "http", front.proxy.http, model, *options, token=front.token)
    assert found.per_second > 0
