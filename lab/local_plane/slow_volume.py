"""A volume that is read at a given speed, as one over a network is: a file system in a file that Linux throttles."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .process import CannotBeHadError

_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class SlowVolume:
    """One that is mounted."""

    folder: Path
    _group: Path

    def slow_down(self, process: int) -> None:
        """Have a process, and those that it starts from now on, read at the volume's speed."""
        (self._group / "cgroup.procs").write_text(str(process))


def forget(folder: Path) -> None:
    """Have the files below a folder read anew by whoever reads them next: no memory holds them."""
    os.sync()
    for where, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(Path(where, name), os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def slow_volume(root: Path, size_bytes: int, bytes_per_second: int) -> Iterator[SlowVolume]:
    """Mount one below `root`; it is gone after the block. Raises CannotBeHadError where this process may not mount and
    throttle, which takes root."""
    what = "a volume that is slow"
    image, folder = root / "volume.img", root / "volume"
    programs = {name: shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") for name in ("losetup", "mkfs.ext4")}
    if lacking := [name for name, found in programs.items() if found is None]:
        raise CannotBeHadError(f"{what}: there is no {lacking[0]}")

    def run(*command: str | Path) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except subprocess.CalledProcessError as error:
            raise CannotBeHadError(f"{what}: {command[0]}: {error.stderr.strip()}") from None

    with ExitStack() as undo:
        folder.mkdir()
        image.touch()
        os.truncate(image, size_bytes)
        undo.callback(image.unlink)
        run(programs["mkfs.ext4"] or "", "-q", "-F", image)
        device = run(programs["losetup"] or "", "--find", "--show", image)
        undo.callback(run, programs["losetup"] or "", "--detach", device)
        run("mount", device, folder)
        undo.callback(run, "umount", "--lazy", folder)
        number = Path("/sys/block", Path(device).name, "dev").read_text("ascii").strip()
        is_first = (_GROUPS / "blkio").is_dir()  # of the two generations of control groups
        group = (_GROUPS / "blkio" if is_first else _GROUPS) / f"tidegate-{os.getpid()}"
        try:
            group.mkdir()
            undo.callback(group.rmdir)
            limit = group / ("blkio.throttle.read_bps_device" if is_first else "io.max")
            limit.write_text(f"{number} {bytes_per_second}" if is_first else f"{number} rbps={bytes_per_second}")
        except OSError as error:
            raise CannotBeHadError(f"{what}: {error}") from None
        yield SlowVolume(folder, group)
