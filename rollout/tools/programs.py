"""The command-line programs: what pins each; found on the PATH when one fits, else built into the cache folder."""

import time
from dataclasses import dataclass
from pathlib import Path

from rollout.tools import gotoolchain, pins
from rollout.tools.cache import cache_root, digest, once, say
from rollout.tools.running import ToolError, ask, failure, on_path, repeating, run

ASK_SECONDS = 10
PROGRESS_SECONDS = 10.0  # Between two lines that show how far a build is.


@dataclass(frozen=True)
class Program:
    """How one program is built and asked for its version."""

    name: str
    package: str
    # The linker sets these, so that the program's version command tells the truth; a build from a module cannot know.
    stamps: tuple[str, ...]
    seconds: int  # a first build of it alone on two cores, downloads included
    folder: Path = pins.FOLDER  # where the go.mod that pins it is
    ask: tuple[str, ...] = ()  # Its version command; without one it is built, whatever is on the PATH
    oldest: pins.Version | None = None  # The oldest minor version on the PATH that fits; without, the pinned one.
    by_name: bool = False  # Whether it is built for those alone who name it, for it takes too long for all others.

    @property
    def version(self) -> str:
        """The pinned version, '4.2.4'."""
        return pins.module_version(self.package, self.folder)

    def fits(self, theirs: pins.Version) -> bool:
        """Tell whether a version that was found on the PATH can be used."""
        return theirs[0] == self.minor[0] and (self.oldest or self.minor) <= theirs[:2]

    def wanted(self) -> str:
        """Return which versions fit, in words."""
        major, minor = self.oldest or self.minor
        return f"{major}.{minor} or a newer {major}.x"

    @property
    def minor(self) -> pins.Version:
        """The pinned minor version, (4, 2)."""
        return (pins.numbers(self.version) or (0, 0))[:2]


KUBERNETES_STAMPS = tuple(
    f"k8s.io/component-base/version.{stamp}"
    for stamp in ("gitVersion=v{version}", "gitMajor={major}", "gitMinor={minor}", "gitTreeState=clean")
)
_CRANE = "github.com/google/go-containerregistry"

HELM = Program(
    "helm", "helm.sh/helm/v4/cmd/helm", ("helm.sh/helm/v4/internal/version.version=v{version}",), 80,
    ask=("version", "--short"),
)  # fmt: skip
# Every kubectl since 1.31 has server-side apply and waits for what does not exist yet. 1.33 is the oldest Kubernetes
# that the components support.
KUBECTL = Program(
    "kubectl", "k8s.io/kubernetes/cmd/kubectl", KUBERNETES_STAMPS, 90, ask=("version", "--client"), oldest=(1, 33)
)
CRANE = Program(
    "crane", f"{_CRANE}/cmd/crane",
    (f"{_CRANE}/cmd/crane/cmd.Version={{version}}", f"{_CRANE}/pkg/v1/remote/transport.Version={{version}}"),
    20, pins.FOLDER / "crane", ("version",),
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A program that can be run."""

    name: str
    version: str
    path: Path


def path(program: Program) -> Path:
    """Return the path of a program, built first when needed; raises ToolError."""
    return find(program).path


def find(program: Program) -> Found:
    """Return a program, its version and its path.

    A program on the PATH is used when its version fits: the same major and minor version as the pinned one, or a newer
    minor of the same major (helm 4.2.4 is pinned: 4.2.0 and 4.5.1 fit; 4.1.9, 3.20.0 and 5.0.0 do not). It is read from
    the program's own version command, which has ten seconds. What names no such command is always built.
    """
    fitting, passed_over = _on_path(program)
    return fitting or Found(program.name, program.version, _built(program, passed_over))


def _on_path(program: Program) -> tuple[Found | None, list[str]]:
    """Return the first program on the PATH that fits, and why others before it do not."""
    passed_over = []
    for found in on_path(program.name) if program.ask else ():
        theirs = pins.numbers(ask([found, *program.ask], gotoolchain.environment(), ASK_SECONDS))
        if theirs and program.fits(theirs):
            return Found(program.name, ".".join(map(str, theirs)), found), []
        seen = ".".join(map(str, theirs)) if theirs else "of no known version"
        passed_over.append(f"not used: {found} is {seen}; {program.wanted()} would be")
    return None, passed_over


def key(program: Program) -> str:
    """Return the cache key: a hash of all that pins the build, except Go's own version."""
    pins_and_main = (program.folder / file for file in ("go.mod", "go.sum", "main.go"))
    pinned = (file.read_bytes() for file in pins_and_main if file.exists())
    return digest(*pinned, *_build(program), *pins.system())


def binary_of(program: Program) -> Path:
    """Return where a program lies when it has been built."""
    return cache_root() / "tools" / key(program) / program.name


def _build(program: Program) -> list[str]:
    major, minor = program.minor
    stamps = (stamp.format(version=program.version, major=major, minor=minor) for stamp in program.stamps)
    flags = " ".join(["-s -w", *(f"-X {stamp}" for stamp in stamps)])
    # A main.go beside the pins takes the place of the module's own.
    package = "." if (program.folder / "main.go").exists() else program.package
    return ["build", "-mod=readonly", "-trimpath", "-ldflags", flags, package]


def _built(program: Program, passed_over: list[str]) -> Path:
    binary, version = binary_of(program), program.version

    def make(partial: Path) -> None:
        for line in passed_over:
            say(line)
        go = gotoolchain.go(program.folder)
        usual = f"usually about {program.seconds} s the first time"
        say(f"building {program.name} {version} with Go {go.version} ({usual}) …")
        started = time.monotonic()
        log = binary.with_name(f"{program.name}.log")
        verb, *rest = _build(program)
        command = [str(go.path), verb, "-v", "-o", str(partial), *rest]
        failed = f"building {program.name} {version} failed"
        way_out = gotoolchain.network_hint()
        if program.ask:
            other = f"put {program.name} {program.wanted()} on the PATH"
            way_out = f"{other}; or, when it is a download that failed,\n    {way_out}"

        def show_progress() -> None:
            done = len(log.read_text("utf-8", "replace").splitlines()) - 1  # Go names each in a line.
            say(f"{program.name}: {done} modules and packages, after {time.monotonic() - started:.0f} s")

        with repeating(show_progress, pause=PROGRESS_SECONDS):
            run(command, log, gotoolchain.BUILD_SECONDS, failed, way_out, gotoolchain.environment(), program.folder)
        if not partial.is_file():
            raise ToolError(failure(failed, "it left no program", log, way_out))
        say(f"built {program.name} in {time.monotonic() - started:.0f} s")

    once(binary, make, f"{program.name} {version}")
    return binary
