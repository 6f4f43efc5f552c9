"""Whatever is wrong with settings and files is said in one clear line, before anything listens."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_settings import ProxySettings, variable
from tidegate_proxy.__main__ import app
from tidegate_proxy.access.api_keys import read_api_keys
from typer.testing import CliRunner

from lab.local_plane.process import HOST, ROOT
from lab.local_plane.proxy import SETTINGS, write_tables

from ..rigs.tables import access_table, routing_table


def environment(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings as variables; one of `-` is left out."""
    said = {variable(name): value for name, value in SETTINGS.items()} | settings
    return {name: value for name, value in said.items() if value != "-"}


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
    """Return the one line in which the proxy refuses to run."""
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
    ("setting", "value", "said"),
    [
        ("CONCURRENCY", "many", "TIDEGATE_PROXY_CONCURRENCY: "),
        ("CONCURRENCY", "0", "TIDEGATE_PROXY_CONCURRENCY: "),
        ("DRAIN_SECONDS", "-1", "TIDEGATE_PROXY_DRAIN_SECONDS: "),
        ("LOG_LEVEL", "loud", "TIDEGATE_PROXY_LOG_LEVEL: "),
        ("TLS", "perhaps", "TIDEGATE_PROXY_TLS: "),
        ("ENVIRONMENT", "-", "TIDEGATE_PROXY_ENVIRONMENT: it is missing"),
        ("CONCURENCY", "5", "TIDEGATE_PROXY_CONCURENCY is no setting"),
    ],
)
def test_a_wrong_setting_is_one_line_with_its_name(root: Path, setting: str, value: str, said: str) -> None:
    assert refused(root, **{f"{proxy_process.ENVIRONMENT_PREFIX}{setting}": value}).startswith(said)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("routing.json", None, "cannot be read: No such file"),
        ("access.json", None, "cannot be read: No such file"),
        ("routing.json", "{", "it is no routing table"),
        ("routing.json", "[" * 100_000, "it is no routing table"),
        ("routing.json", "\x00", "it is no routing table"),
        ("access.json", '{"version":1}', "rateLimit"),
        ("access.json", "nonsense", "Invalid JSON"),
    ],
)
def test_a_bad_table_is_one_line_with_its_file(root: Path, name: str, text: str | None, said: str) -> None:
    path = root / "routing" / name
    path.unlink() if text is None else path.write_text(text)
    line = refused(root)
    assert line.startswith(f"{path}: ")
    assert said in line


def test_a_bad_certificate_is_one_line(root: Path) -> None:
    (root / "tls").mkdir()
    switch = {variable("tls"): "true"}
    assert "cannot be read: No such file" in refused(root, **switch)
    (root / "tls" / "tls.crt").write_text("nonsense")
    (root / "tls" / "tls.key").write_text("nonsense")
    assert "no certificate and its key" in refused(root, **switch)


def test_a_key_that_is_none_is_one_line(root: Path) -> None:
    (root / "api-keys").mkdir()
    (root / "api-keys" / "ci").write_text("tgk_in-plain-text\n")
    line = refused(root, **{variable("api_keys"): "true"})
    assert "api-keys" in line
    assert "tgk_in-plain-text" not in line


def test_a_port_that_is_taken_is_told(root: Path) -> None:
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


def test_a_new_key_is_shown_once_with_the_line_that_stands_for_it(tmp_path: Path) -> None:
    found = [CliRunner().invoke(app, ["key", "new"], env={}).stdout.split() for _ in range(2)]
    assert found[0] != found[1]
    for words in found:
        [key] = [word for word in words if word.startswith("tgk_")]
        (tmp_path / "keys").mkdir(exist_ok=True)
        (tmp_path / "keys" / "ci").write_text(words[-1] + "\n")
        assert key not in words[-1]
        assert read_api_keys(tmp_path / "keys")
