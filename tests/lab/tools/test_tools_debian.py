import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.local_plane.process import CannotBeHadError
from lab.tools import ToolError, debian
from tests.proxy.rigs.peers import debian_package

STATUS = Path("/var/lib/dpkg/status")
PACKAGE, PROGRAM = "hello", "hello"  # An example package of a few kilobytes that nothing needs.


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if reason := debian.why_not():
        pytest.skip(f"NOT RUN: NO DEBIAN PACKAGES CAN BE DOWNLOADED HERE ({reason}), so no test unpacked one.")
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_package_is_unpacked_once_and_its_program_runs_but_nothing_is_installed(
    own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = STATUS.read_bytes()
    found = debian.unpacked(PACKAGE)
    program, environment = found.path(PROGRAM), found.environment()
    assert own_cache in program.parents
    done = subprocess.run([program], capture_output=True, text=True, env=environment, timeout=20)
    assert done.stdout == "Hello, world!\n"
    assert STATUS.read_bytes() == before
    assert "nothing is installed" in capsys.readouterr().err
    # Unpacked files are found before installed ones.
    assert shutil.which(PROGRAM, path=environment["PATH"]) == str(program)
    assert environment["PATH"].endswith(os.environ["PATH"])
    with pytest.raises(ToolError, match="no program 'goodbye'"):
        found.path("goodbye")
    monkeypatch.setattr(debian, "run", lambda *_: pytest.fail("apt was run"))
    assert debian.unpacked(PACKAGE) == found


@pytest.mark.thorough
def test_an_unknown_package_is_refused_by_name_with_apts_output(own_cache: Path) -> None:
    with pytest.raises(ToolError) as raised:
        debian.unpacked("there-is-no-such-package")
    message = str(raised.value)
    assert "downloading the Debian packages there-is-no-such-package failed: exit code 100" in message
    assert "Unable to locate package there-is-no-such-package" in message
    assert "remedy: " in message
    assert not [path for path in (own_cache / "debian").iterdir() if path.is_dir()], "nothing half-made stays"


def test_a_machine_without_apt_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    why = "there is no apt-get and no dpkg-deb on the PATH, so the Debian packages hello cannot be unpacked"
    with pytest.raises(CannotBeHadError, match=f"Debian's hello: {why}"):
        debian_package(PACKAGE)
