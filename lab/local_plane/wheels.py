"""Real programs that wheels on PyPI carry, each in a virtual environment of its own in the cache folder."""

import platform
import sys
from pathlib import Path

from requirements.install import folder, install

from .process import CannotBeHadError

ROOT = Path(__file__).resolve().parents[2]
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def environment(name: str, what: str, glibc: tuple[int, int]) -> Path:
    """Return the virtual environment of `requirements/<name>.txt`, made when it is not there yet.

    Raises CannotBeHadError where no wheel fits this machine (it must be Linux with so new a glibc), or none comes.
    """
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
    """Return where its packages are."""
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
