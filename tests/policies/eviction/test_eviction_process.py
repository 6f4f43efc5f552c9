import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import eviction_process
from tidegate_contracts.eviction import EvictionSettings
from tidegate_eviction.__main__ import app
from tidegate_eviction.core.messages import Unload
from tidegate_eviction.process import EvictionPolicy, ServeOptions
from typer.testing import CliRunner

from lab.local_plane.credentials import write_cluster
from lab.local_plane.policy import Policy, policy, write_settings
from lab.local_plane.process import HOST, free_ports
from lab.local_plane.triton import Triton

from .rigs.caller import Holder, until
from .rigs.running_policy import pool
from .rigs.stand_in import SECRET, StandIn, serving
from .rigs.stand_in import until as until_true

pytestmark = pytest.mark.anyio


def settings(root: Path, **changes: Any) -> EvictionSettings:
    return pool(root, "a", **changes)


@contextmanager
def running(root: Path) -> Iterator[Policy]:
    (root / "models" / "a" / "1").mkdir(parents=True, exist_ok=True)
    http, grpc, metrics = free_ports(3)
    with policy(root, Triton(None, http, grpc, metrics)) as made:  # type: ignore[arg-type]
        yield made


def refused(root: Path, *options: object) -> str:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidegate_service.json_lines.configure", lambda _: None)  # pytest has replaced log handlers.
        write_cluster(root / "cluster")
        done = CliRunner().invoke(app, ["serve", "--host", HOST, "--root", str(root), *map(str, options)])
    assert done.exit_code == 2
    return done.stderr.splitlines()[-1]


def test_it_serves_before_triton_is_there(tmp_path: Path) -> None:
    write_settings(tmp_path, settings(tmp_path))
    with running(tmp_path) as made:
        holder = Holder(made)
        assert len((tmp_path / "control" / "secret").read_text()) == 64
        for path in (eviction_process.STARTED_PATH, eviction_process.LIVE_PATH):
            assert holder.ask("GET", path, address=made.admin)[0] == 200
        assert holder.acquire("a")["outcome"] == "busy"
        metrics = holder.ask("GET", eviction_process.METRICS_PATH, address=made.admin)[1]
        assert "tidegate_eviction_triton_up 0.0" in metrics
        made.process.popen.send_signal(signal.SIGTERM)
        assert made.process.popen.wait(20) == 0
    for line in (tmp_path / "policy.log").read_text("utf-8").splitlines():
        assert line.startswith("ready ") or {"time", "level", "message"} <= json.loads(line).keys()


def test_an_invalid_file_at_run_time_is_refused_and_reported(tmp_path: Path) -> None:
    write_settings(tmp_path, settings(tmp_path))
    with running(tmp_path) as made:
        holder = Holder(made)
        (tmp_path / "eviction.json").write_text("{")

        def metrics() -> str:
            return holder.ask("GET", eviction_process.METRICS_PATH, address=made.admin)[1]

        until(lambda: "tidegate_eviction_settings_good 0.0" in metrics())
        assert holder.listing().capacity_bytes == 10**9
        write_settings(tmp_path, settings(tmp_path, capacity_bytes=2000))
        until(lambda: holder.listing().capacity_bytes == 2000)
        assert "tidegate_eviction_settings_good 1.0" in metrics()


def test_over_a_bad_file_it_starts_with_the_last_good_one(tmp_path: Path) -> None:
    write_settings(tmp_path, settings(tmp_path, capacity_bytes=777))
    with running(tmp_path):
        pass
    (tmp_path / "eviction.json").write_text('{"version": 1}')
    with running(tmp_path) as made:
        assert Holder(made).listing().capacity_bytes == 777
        metrics = Holder(made).ask("GET", eviction_process.METRICS_PATH, address=made.admin)[1]
        assert "tidegate_eviction_settings_good 0.0" in metrics


def test_without_valid_settings_it_reports_why_and_does_not_start(tmp_path: Path) -> None:
    output = refused(tmp_path)
    assert output == f"{tmp_path / 'eviction.json'}: the file cannot be read: No such file or directory"
    (tmp_path / "eviction.json").write_text(settings(tmp_path, policy="fifo").model_dump_json(by_alias=True))
    assert 'policy: there is no policy "fifo". The built-in policies are ' in refused(tmp_path)


class Mute(StandIn):
    async def RepositoryModelUnload(self, request: Any, _: Any) -> None:
        self.calls.append(("unload", request.model_name))
        await asyncio.sleep(3600)


@pytest.mark.parametrize("kind", [StandIn, Mute])
async def test_its_port_is_open_until_it_has_nothing_under_way_at_triton(tmp_path: Path, kind: type[StandIn]) -> None:
    write_settings(tmp_path, settings(tmp_path))
    (tmp_path / "models" / "a" / "1").mkdir(parents=True)
    stand_in = kind({"a": 1}, states={"a": ("READY", "")}, stuck={"a"})
    open_at_the_end = []
    async with asyncio.timeout(20), serving(stand_in):
        options = ServeOptions(
            HOST, 0, 0, stand_in.address, settings=tmp_path / "eviction.json", control=tmp_path, state=tmp_path,
            cluster=write_cluster(tmp_path / "cluster"),
        )  # fmt: skip
        (tmp_path / "secret").write_text(SECRET)
        policy = EvictionPolicy(options)
        await policy.start()
        await until_true(lambda: policy.driver.is_up)
        policy.driver.carry_out([Unload(1, "a", ("a",))])
        await until_true(lambda: stand_in.did("unload"))
        (work,) = policy.driver._tasks

        def ended(_: "asyncio.Task[None]") -> None:
            with socket.create_connection((HOST, policy.ports["lease"]), 1):
                open_at_the_end.append(not policy._server.should_exit)

        work.add_done_callback(ended)
        await policy.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, policy.ports["lease"]), 1)
    assert open_at_the_end == [True]


def test_unusable_settings_are_named(tmp_path: Path) -> None:
    write_settings(tmp_path, settings(tmp_path))
    (tmp_path / "control").write_text("")
    assert "File exists" in refused(tmp_path)
    (tmp_path / "control").unlink()
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        for which, other in (("--lease-port", "--admin-port"), ("--admin-port", "--lease-port")):
            output = refused(tmp_path, which, port, other, 0)
            assert "Address already in use" in output
            assert str(port) in output
