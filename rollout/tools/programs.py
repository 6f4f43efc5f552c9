"""The command-line programs and their pins: found on the PATH if one fits, else built into the cache directory."""

import time
from dataclasses import dataclass
from pathlib import Path

from rollout.tools import gotoolchain, pins
from rollout.tools.cache import cache_root, digest, once, report
from rollout.tools.running import ToolError, failure, on_path, output_of, repeating, run

PROGRESS_SECONDS = 10.0  # Between two lines about the progress of a build.


@dataclass(frozen=True)
class Program:
    """How to build one program, and how to query its version."""

    name: str
    package: str
    # The linker sets these variables, which the version command prints. A build from a module cannot set them itself.
    stamps: tuple[str, ...]
    seconds: int  # Duration of a first build on two CPUs, including downloads.
    folder: Path = pins.FOLDER  # The directory of its go.mod.
    ask: tuple[str, ...] = ()  # Arguments for its version. Without, it is always built, whatever is on the PATH.
    oldest: pins.Version | None = None  # The oldest minor version on the PATH that fits. Default: the pinned one.
    ask_seconds: float = 10  # Timeout of its version command.
    by_name: bool = False  # Whether it is built only when it is named, because that takes long.

    @property
    def version(self) -> str:
        """The pinned version, '4.2.4'."""
        return pins.module_version(self.package, self.folder)

    def fits(self, theirs: pins.Version) -> bool:
        return theirs[0] == self.minor[0] and (self.oldest or self.minor) <= theirs[:2]

    def wanted(self) -> str:
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
# Every kubectl since 1.31 has server-side apply and waits for objects that do not exist yet. 1.33 is the oldest
# Kubernetes that the components support.
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
    """An executable program."""

    name: str
    version: str
    path: Path


def path(program: Program) -> Path:
    """Return the path of a program, and build it first if necessary. Raises ToolError."""
    return find(program).path


def find(program: Program) -> Found:
    """Return a program, its version and its path.

    A program on the PATH fits if it has the pinned major version, and the pinned or a newer minor version. (If helm
    4.2.4 is pinned, 4.2.0 and 4.5.1 fit, but not 4.1.9, 3.20.0 and 5.0.0.) Its version command must end within ten
    seconds. A program without a version command is always built.
    """
    fitting, passed_over = _on_path(program)
    return fitting or Found(program.name, program.version, _built(program, passed_over))


def _on_path(program: Program) -> tuple[Found | None, list[str]]:
    """Return the first program on the PATH that fits, and why others before it do not."""
    passed_over = []
    for found in on_path(program.name) if program.ask else ():
        environment = gotoolchain.environment()
        theirs = pins.numbers(output_of([found, *program.ask], environment, program.ask_seconds))
        if theirs and program.fits(theirs):
            return Found(program.name, ".".join(map(str, theirs)), found), []
        seen = ".".join(map(str, theirs)) if theirs else "of an unknown version"
        passed_over.append(f"not used: {found} is {seen}, but {program.wanted()} is needed")
    return None, passed_over


def key(program: Program) -> str:
    """Return the cache key: a hash of everything that pins the build, except Go's own version."""
    pins_and_main = (program.folder / file for file in ("go.mod", "go.sum", "main.go"))
    pinned = (file.read_bytes() for file in pins_and_main if file.exists())
    return digest(*pinned, *_build(program), *pins.system())


def _build(program: Program) -> list[str]:
    major, minor = program.minor
    stamps = (stamp.format(version=program.version, major=major, minor=minor) for stamp in program.stamps)
    flags = " ".join(["-s -w", *(f"-X {stamp}" for stamp in stamps)])
    # A main.go next to the pins replaces the module's own.
    package = "." if (program.folder / "main.go").exists() else program.package
    return ["build", "-mod=readonly", "-trimpath", "-ldflags", flags, package]


def _built(program: Program, passed_over: list[str]) -> Path:
    binary, version = cache_root() / "tools" / key(program) / program.name, program.version

    def make(partial: Path) -> None:
        for line in passed_over:
            report(line)
        go = gotoolchain.go(program.folder)
        usual = f"usually about {program.seconds} s the first time"
        report(f"building {program.name} {version} with Go {go.version} ({usual}) …")
        started = time.monotonic()
        log = binary.with_name(f"{program.name}.log")
        verb, *rest = _build(program)
        command = [str(go.path), verb, "-v", "-o", str(partial), *rest]
        failed = f"building {program.name} {version} failed"
        remedy = gotoolchain.network_hint()
        if program.ask:
            other = f"put {program.name} {program.wanted()} on the PATH"
            remedy = f"{other}. If a download failed,\n    {remedy}"

        def show_progress() -> None:
            done = len(log.read_text("utf-8", "replace").splitlines()) - 1  # Go prints a line for each.
            report(f"{program.name}: {done} modules and packages, after {time.monotonic() - started:.0f} s")

        with repeating(show_progress, pause=PROGRESS_SECONDS):
            run(command, log, gotoolchain.BUILD_SECONDS, failed, remedy, gotoolchain.environment(), program.folder)
        if not partial.is_file():
            raise ToolError(failure(failed, "it produced no program", log, remedy))
        report(f"built {program.name} in {time.monotonic() - started:.0f} s")

    once(binary, make, f"{program.name} {version}")
    return binary
