"""Which command-line programs there are, what pins each of them, and how it is built and asked for its version."""

from dataclasses import dataclass
from pathlib import Path

from lab.tools import pins


@dataclass(frozen=True)
class Program:
    """How one program is built and asked for its version."""

    name: str
    package: str
    # The linker sets these, so that the program's version command tells the truth; a build from a module cannot know.
    stamps: tuple[str, ...]
    ask: tuple[str, ...]
    seconds: int  # a first build of it alone on two cores, downloads included
    folder: Path = pins.FOLDER  # where the go.mod that pins it is
    # Which ones on the PATH fit, as minor versions: the pinned one or a newer one, unless this says otherwise.
    oldest: pins.Version | None = None
    newer: bool = True

    @property
    def version(self) -> str:
        """The pinned version, '4.2.4'."""
        return pins.module_version(self.package, self.folder)

    def fits(self, theirs: pins.Version) -> bool:
        """Tell whether a version that was found on the PATH can be used."""
        ours = self._ours()
        return theirs[0] == ours[0] and (self.oldest or ours) <= theirs[:2] and (self.newer or theirs[:2] <= ours)

    def wanted(self) -> str:
        """Return which versions fit, in words."""
        major, minor = self.oldest or self._ours()
        return f"{major}.{minor} or a newer {major}.x" if self.newer else f"{major}.{minor}"

    def stamped(self) -> list[str]:
        """Return the stamps with the version in them."""
        major, minor = self._ours()
        return [stamp.format(version=self.version, major=major, minor=minor) for stamp in self.stamps]

    def _ours(self) -> pins.Version:
        return (pins.numbers(self.version) or (0, 0))[:2]


_CRANE = "github.com/google/go-containerregistry"
_KUBERNETES = tuple(
    f"k8s.io/component-base/version.{stamp}"
    for stamp in ("gitVersion=v{version}", "gitMajor={major}", "gitMinor={minor}", "gitTreeState=clean")
)


def _kubernetes(name: str, seconds: int) -> Program:
    """Return a program of Kubernetes of which only the pinned minor version fits: they are made for each other."""
    return Program(name, f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES, ("--version",), seconds, newer=False)


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
            pins.FOLDER / "crane",
        ),
        # Server-side apply, and a wait for what does not exist yet, are in every kubectl since 1.31; 1.33 is the oldest
        # Kubernetes that the components are made for.
        Program(
            "kubectl",
            "k8s.io/kubernetes/cmd/kubectl",
            _KUBERNETES,
            ("version", "--client"),
            90,
            oldest=(1, 33),
        ),
        _kubernetes("kube-apiserver", 300),
        _kubernetes("kube-controller-manager", 240),
        _kubernetes("kube-scheduler", 180),
        _kubernetes("kube-proxy", 150),
        _kubernetes("kubelet", 270),
        Program("etcd", "go.etcd.io/etcd/server/v3", (), ("--version",), 60, newer=False),
        Program(
            "kwok",
            "sigs.k8s.io/kwok/cmd/kwok",
            ("sigs.k8s.io/kwok/pkg/consts.Version=v{version}",),
            ("--version",),
            100,
            newer=False,
        ),
        Program("coredns", "github.com/coredns/coredns", (), ("-version",), 120, pins.FOLDER / "coredns", newer=False),
        Program(
            "cyclonus",
            "github.com/mattfenwick/cyclonus/cmd/cyclonus",
            ("github.com/mattfenwick/cyclonus/pkg/cli.version=v{version}",),
            ("version",),
            50,
            pins.FOLDER / "cyclonus",
            newer=False,
        ),
        # It has no versions that a Go module may have, only days: the pinned one is built, whatever is on the PATH.
        Program(
            "minio",
            "github.com/minio/minio",
            ("github.com/minio/minio/cmd.CommitID={version}",),
            ("--version",),
            140,
            pins.FOLDER / "minio",
            newer=False,
        ),
    )
}
