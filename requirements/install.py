"""Makes the virtual environment of a locked requirements file, once, in the user's cache folder.

    python requirements/install.py run|test            makes it, and links .venv to it
    python requirements/install.py mlflow|triton|…     makes that of a server which tests start
    python requirements/install.py export              makes that of what the tests of `tidegate export` convert with
    python requirements/install.py site                makes that of what builds the site of the documentation
    python requirements/install.py --where run|test    prints where it is

One environment serves all clones whose requirements and Python are the same. Two runs at once wait for each other; a
killed one leaves nothing that the next would take for whole. Standard library only: it runs before anything is there.
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
    """Return where the environment is: named after what is in it and the Python that runs it."""
    cache = os.environ.get("TIDEGATE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tidegate"
    )
    content = requirements.read_bytes() + f"{sys.version} {os.path.realpath(sys.executable)}".encode()
    return Path(cache) / "venv" / hashlib.sha256(content).hexdigest()[:16]


def install(requirements: Path, venv: Path) -> None:
    """Make the environment. Raises SystemExit with one clear message when it cannot be made."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{venv}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (venv / "complete").exists():
            return
        what = f"{requirements.stem} requirements into {venv}"
        print(f"installing {what} (usually less than a minute) …", file=sys.stderr)
        shutil.rmtree(venv, ignore_errors=True)
        log = Path(f"{venv}.log")
        # The file has all that is needed, and nothing else is.
        # Bytecode is made of what is imported, when it is: most of what is installed never is.
        exactly = ["--no-deps", "--require-hashes", "--no-compile"]
        pip = [str(venv / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", *exactly]
        with open(log, "w") as out:
            for command, hint in (
                ([sys.executable, "-m", "venv", str(venv)], "Debian and Ubuntu want their package python3-venv."),
                ([*pip, "-r", str(requirements)], "Check that pip reaches a package registry or a mirror of one."),
            ):
                if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode:
                    last = log.read_text(errors="replace").strip().splitlines()[-3:]
                    raise SystemExit("\n".join([*last, f"The requirements were not installed. {hint}", f"Log: {log}"]))
        (venv / "complete").touch()


def link(venv: Path, requirements: Path) -> None:
    """Link .venv, where `pulumi` (Pulumi.yaml) and people find their Python: source .venv/bin/activate.

    The environment with the tests' requirements has all that the other has, so it stays once it is linked. A folder of
    somebody's own stays too. It stands where make runs: in the checkout, or in a platform that pins it.
    """
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
    parser.add_argument("--where", action="store_true", help="only say where it is")
    parser.add_argument("requirements", choices=("run", "test", "mlflow", "triton", "dynamo", "export", "site"))
    wanted = parser.parse_args()
    requirements = HERE / f"{wanted.requirements}.txt"
    venv = folder(requirements)
    if wanted.where:
        print(venv)
        return
    if sys.version_info < (3, 11):  # noqa: UP036 – whatever `python3` is runs this
        raise SystemExit(
            f"Tidegate needs Python 3.11 or later, and {sys.executable} is {sys.version.split()[0]}.\n"
            "Name another: make PYTHON=python3.12 …"
        )
    try:
        if not (venv / "complete").exists():
            install(requirements, venv)
    except OSError as error:
        way_out = "Name another cache folder with TIDEGATE_CACHE=<folder>."
        raise SystemExit(f"{venv} cannot be made: {error}.\n{way_out}") from None
    except KeyboardInterrupt:
        raise SystemExit("stopped; the next run begins anew") from None
    try:
        if requirements.stem in ("run", "test"):
            link(venv, requirements)
    except OSError as error:
        print(f"note: .venv was not linked, which only plain `pulumi` needs: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
