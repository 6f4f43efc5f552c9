import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import proxy_process, routing
from tidegate_contracts.proxy_settings import ProxySettings, variable
from tidegate_proxy import config
from tidegate_proxy.__main__ import app
from tidegate_proxy.access.api_keys import read_api_keys
from tidegate_proxy.pace import StoppedError, Yielder
from tidegate_proxy.problems import TableError
from tidegate_proxy.routes import Route, Routes
from tidegate_proxy.tables import read_routing
from typer.testing import CliRunner

from lab.local_plane.process import HOST, ROOT
from lab.local_plane.proxy import SETTINGS, write_tables

from ..http.running_proxy import address_of, running_proxy, until
from ..rigs.tables import access_table, routing_table

pytestmark = pytest.mark.anyio


def environment(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings as variables. One with the value `-` is left out."""
    values = {variable(name): value for name, value in SETTINGS.items()} | settings
    return {name: value for name, value in values.items() if value != "-"}


def run(*arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(map(str, (ROOT / "proxy", ROOT / "contracts", ROOT / "service")))
    return subprocess.run(
        [sys.executable, "-m", proxy_process.MODULE, *map(str, arguments)],
        env=os.environ | environment(settings) | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tables(tmp_path, routing_table(1, 2, ["m"]), access_table())
    return tmp_path


def refused(root: Path, *arguments: str, **settings: str) -> str:
    ports = [word for side in ("http", "grpc", "admin") for word in (f"--{side}-port", "0")]
    words = ["--root", str(root), "--host", HOST, *ports, *arguments]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidegate_proxy.__main__.configure", lambda _: None)  # the log is pytest's
        ended = CliRunner().invoke(app, words, env=environment(settings))
    assert isinstance(ended.exception, SystemExit), ended.exception
    lines = ended.stderr.strip().splitlines()
    assert (ended.exit_code, ended.stdout) == (2, ""), ended.output
    assert len(lines) == 1, ended.stderr
    return lines[0]


def test_help_names_every_setting_and_needs_none() -> None:
    ended = run("--help", **{variable(name): "-" for name in ProxySettings.model_fields})
    assert ended.returncode == 0, ended.stderr
    for name in ProxySettings.model_fields:
        assert variable(name) in ended.stdout


@pytest.mark.parametrize(
    ("setting", "value", "what"),
    [
        ("CONCURRENCY", "many", "TIDEGATE_PROXY_CONCURRENCY: "),
        ("CONCURRENCY", "0", "TIDEGATE_PROXY_CONCURRENCY: "),
        ("DRAIN_SECONDS", "-1", "TIDEGATE_PROXY_DRAIN_SECONDS: "),
        ("LOG_LEVEL", "loud", "TIDEGATE_PROXY_LOG_LEVEL: "),
        ("TLS", "perhaps", "TIDEGATE_PROXY_TLS: "),
        ("PATH", "inference", "TIDEGATE_PROXY_PATH: "),
        ("PATH", "/a/..", "TIDEGATE_PROXY_PATH: "),
        ("PATH", "/v2", "TIDEGATE_PROXY_PATH: Value error, the proxy's own addresses begin like this"),
        ("ENVIRONMENT", "-", "TIDEGATE_PROXY_ENVIRONMENT: it is missing"),
        ("CONCURENCY", "5", "TIDEGATE_PROXY_CONCURENCY is not a setting"),
    ],
)
def test_a_wrong_setting_is_one_line_with_its_name(root: Path, setting: str, value: str, what: str) -> None:
    assert refused(root, **{f"{proxy_process.ENVIRONMENT_PREFIX}{setting}": value}).startswith(what)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("routing.json", None, "cannot be read: No such file"),
        ("access.json", None, "cannot be read: No such file"),
        ("routing.json", "{", "it is not a routing table"),
        ("routing.json", "[" * 100_000, "it is not a routing table"),
        ("routing.json", "\x00", "it is not a routing table"),
        ("access.json", '{"version":1}', "rateLimit"),
        ("access.json", "nonsense", "Invalid JSON"),
        (
            "access.json",
            '{"rateLimit":{"requestsPerMinute":0,"burst":1}}',
            "rateLimit.requestsPerMinute: Input should be",
        ),
        ("access.json", '{"rateLimit":{"requestsPerMinute":1,"burst":0}}', "rateLimit.burst: Input should be greater"),
    ],
)
def test_a_bad_table_is_one_line_with_its_file(root: Path, name: str, text: str | None, what: str) -> None:
    path = root / "routing" / name
    path.unlink() if text is None else path.write_text(text)
    line = refused(root)
    assert line.startswith(f"{path}: ")
    assert what in line


@pytest.mark.parametrize(
    ("setting", "files", "what"),
    [
        ("tls", {}, "cannot be read: No such file"),
        ("tls", {"tls/tls.crt": "nonsense", "tls/tls.key": "nonsense"}, "not a certificate and its key"),
        ("authorities", {}, "cannot be read: No such file"),
        ("authorities", {"authorities/ours.crt": "nonsense"}, "ours.crt contains no certificates in PEM format"),
        ("api_keys", {"api-keys/ci": "tgk_in-plain-text\n"}, "api-keys"),
    ],
)
def test_an_invalid_certificate_authority_or_key_is_one_line(
    root: Path, setting: str, files: dict[str, str], what: str
) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    line = refused(root, **{variable(setting): "true"})
    assert what in line
    assert "tgk_in-plain-text" not in line


def test_a_port_in_use_is_reported(root: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        for side in ("http", "grpc", "admin"):
            line = refused(root, f"--{side}-port", str(taken.getsockname()[1]))
            assert str(taken.getsockname()[1]) in line
            assert "in use" in line


def test_the_program_itself_ends_with_2_and_a_line(root: Path) -> None:
    for arguments in (("--root", root, "--http-port", "99999"), ("--root", root / "nowhere")):
        ended = run(*arguments)
        assert (ended.returncode, ended.stdout, "Traceback" in ended.stderr) == (2, "", False), ended
        assert "65535" in ended.stderr or "cannot be read" in ended.stderr


def test_a_new_key_is_shown_once_with_its_line_of_the_file(tmp_path: Path) -> None:
    found = [CliRunner().invoke(app, ["key", "new"], env={}).stdout.split() for _ in range(2)]
    assert found[0] != found[1]
    for words in found:
        [key] = [word for word in words if word.startswith("tgk_")]
        (tmp_path / "keys").mkdir(exist_ok=True)
        (tmp_path / "keys" / "ci").write_text(words[-1] + "\n")
        assert key not in words[-1]
        assert read_api_keys(tmp_path / "keys")


# --- tables
POOL = {"name": "main", "host": "h", "httpPort": 1, "grpcPort": 2, "loading": "preload"}
SERVER = {"name": "s", "kind": "triton", "pools": [POOL]}
MODEL = {"name": "m", "server": "s", "pool": "main"}


def shares(*weights: int, **more: Any) -> dict[str, Any]:
    versions = [{"version": number, "weight": weight} for number, weight in enumerate(weights, 1)]
    return {"models": [{**MODEL, "versions": versions, **more}]}


def document(**more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"version": 1, "environment": "e", "servers": [SERVER], "models": [MODEL]}
    return {**usual, **more}


def pooled(**more: Any) -> dict[str, Any]:
    return {"servers": [{**SERVER, "pools": [POOL | more]}]}


UNREACHABLE = ("", "\0", "a..b", "a" * 64, "é", "a\r\nX: y", "a b")
REFUSED = [
    (shares(10, 10), "the shares of model m's versions must sum to 100, but sum to 20"),
    (shares(0, 0), "the shares of model m's versions must sum to 100, but sum to 0"),
    (shares(100, alias="champion"), "models.0: model m has both shares of versions and an alias"),
    (
        {"models": [{**MODEL, "versions": [{"version": 3, "weight": 50}] * 2}]},
        "model m has the version 3 twice",
    ),
    ({"models": [MODEL, MODEL]}, "model m is listed twice on server s"),
    ({"models": [{**MODEL, "pool": "other"}]}, "model m is in s/other, a pool that the table does not have"),
    ({"models": [{"name": "m"}]}, "models.0.server: Field required (and 1 more)"),
    ({"servers": [{**SERVER, "pools": [POOL, POOL]}]}, "servers.0: server s has the pool main twice"),
    ({"servers": [SERVER, SERVER]}, "the table has the server s twice"),
    *((pooled(host=host), "servers.0.pools.0.host: String should ") for host in UNREACHABLE),
    (pooled(httpPort=0), "servers.0.pools.0.httpPort: Input should be greater than or equal to 1"),
    (pooled(grpcPort=2**70), "servers.0.pools.0.grpcPort: Input should be less than or equal to 65535"),
    (pooled(leasePort=-1), "servers.0.pools.0.leasePort: Input should be greater than or equal to 1"),
]
TAKEN = [
    *(shares(20, 80), shares(100, 0), shares(), {"models": [{**MODEL, "alias": "champion"}]}),
    *(pooled(host=host) for host in ("replicas", "10.0.0.1", "::1", "fe80::1", "my_svc.ns-1.svc.cluster.local.")),
]


def table_of(document: dict[str, Any]) -> routing.RoutingTable:
    nothing = Routes(routing.RoutingTable(environment="test", servers=(), models=()), {})
    new = read_routing(json.dumps(document).encode(), nothing, Yielder(rests=False))
    models = [model for _, parts in new.models if not isinstance(parts, Route) for model in parts]
    return new.table.model_copy(update={"models": tuple(models)})


@pytest.mark.parametrize(("more", "why"), REFUSED, ids=range(len(REFUSED)))
def test_a_routing_table_that_means_nothing_is_refused_in_one_line(more: dict[str, Any], why: str) -> None:
    with pytest.raises(TableError) as caught:
        table_of(document(**more))
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="s"):
        routing.RoutingTable.model_validate_json(json.dumps(document(**more)))


def test_a_kind_of_server_that_the_proxy_does_not_know_is_refused_in_one_line() -> None:
    servers = [{**SERVER, "kind": "dynamo"}]
    with pytest.raises(TableError, match=r"^server s: this proxy does not know the kind 'dynamo'$"):
        table_of(document(servers=servers))


@pytest.mark.parametrize("more", TAKEN, ids=range(len(TAKEN)))
def test_a_table_that_means_something_is_taken(more: dict[str, Any]) -> None:
    assert table_of(document(**more)) == routing.RoutingTable.model_validate_json(json.dumps(document(**more)))


async def test_a_good_table_that_could_not_be_read_for_a_while_is_read_then(tmp_path: Path) -> None:
    file, used = tmp_path / "routing.json", []

    async def use(data: bytes) -> None:
        used.append(data)

    watched = config.WatchedFile("routing", file, Path.read_bytes, use)
    file.write_bytes(b"1")
    await watched.load()
    file.write_bytes(b"22")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(3):
            await watched.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (watched.failures, watched.last_error) == (1, "it cannot be read: Too many open files"), "reported once"
    for _ in range(2):
        await watched.look()
    assert (used, watched.generation, watched.last_error) == ([b"1", b"22"], 2, "")


async def test_the_last_number_of_replicas_stays_while_their_name_leads_nowhere(tmp_path: Path) -> None:
    async with running_proxy(tmp_path) as here:
        following, counted = here.proxy.config, []
        found = [address_of(port) for port in range(1, 6)]

        async def find(_: str, __: int) -> list[Any]:
            counted.append(len(found))
            return list(found)

        following._find = find
        counting = asyncio.create_task(following.count_replicas(0.01))
        await until(lambda: following.authorizer._replicas == 5)
        found.clear()
        await until(lambda: counted.count(0) > 3)
        assert following.authorizer._replicas == 5
        found.append(address_of(1))
        await until(lambda: following.authorizer._replicas == 1)
        counting.cancel()


def test_the_reading_of_a_table_ends_at_its_next_step_when_the_proxy_does() -> None:
    stop = threading.Event()
    pace = Yielder(rests=True, stop=stop)
    pace.step()
    stop.set()
    with pytest.raises(StoppedError):
        pace.step()


async def test_closing_stops_the_reading_of_tables(tmp_path: Path) -> None:
    async with running_proxy(tmp_path) as here:
        assert not here.proxy.config._stop.is_set()
        await here.proxy.stop()
        assert here.proxy.config._stop.is_set()
