"""Programs of Debian packages, unpacked into the cache: nothing is installed, and the system stays unchanged.

Go's compiler alone cannot build these programs (runc needs C), and no package registry has them. apt uses its
configured sources and keys, without root.
"""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rollout.tools.cache import cache_root, digest, once, report
from rollout.tools.running import ToolError, run

DOWNLOAD_SECONDS = 10 * 60


@dataclass(frozen=True)
class Unpacked:
    """A directory with unpacked packages, as if it were the root directory."""

    root: Path

    def path(self, name: str) -> Path:
        """Return a program of the packages. Raises ToolError."""
        found = shutil.which(name, path=os.pathsep.join(self._programs))
        if found is None:
            raise ToolError(
                f"the unpacked Debian packages have no program {name!r}: {self.root}\n"
                "  way out: add the package that has it to the call of lab.tools.debian"
            )
        return Path(found)

    @property
    def _programs(self) -> list[str]:
        return [str(self.root / place) for place in ("usr/sbin", "usr/bin", "sbin", "bin")]

    def environment(self) -> dict[str, str]:
        """Return this process's environment, with the unpacked programs and libraries first."""
        libraries = {str(file.parent) for file in self.root.glob("**/lib/**/*.so.*")}
        before = {name: [value] for name in ("PATH", "LD_LIBRARY_PATH") if (value := os.environ.get(name))}
        return os.environ | {
            "PATH": os.pathsep.join([*self._programs, *before.get("PATH", [])]),
            "LD_LIBRARY_PATH": os.pathsep.join([*sorted(libraries), *before.get("LD_LIBRARY_PATH", [])]),
        }


def why_not() -> str:
    """Return why Debian packages cannot be used on this machine, or an empty text."""
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    return f"there is no {' and no '.join(missing)} on the PATH" if missing else ""


def unpacked(*packages: str) -> Unpacked:
    """Return the directory with these packages and their missing dependencies. Raises ToolError."""
    reason = why_not()
    if reason:
        raise ToolError(
            f"{reason}, so the Debian packages {', '.join(packages)} cannot be unpacked\n  way out: use Debian"
        )
    wanted = sorted(packages)
    # Installed packages are not downloaded again, so the directory fits only this release of the system.
    folder = cache_root() / "debian" / digest(*wanted, _release(), platform.machine())
    once(folder, lambda partial: _unpack(wanted, partial), f"the Debian packages {', '.join(wanted)}")
    return Unpacked(folder)


def _release() -> str:
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{system.get('ID')} {system.get('VERSION_ID')} {system.get('VERSION_CODENAME')}"


def _unpack(packages: list[str], partial: Path) -> None:
    report(f"unpacking the Debian packages {', '.join(packages)} into the cache (nothing is installed) …")
    scratch = partial.parent
    archives = scratch / "archives"
    (archives / "partial").mkdir(parents=True)
    log = cache_root() / "debian" / f"{partial.name}.log"
    apt = ["apt-get", "--quiet", "--assume-yes", "--no-install-recommends", "-o", "Acquire::Retries=2"]
    apt += ["-o", f"Dir::Cache={scratch}", "-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=true"]
    apt += ["-o", "APT::Sandbox::User="]  # As the current user: apt's own user may not enter a home directory.
    fetch = ["install", "--download-only", "--reinstall", *packages]
    failed = f"downloading the Debian packages {', '.join(packages)} failed"
    try:
        _apt([*apt, *fetch], log, failed)
    except ToolError:
        # The package lists are missing, as in a fresh image, or outdated: use separate lists.
        lists = scratch / "lists"
        (lists / "partial").mkdir(parents=True)
        apt += ["-o", f"Dir::State::lists={lists}"]
        _apt([*apt, "update"], log, failed)
        _apt([*apt, *fetch], log, failed)
    for archive in sorted(archives.glob("*.deb")):
        # Without the archive's owners, which only root could set.
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as reading:
            partial.mkdir(exist_ok=True)
            into = ["tar", "--extract", "--no-same-owner", "--directory", str(partial)]
            written = subprocess.run(into, stdin=reading.stdout, capture_output=True, timeout=120)
        if reading.returncode or written.returncode:
            raise ToolError(f"unpacking {archive.name} failed: {written.stderr.decode(errors='replace').strip()}")


def _apt(command: list[str], log: Path, failed: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    run(command, log, DOWNLOAD_SECONDS, failed, "check the network and apt's sources, and try again", environment)
