"""Makes the virtual environment of a locked requirements file, once, in the user's cache directory.

- `python requirements/install.py run|test` makes it, and links .venv to it.
- `… mlflow|triton|…` makes that of a server which tests start.
- `… export` makes that of the converters in the tests of `tidegate export`.
- `… site` makes that of the documentation site.
- `… --where run|test` prints its path.

All clones with the same requirements and Python share one environment. Two runs at the same time wait for each other.
A killed run leaves nothing that the next run takes for complete. Uses the standard library only.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def folder(requirements: Path) -> Path:
    """Return the environment's directory. Its name depends on the requirements and the Python."""
    cache = os.environ.get("TIDEGATE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tidegate"
    )
    content = requirements.read_bytes() + f"{sys.version} {os.path.realpath(sys.executable)}".encode()
    return Path(cache) / "venv" / hashlib.sha256(content).hexdigest()[:16]


def install(requirements: Path, venv: Path) -> None:
    """Make the environment. Raises SystemExit with one clear message."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{venv}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (venv / "complete").exists():
            return
        what = f"{requirements.stem} requirements into {venv}"
        print(f"installing {what} (usually less than a minute) …", file=sys.stderr)
        shutil.rmtree(venv, ignore_errors=True)
        log = Path(f"{venv}.log")
        # The file lists every dependency. pip compiles nothing, because most of the modules are never imported.
        exactly = ["--no-deps", "--require-hashes", "--no-compile"]
        pip = [str(venv / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", *exactly]
        with open(log, "w") as out:
            for command, hint in (
                ([sys.executable, "-m", "venv", str(venv)], "On Debian and Ubuntu, install the package python3-venv."),
                ([*pip, "-r", str(requirements)], "Check that pip reaches a package registry or a mirror of one."),
            ):
                if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode:
                    last = log.read_text(errors="replace").strip().splitlines()[-3:]
                    raise SystemExit("\n".join([*last, f"The requirements were not installed. {hint}", f"Log: {log}"]))
        (venv / "complete").touch()


def link(venv: Path, requirements: Path) -> None:
    """Link .venv in the working directory to the environment, for `pulumi` (Pulumi.yaml) and for people. A link to the
    test environment stays, because that contains the other one. A directory that you made stays too."""
    place = Path.cwd() / ".venv"
    if place.exists() and not (place.is_symlink() and requirements.stem == "test"):
        return
    if place.is_symlink() and place.resolve() == venv.resolve():
        return
    new = place.with_name(f".venv.{os.getpid()}")
    new.symlink_to(venv)
    new.replace(place)


def main() -> None:
    """Run the command line above."""
    parser = argparse.ArgumentParser(description="Makes the virtual environment of a locked requirements file.")
    parser.add_argument("--where", action="store_true", help="only print its path")
    parser.add_argument("requirements", choices=("run", "test", "mlflow", "triton", "dynamo", "export", "site"))
    wanted = parser.parse_args()
    requirements = HERE / f"{wanted.requirements}.txt"
    venv = folder(requirements)
    if wanted.where:
        print(venv)
        return
    if sys.version_info < (3, 11):  # noqa: UP036 – whatever `python3` is runs this
        raise SystemExit(
            f"Tidegate needs Python 3.11 or later, but {sys.executable} is {sys.version.split()[0]}.\n"
            "Set another one: make PYTHON=python3.12 …"
        )
    try:
        if not (venv / "complete").exists():
            install(requirements, venv)
    except OSError as error:
        way_out = "Set TIDEGATE_CACHE to another cache directory."
        raise SystemExit(f"{venv} cannot be made: {error}.\n{way_out}") from None
    except KeyboardInterrupt:
        raise SystemExit("stopped. The next run starts again.") from None
    try:
        if requirements.stem in ("run", "test"):
            link(venv, requirements)
    except OSError as error:
        print(f"warning: cannot link .venv, which only plain `pulumi` needs: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
