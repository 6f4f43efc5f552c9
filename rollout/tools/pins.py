"""Reads the pinned versions in `go.mod` without Go, which may not be installed."""

import platform
import re
import sys
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

Version = tuple[int, ...]


def numbers(text: str) -> Version | None:
    """Return the first version in a text as numbers: (4, 2, 4) for 'v4.2.4+g1234'. None if there is none."""
    match = re.search(r"(?<![\w.])(?:v|go)?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups(default="0")) if match else None


def go_line(folder: Path = FOLDER) -> Version:
    """Return the Go version in the `go` line of `go.mod`."""
    match = re.search(r"^go\s+(\S+)", (folder / "go.mod").read_text("utf-8"), re.MULTILINE)
    wanted = numbers(match[1]) if match else None
    assert wanted, f"{folder.name}/go.mod has no go line"
    return wanted


def module_version(package: str, folder: Path = FOLDER) -> str:
    """Return the version, '4.2.4', of the required module that contains a package. The longest path wins."""
    required = _required(folder / "go.mod", (folder / "go.mod").read_text("utf-8"))
    owners = [path for path in required if package == path or package.startswith(f"{path}/")]
    assert owners, f"{folder.name}/go.mod requires no module that contains {package}"
    return required[max(owners, key=len)].removeprefix("v")


@cache
def _required(_file: Path, text: str) -> dict[str, str]:
    return dict(re.findall(r"^(?:require)?\s+(\S+)\s+(v\d\S*)", text, re.MULTILINE))


def system() -> tuple[str, str]:
    """Return this machine's GOOS and GOARCH."""
    machine = platform.machine().lower()
    names = {"x86_64": "amd64", "aarch64": "arm64", "i386": "386", "i686": "386", "armv6l": "arm", "armv7l": "arm"}
    return sys.platform.rstrip("0123456789"), names.get(machine, machine)
