import shutil
import subprocess
from pathlib import Path

from lab.local_plane.process import CannotBeHadError

SOURCE = Path(__file__).with_name("nvml.c")
NAME = "libnvidia-ml.so.1"


def library(folder: Path) -> Path:
    """Return the library, built into a directory. Raises CannotBeHadError without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotBeHadError("a stand-in for NVML: there is no C compiler on the PATH")
    made = folder / NAME
    subprocess.run([compiler, "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-o", made, SOURCE], check=True, timeout=60)
    return made
