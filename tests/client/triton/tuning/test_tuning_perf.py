"""What a perf_analyzer can do to us, besides measuring; and how much memory is in use meanwhile."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.tuning import perf
from tidegate.triton.tuning.perf import gpu_bytes, host_bytes, watched
from tidegate.triton.tuning.plan import Measurement, Setting, SweepPlan
from tidegate.triton.tuning.server import Address, Running
from tritonclient.grpc.model_config_pb2 import ModelConfig

from lab.local_plane.triton import Triton

from .programs import Programs

SETTING = Setting(batch=1, concurrency=1)
HEAD = "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency"


def measured(
    program: Path, folder: Path, where: str = "127.0.0.1:1", window: float = 0.05, setting: Setting = SETTING
) -> Measurement:
    plan = SweepPlan(window_seconds=window, windows=3)
    running = Running(Address(where), ModelConfig(name="sleeper"))
    return perf.measure(program, running, setting, plan, folder)


@pytest.mark.parametrize(
    ("does", "kind", "said"),
    [
        ("#!/bin/sh\nexec sleep 60", perf.LoadError, "did not end within 1 s"),
        ("#!/bin/sh\nexit 3", perf.LoadError, "ended without a word"),
        ("#!/bin/sh\nexit 0", perf.LoadError, "ended without a word"),  # an old report is never taken for a new one
        ("\x7fELF no program", UsageError, "perf_analyzer: cannot be run"),
        *((f"#!/bin/sh\nprintf '{report}' > perf_analyzer.csv", perf.LoadError, "not in the form of the versions")
          for report in ("", "Rate,Throughput\\n1,2", f"{HEAD}\\n1,x,1,2,3,4", f"{HEAD}\\n1,2,1,2,3,4\\n2,2,1,2,3,4")),
    ],
)  # fmt: skip
def test_a_program_that_does_not_measure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(perf, "_MARGIN_SECONDS", 0.5 if "sleep" in does else 60)
    (tmp_path / "perf_analyzer.csv").write_text(f"{HEAD}\n1,2,1,2,3,4\n", "utf-8")
    program = tmp_path / "perf_analyzer"
    program.write_text(does, "latin-1")
    program.chmod(0o755)
    with pytest.raises(kind, match=said):
        measured(program, tmp_path)


@pytest.mark.thorough
def test_windows_grow_for_slow_requests(running: Triton, programs: Programs, tmp_path: Path) -> None:
    # A request takes 10 ms, and three windows of 50 ms never agree to a tenth for long: it is measured all the same.
    found = measured(programs.perf_analyzer, tmp_path, running.grpc)
    assert 20 < found.inferences_per_second < 100
    assert 0.01 < found.p50_seconds < 0.2


def test_why_it_failed_is_said_once(running: Triton, programs: Programs, tmp_path: Path) -> None:
    with pytest.raises(perf.LoadError) as refused:
        measured(programs.perf_analyzer, tmp_path, running.grpc, setting=Setting(batch=64, concurrency=4))
    assert refused.value.what.count("batch-size must be <= 8 for 'sleeper'") == 1


MIB = 2**20
# What a Triton with two GPUs says; the one of the tests has none.
METRICS = """\
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 85899345920.000000
# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1073741824.000000
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} 2.147483648e+09
"""
GROWING = """\
import os, sys, time
block = bytearray(int(sys.argv[1]) * 2**20)
if os.fork() == 0:
    time.sleep(60)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def metrics() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def group() -> Iterator[int]:
    """Two processes that share 64 MiB, in a group of their own."""
    command = [sys.executable, "-c", GROWING, "64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="NOT RUN: LINUX ALONE TELLS THE MEMORY OF PROCESSES.")
def test_pages_that_processes_share_are_counted_once(group: int) -> None:
    found = host_bytes(group)
    assert found is not None
    assert 64 * MIB < found < 64 * MIB + 60 * MIB


def test_the_memory_of_all_gpus_is_summed_and_where_nothing_tells_of_any_nothing_is_said(metrics: str) -> None:
    assert gpu_bytes(f"{metrics}/metrics") == 3 * 2**30
    assert host_bytes(2**30) is None
    assert gpu_bytes(f"{metrics}/elsewhere") is None
    assert gpu_bytes("http://127.0.0.1:1/metrics") is None
    assert gpu_bytes("nonsense") is None


def test_the_most_of_a_time_is_kept(metrics: str, group: int) -> None:
    with watched(group, f"{metrics}/metrics") as peak:
        pass
    assert peak.gpu == 3 * 2**30
    assert peak.host is not None
    peak.see(1, None)
    assert peak.host > 64 * MIB
    with watched(None, None) as nothing:
        pass
    assert (nothing.host, nothing.gpu) == (None, None)
