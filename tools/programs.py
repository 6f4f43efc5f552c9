"""The command-line programs: found on the PATH when one fits, else built from tools/go.mod into the cache folder."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tools import gotoolchain, pins
from tools.cache import cache_root, digest, once, say
from tools.errors import ToolError, UnknownNameError

ASK_SECONDS = 10


@dataclass(frozen=True)
class Program:
    """How one program is built and asked for its version."""

    name: str
    package: str
    # The linker sets these, so that the program's version command tells the truth; a build from a module cannot know.
    stamps: tuple[str, ...]
    ask: tuple[str, ...]
    seconds: int  # a first build on two cores, downloads included


@dataclass(frozen=True)
class Found:
    """A program that can be run."""

    name: str
    version: str
    path: Path


_CRANE = "github.com/google/go-containerregistry"
PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "helm",
            "helm.sh/helm/v4/cmd/helm",
            ("helm.sh/helm/v4/internal/version.version=v{version}",),
            ("version", "--short"),
            80,
        ),
        Program(
            "kubeconform",
            "github.com/yannh/kubeconform/cmd/kubeconform",
            ("main.version=v{version}",),
            ("-v",),
            20,
        ),
        Program(
            "crane",
            f"{_CRANE}/cmd/crane",
            (f"{_CRANE}/cmd/crane/cmd.Version={{version}}", f"{_CRANE}/pkg/v1/remote/transport.Version={{version}}"),
            ("version",),
            20,
        ),
    )
}


def path(name: str) -> Path:
    """Return the path of a program, built first when needed; raises ToolError."""
    return find(name).path


def find(name: str) -> Found:
    """Return a program, its version and its path.

    A program on the PATH is used when its version fits: the same major and minor version as the pinned one, or a newer
    minor of the same major (helm 4.2.4 is pinned: 4.2.0 and 4.5.1 fit; 4.1.9, 3.20.0 and 5.0.0 do not). It is read from
    the program's own version command, which has ten seconds. `TIDEGATE_TOOLS=built` ignores the PATH.
    """
    program = PROGRAMS.get(name)
    if program is None:
        raise UnknownNameError(name, PROGRAMS)
    choice = os.environ.get("TIDEGATE_TOOLS", "")
    if choice not in ("", "built"):
        raise ToolError(f"TIDEGATE_TOOLS is {choice!r}: it may be 'built' (ignore the PATH), or not set")
    version = pins.module_version(program.package)
    passed_over = []
    for found in [] if choice else gotoolchain.on_path(name):
        theirs = pins.numbers(gotoolchain.ask([found, *program.ask], ASK_SECONDS))
        if theirs and fits(theirs, version):
            return Found(name, ".".join(map(str, theirs)), found)
        seen = ".".join(map(str, theirs)) if theirs else "of no known version"
        passed_over.append(f"not used: {found} is {seen}; {_wanted(version)} would be")
    return Found(name, version, _built(program, version, passed_over))


def fits(theirs: pins.Version, pinned: str) -> bool:
    """Tell whether a version has the pinned one's major and the same or a newer minor."""
    ours = pins.numbers(pinned) or (0, 0)
    return theirs[0] == ours[0] and theirs[1] >= ours[1]


def _wanted(pinned: str) -> str:
    major, minor = (pins.numbers(pinned) or (0, 0))[:2]
    return f"{major}.{minor} or a newer {major}.x"


def key(program: Program, folder: Path = pins.FOLDER) -> str:
    """Return the cache key: a hash of all that pins the build, except Go's own version."""
    return digest(
        (folder / "go.mod").read_bytes(), (folder / "go.sum").read_bytes(), *_build(program, folder), *pins.system()
    )


def _build(program: Program, folder: Path) -> list[str]:
    version = pins.module_version(program.package, folder)
    flags = " ".join(["-s -w", *(f"-X {stamp.format(version=version)}" for stamp in program.stamps)])
    return ["build", "-mod=readonly", "-trimpath", "-ldflags", flags, program.package]


def _built(program: Program, version: str, passed_over: list[str]) -> Path:
    binary = cache_root() / "tools" / key(program) / program.name

    def make(partial: Path) -> None:
        for line in passed_over:
            say(line)
        go = gotoolchain.go()
        usual = f"usually about {program.seconds} s the first time"
        say(f"building {program.name} {version} with Go {go.version} ({usual}) …")
        started = time.monotonic()
        log = binary.with_name(f"{program.name}.log")
        verb, *rest = _build(program, pins.FOLDER)
        command = [str(go.path), verb, "-o", str(partial), *rest]
        status = gotoolchain.run(command, log, gotoolchain.BUILD_SECONDS, gotoolchain.environment(), pins.FOLDER)
        if not status and not partial.is_file():
            status = "it left no program"
        if status:
            raise ToolError(
                f"building {program.name} {version} failed: {status}\n{gotoolchain.tail(log)}\n"
                f"  way out: put {program.name} {_wanted(version)} on the PATH; or, when it is a download that failed,"
                f"\n    {gotoolchain.network_hint()}"
            )
        say(f"built {program.name} in {time.monotonic() - started:.0f} s")

    once(binary, make, f"{program.name} {version}")
    return binary
