"""How much memory is in use, as Linux and Triton's metrics tell it."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tidegate.triton.tuning.perf import gpu_bytes, host_bytes, watched

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
    """A server that says METRICS."""

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


def test_a_group_that_is_no_more_has_no_memory() -> None:
    assert host_bytes(2**30) is None


def test_the_memory_of_all_gpus_is_summed(metrics: str) -> None:
    assert gpu_bytes(f"{metrics}/metrics") == 3 * 2**30


def test_where_nothing_tells_of_gpus_nothing_is_said(metrics: str) -> None:
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
