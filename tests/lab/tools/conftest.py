"""Helpers of the tools' tests: a cache, a PATH, stand-ins, and `python -m lab.tools` as a process."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.tools import gotoolchain
from tests.processes import programs

# A stand-in for Go: it records every build, waits for the file $FAKE_UNTIL, and "builds" a script that prints a
# version.
FAKE_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go${FAKE_GO_VERSION:-1.26.8} linux/amd64"; exit; fi
echo "$*" >> "$FAKE_LOG"
printf 'one\\ntwo\\n' >&2
sleep "${FAKE_SECONDS:-0}"
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\n' > "$2"
chmod +x "$2"
while [ -n "$FAKE_UNTIL" ] && [ ! -e "$FAKE_UNTIL" ]; do sleep 0.1; done
if [ -n "$FAKE_ERROR" ]; then echo "$FAKE_ERROR" >&2; exit 1; fi
echo 'echo v4.2.4' >> "$2"
"""


@pytest.fixture(scope="session")
def real_go() -> Path:
    return gotoolchain.go().path


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and a PATH of one directory, `bin`, with only what the stand-ins need."""
    (tmp_path / "bin").mkdir()
    for needed in ("chmod", "sleep"):
        (tmp_path / "bin" / needed).symlink_to(shutil.which(needed) or needed)
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "builds"))
    return tmp_path


@pytest.fixture
def script(scratch: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = scratch / "bin" / name
        path.write_text(text, "utf-8")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def fake_go(script: Callable[[str, str], Path]) -> Path:
    return script("go", FAKE_GO)


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    with programs("lab.tools") as begin:
        yield begin


@pytest.fixture
def run(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., tuple[int, str, str]]:
    def finished(*names: str, **environment: str) -> tuple[int, str, str]:
        process = start(*names, **environment)
        out, err = process.communicate(timeout=900)
        return process.returncode, out, err

    return finished
