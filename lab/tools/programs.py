"""The command-line programs: found on the PATH when one fits, else built from its pins into the cache folder."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from lab.tools import gotoolchain, pins
from lab.tools.cache import cache_root, digest, once, say
from lab.tools.catalogue import PROGRAMS, Program
from lab.tools.errors import ToolError, UnknownNameError
from lab.tools.running import ask, failure, on_path, run

ASK_SECONDS = 10


@dataclass(frozen=True)
class Found:
    """A program that can be run."""

    name: str
    version: str
    path: Path


def path(name: str) -> Path:
    """Return the path of a program, built first when needed; raises ToolError."""
    return find(name).path


def find(name: str) -> Found:
    """Return a program, its version and its path.

    A program on the PATH is used when its version fits: the same major and minor version as the pinned one, or a newer
    minor of the same major (helm 4.2.4 is pinned: 4.2.0 and 4.5.1 fit; 4.1.9, 3.20.0 and 5.0.0 do not), unless the
    catalogue says otherwise. It is read from the program's own version command, which has ten seconds.
    `TIDEGATE_TOOLS=built` ignores the PATH.
    """
    program = _known(name)
    fitting, passed_over = _on_path(program)
    return fitting or Found(name, program.version, _built(program, passed_over))


def missing(*names: str) -> tuple[str, ...]:
    """Return which of these programs `find` would have to build first, which takes minutes."""
    programs = map(_known, names)
    return tuple(program.name for program in programs if not _on_path(program)[0] and not binary_of(program).exists())


def _known(name: str) -> Program:
    if name not in PROGRAMS:
        raise UnknownNameError(name, PROGRAMS)
    return PROGRAMS[name]


def _on_path(program: Program) -> tuple[Found | None, list[str]]:
    """Return the first program on the PATH that fits, and why others before it do not."""
    choice = os.environ.get("TIDEGATE_TOOLS", "")
    if choice not in ("", "built"):
        raise ToolError(f"TIDEGATE_TOOLS is {choice!r}: it may be 'built' (ignore the PATH), or not set")
    passed_over = []
    for found in [] if choice else on_path(program.name):
        theirs = pins.numbers(ask([found, *program.ask], gotoolchain.environment(), ASK_SECONDS))
        if theirs and program.fits(theirs):
            return Found(program.name, ".".join(map(str, theirs)), found), []
        seen = ".".join(map(str, theirs)) if theirs else "of no known version"
        passed_over.append(f"not used: {found} is {seen}; {program.wanted()} would be")
    return None, passed_over


def key(program: Program) -> str:
    """Return the cache key: a hash of all that pins the build, except Go's own version."""
    pinned = ((program.folder / file).read_bytes() for file in ("go.mod", "go.sum"))
    return digest(*pinned, *_build(program), *pins.system())


def binary_of(program: Program) -> Path:
    """Return where a program lies when it has been built."""
    return cache_root() / "tools" / key(program) / program.name


def _build(program: Program) -> list[str]:
    flags = " ".join(["-s -w", *(f"-X {stamp}" for stamp in program.stamped())])
    return ["build", "-mod=readonly", "-trimpath", "-ldflags", flags, program.package]


def _built(program: Program, passed_over: list[str]) -> Path:
    binary, version = binary_of(program), program.version

    def make(partial: Path) -> None:
        for line in passed_over:
            say(line)
        go = gotoolchain.go()
        usual = f"usually about {program.seconds} s the first time"
        say(f"building {program.name} {version} with Go {go.version} ({usual}) …")
        started = time.monotonic()
        log = binary.with_name(f"{program.name}.log")
        verb, *rest = _build(program)
        command = [str(go.path), verb, "-o", str(partial), *rest]
        failed = f"building {program.name} {version} failed"
        way_out = (
            f"put {program.name} {program.wanted()} on the PATH; or, when it is a download that failed,"
            f"\n    {gotoolchain.network_hint()}"
        )
        run(command, log, gotoolchain.BUILD_SECONDS, failed, way_out, gotoolchain.environment(), program.folder)
        if not partial.is_file():
            raise ToolError(failure(failed, "it left no program", log, way_out))
        say(f"built {program.name} in {time.monotonic() - started:.0f} s")

    once(binary, make, f"{program.name} {version}")
    return binary
