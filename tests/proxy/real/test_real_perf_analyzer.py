"""Triton's own load generator completes over HTTP and over gRPC."""

from pathlib import Path

import pytest

from ..rigs.perf_analyzer import perf_analyzer
from ..rigs.pytest_rigs import Front

# One number: of more it writes the first only, https://github.com/triton-inference-server/perf_analyzer/issues/451.
AS_JSON = ("--shape", "INPUT:1", "--input-tensor-format", "json", "--output-tensor-format", "json")
THOROUGH = [
    ("http", "add_sub", ("--async",)),
    ("http", "echo", AS_JSON),
    ("http", "echo", ("--shape", "INPUT:150528")),
    ("http", "versions", ("-x", "1", "--shape", "INPUT:4")),
    ("http", "accumulate", ("--sequence-length", "5")),
    ("http", "accumulate", ("--async", "--sequence-length", "5")),
    ("grpc", "add_sub", ()),
    ("grpc", "accumulate", ("--sequence-length", "5")),
    ("grpc", "accumulate", ("--streaming", "--sequence-length", "5")),
    ("grpc", "echo", ("--shape", "INPUT:150528")),
]


@pytest.mark.parametrize(
    ("protocol", "model", "options"),
    [
        ("http", "add_sub", ()),
        ("grpc", "add_sub", ("--streaming",)),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in THOROUGH),
    ],
)
def test_it_completes(front: Front, tmp_path: Path, protocol: str, model: str, options: tuple[str, ...]) -> None:
    where = getattr(front.proxy, protocol)
    assert perf_analyzer(tmp_path, protocol, where, model, *options, token=front.token).per_second > 0
