import http.client
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import eviction_process
from tidegate_contracts import triton as contract
from tidegate_contracts.eviction import ManagedModel, Tuning
from tritonclient.utils import InferenceServerException

from lab.local_cluster.certificates import Authority
from lab.local_plane.policy import Policy, policy, triton_options, write_settings
from lab.local_plane.repository import Model, publish
from lab.local_plane.triton import Triton, triton
from tests.proxy.rigs.pytest_rigs import not_run

from ..rigs import nosy as nosy_model
from ..rigs import zoo
from ..rigs.caller import Holder, infer, until
from ..rigs.nvml import library
from ..rigs.running_policy import pool

MIB = 1 << 20
STUB = 18  # MiB of a process of the Python backend without a model's memory, approximately.


def write(root: Path, *names: str, models: tuple[ManagedModel, ...] = (), **changes: Any) -> None:
    """Write settings for a pool with these models. Models given by name are measured."""
    tuning = Tuning(tolerance_bytes=8 * MIB, freeing_seconds=5, residency_factor=0, failure_backoff_seconds=0.1)
    defaults: dict[str, Any] = {"capacity_bytes": 200 * MIB, "lease_seconds": 3, "wait_seconds": 20, "tuning": tuning}
    write_settings(root, pool(root, *models, *names, **(defaults | changes)))


@dataclass
class Plane:
    root: Path
    triton: Triton
    policy: Policy

    @property
    def holder(self) -> Holder:
        return Holder(self.policy)

    @property
    def log(self) -> str:
        return (self.root / "policy.log").read_text("utf-8")


@contextmanager
def real_triton(root: Path, *options: str) -> Iterator[Triton]:
    with ExitStack() as stack:
        with not_run("A REAL TRITON"):
            options = (*triton_options(root), *options)
            server = stack.enter_context(triton(root / "triton", root / "models", options=options))
        yield server


@contextmanager
def plane(root: Path, drain_seconds: float = 0) -> Iterator[Plane]:
    options = ["--drain-seconds", str(drain_seconds)]
    with real_triton(root) as server, policy(root, server, options=options) as made:
        yield Plane(root, server, made)


@pytest.fixture(scope="module")
def zoo_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    root = tmp_path_factory.mktemp("plane")
    (root / "models").mkdir()
    for name in "abc":
        zoo.model(root / "models", name, 60)
    zoo.model(root / "models", "many", 20, versions=(1, 2, 3))
    zoo.model(root / "models", "broken", fails="there is no such op")
    zoo.ensemble(root / "models", "both", "a", "b")
    # One has an unknown size, the other a declared one.
    declared = ManagedModel(name="c", footprint_bytes=(60 + STUB + 4) * MIB)
    write(root, "a", "broken", "both", models=(declared, ManagedModel(name="many", versions=(1, 3))))
    with plane(root) as made:
        yield made


def test_a_cold_model_is_loaded_measured_and_answers(zoo_plane: Plane) -> None:
    holder = zoo_plane.holder
    reply = holder.acquire("a")
    assert (reply["outcome"], reply["versions"]) == ("granted", [1])
    assert infer(zoo_plane.triton.http, "a", 5) == 5
    again = holder.acquire("a")
    assert (again["outcome"], again["waitedSeconds"]) == ("granted", 0)
    found = holder.listed("a")
    assert found.footprint_from == "measured"
    assert found.footprint_bytes is not None
    assert 60 + STUB - 10 < found.footprint_bytes / MIB < 60 + STUB + 15
    holder.release("a")


def test_just_the_versions_that_get_traffic_are_loaded(zoo_plane: Plane) -> None:
    holder = zoo_plane.holder
    assert holder.acquire("many")["versions"] == [1, 3]
    assert [infer(zoo_plane.triton.http, "many", 4, version) for version in ("1", "3")] == [4, 4]
    with pytest.raises(InferenceServerException, match="version 2"):
        infer(zoo_plane.triton.http, "many", 4, "2")
    holder.release("many")


def test_models_are_evicted_and_an_unloaded_model_does_not_respond(zoo_plane: Plane) -> None:
    holder = zoo_plane.holder
    for name in ("a", "many", "c"):
        assert holder.acquire(name)["outcome"] == "granted"
        holder.release(name)
    listing = holder.listing()
    assert listing.resident_bytes + listing.freeing_bytes + listing.leaked_bytes <= listing.capacity_bytes
    cold = [each.model for each in listing.models if each.state == "cold" and each.model in ("a", "many")]
    assert cold
    with pytest.raises(InferenceServerException, match=r"not found|no available versions|unknown model"):
        infer(zoo_plane.triton.http, cold[0])
    assert listing.leaked_bytes == 0


def test_an_ensemble_brings_its_parts_and_takes_them_along(zoo_plane: Plane) -> None:
    holder = zoo_plane.holder
    assert holder.acquire("both")["outcome"] == "granted"
    assert infer(zoo_plane.triton.http, "both", 9) == 9
    holder.release("both")
    for name in ("c", "many"):
        assert holder.acquire(name)["outcome"] == "granted"
    holder.until("both", "cold")
    for name in ("a", "b"):
        with pytest.raises(InferenceServerException):
            infer(zoo_plane.triton.http, name)
    holder.release("c", "many")


def test_a_model_that_fails_is_quarantined_with_tritons_reason(zoo_plane: Plane) -> None:
    holder = zoo_plane.holder
    until(lambda: holder.acquire("broken", 5)["outcome"] == "quarantined")
    assert "there is no such op" in holder.acquire("broken")["why"]


def test_a_model_can_read_the_secret_of_only_its_triton(tmp_path: Path, zoo_plane: Plane) -> None:
    """Triton accepts it on its command line only. Such a model can also end its Triton, or alter others' data."""
    report = tmp_path / "report.json"
    nosy = Model("nosy", Path(nosy_model.__file__), [("INPUT", *zoo.NUMBER)], [("OUTPUT", *zoo.NUMBER)],
                 parameters={"report": report})  # fmt: skip
    (tmp_path / "models").mkdir()
    publish(nosy, tmp_path / "models", tmp_path / "staging")
    write(tmp_path, "nosy")

    def control(server: Triton, *secret: str) -> int:
        asking = http.client.HTTPConnection(server.http, timeout=10)
        headers = dict.fromkeys([contract.RESTRICTED_KEY][: len(secret)], *secret)
        asking.request("POST", "/v2/repository/index", headers=headers)
        return asking.getresponse().status

    with plane(tmp_path) as running:
        assert running.holder.acquire("nosy")["outcome"] == "granted"
        found = json.loads(report.read_text())
        (option,) = (each for each in found["command"] if each.startswith("--http-restricted-api="))
        secret = option.rpartition("=")[2]
        assert secret == (tmp_path / "control" / "secret").read_text()
        (option,) = (each for each in found["command"] if "shm-region-prefix-name=" in each)
        region = option.rpartition("=")[2]
        assert any(name.startswith(region) for name in found["writable"]), "what it shares with its models' processes"
        assert (control(running.triton), control(running.triton, secret)) == (403, 200)
        assert control(zoo_plane.triton, secret) == 403
        assert secret not in running.log


def small(root: Path, *names: str, seconds: float = 0, **changes: Any) -> None:
    (root / "models").mkdir()
    for name in names:
        zoo.model(root / "models", name, 20, seconds)
    write(root, *names, **changes)


def test_a_policy_killed_in_the_middle_of_a_load_watches_it_and_loads_nothing_twice(tmp_path: Path) -> None:
    small(tmp_path, "a", "b", seconds=2)
    with real_triton(tmp_path, "--log-verbose=1") as server:
        secret = (tmp_path / "control" / "secret").read_text()
        with policy(tmp_path, server) as first:
            holder = Holder(first)
            assert holder.acquire("b")["outcome"] == "granted"
            assert holder.acquire("a", 0.5)["outcome"] == "busy"
            assert holder.listed("a").state == "loading"
            os.kill(first.process.pid, signal.SIGKILL)
            first.process.popen.wait()
        assert infer(server.http, "b") == 7, "inference goes on"
        with policy(tmp_path, server) as second:
            holder = Holder(second)
            assert holder.acquire("a")["outcome"] == "granted"
            assert holder.listed("b").state == "resident"
        assert (tmp_path / "control" / "secret").read_text() == secret
        loads = re.findall(r"loading: a:1", (tmp_path / "triton" / "triton.log").read_text("utf-8", "replace"))
        assert len(loads) == 1


def test_triton_killed_is_seen_within_a_second_and_its_successor_serves(tmp_path: Path) -> None:
    small(tmp_path, "a", "b")
    with ExitStack() as stack:
        inner = stack.enter_context(ExitStack())
        server = inner.enter_context(real_triton(tmp_path))
        holder = Holder(stack.enter_context(policy(tmp_path, server)))
        reply = holder.acquire("a")
        assert reply["outcome"] == "granted"
        os.killpg(server.process.pid, signal.SIGKILL)
        assert holder.until("a", "cold") < 5, "a second where nothing else runs"
        assert holder.renew(reply["incarnation"], "a").lost == ("a",)
        inner.close()
        ports = (server.http_port, server.grpc_port, server.metrics_port)
        stack.enter_context(
            triton(tmp_path / "again", tmp_path / "models", options=triton_options(tmp_path), ports=ports)
        )
        again = holder.acquire("a")
        assert again["outcome"] == "granted"
        assert again["incarnation"] != reply["incarnation"]
        assert infer(server.http, "a", 3) == 3
    log = (tmp_path / "policy.log").read_text("utf-8")
    assert "never retrieved" not in log
    assert "defect" not in log


@pytest.mark.thorough
def test_it_leaves_last_and_renews_until_then(tmp_path: Path) -> None:
    small(tmp_path, "a")
    with plane(tmp_path, drain_seconds=60) as made:
        holder = made.holder
        reply = holder.acquire("a")
        made.policy.process.popen.terminate()
        until(lambda: not holder.renew(reply["incarnation"], "a").accepts)
        assert Holder(made.policy, "another").acquire("a")["outcome"] == "busy"
        for _ in range(10):  # Longer than a lease.
            assert holder.renew(reply["incarnation"], "a").lost == ()
            time.sleep(0.4)
        assert made.policy.process.popen.poll() is None
        holder.release("a")
        assert made.policy.process.popen.wait(10) == 0


@pytest.mark.thorough
def test_in_a_slice_the_driver_is_queried_in_tritons_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path, "a")
    with not_run("THE STAND-IN FOR NVML"):
        made = library(tmp_path)
    for name, value in {"NVML_GPUS": "1", "NVML_USED": str(3 << 30), "LD_PRELOAD": str(made)}.items():
        monkeypatch.setenv(name, value)
    with plane(tmp_path) as running:
        assert running.holder.acquire("a")["outcome"] == "granted"
        text = running.holder.ask("GET", eviction_process.METRICS_PATH, address=running.policy.admin)[1]
        assert 'tidegate_eviction_memory_source{source="nvml"} 1.0' in text
        assert float(re.findall(r"^tidegate_eviction_memory_used_bytes (.*)$", text, re.MULTILINE)[0]) == 3 << 30


def test_with_tls_triton_is_known_by_its_name_and_no_other_is_spoken_to(tmp_path: Path) -> None:
    small(tmp_path, "a", grpc_tls=True)
    tls = Authority().write(tmp_path / "tls", "triton.models.svc")
    options = ["--grpc-use-ssl=true", f"--grpc-server-cert={tls / 'tls.crt'}", f"--grpc-server-key={tls / 'tls.key'}"]
    with real_triton(tmp_path, *options) as server:
        with policy(tmp_path, server, options=["--drain-seconds", "0"]) as known:
            assert Holder(known).acquire("a")["outcome"] == "granted"
        Authority().write(tmp_path / "tls", "triton.models.svc")
        with policy(tmp_path, server) as stranger:
            assert Holder(stranger).acquire("a", 2)["outcome"] == "busy"
            metrics = Holder(stranger).ask("GET", eviction_process.METRICS_PATH, address=stranger.admin)[1]
            assert "tidegate_eviction_triton_up 0.0" in metrics
