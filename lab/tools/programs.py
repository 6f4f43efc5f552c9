"""The catalogue of programs that tests and demos need: those of `rollout.tools`, and many more."""

from pathlib import Path

from rollout.tools import programs
from rollout.tools.programs import CRANE, HELM, KUBECTL, KUBERNETES_STAMPS, Found, Program

FOLDER = Path(__file__).resolve().parent
_KEDA = "github.com/kedacore/keda/v2"


def _kubernetes(name: str, seconds: int) -> Program:
    """Return a program of Kubernetes of which only the pinned minor version fits: they are made for each other."""
    return Program(name, f"k8s.io/kubernetes/cmd/{name}", KUBERNETES_STAMPS, ("--version",), seconds, newer=False)


def _scaling(name: str, package: str, stamp: str, ask: tuple[str, ...], seconds: int) -> Program:
    """Return a program that only those build who watch a cluster scale; its seconds count behind those before it."""
    return Program(name, package, (f"{stamp}={{version}}",), ask, seconds, FOLDER / "scaling", by_name=True)


PROGRAMS = {
    program.name: program
    for program in (
        HELM,
        KUBECTL,
        CRANE,
        Program("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", ("main.version=v{version}",),
            ("-v",), 20),
        _kubernetes("kube-apiserver", 300),
        _kubernetes("kube-controller-manager", 240),
        _kubernetes("kube-scheduler", 180),
        _kubernetes("kube-proxy", 150),
        _kubernetes("kubelet", 270),
        Program("etcd", "go.etcd.io/etcd/server/v3", (), ("--version",), 60, newer=False),
        Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", ("sigs.k8s.io/kwok/pkg/consts.Version=v{version}",),
            ("--version",), 100, newer=False),
        Program("coredns", "github.com/coredns/coredns", (), ("-version",), 60, FOLDER / "coredns", newer=False),
        Program("cyclonus", "github.com/mattfenwick/cyclonus/cmd/cyclonus",
            ("github.com/mattfenwick/cyclonus/pkg/cli.version=v{version}",), ("version",), 50,
            FOLDER / "cyclonus", newer=False),
        Program("pod-security-checks", "k8s.io/pod-security-admission", ("main.version=v{version}",),
            ("--version",), 40, FOLDER / "pod-security", newer=False),
        # It has no versions that a Go module may have, only days: the pinned one is built, whatever is on the PATH.
        Program("minio", "github.com/minio/minio", ("github.com/minio/minio/cmd.CommitID={version}",),
            ("--version",), 140, FOLDER / "minio", newer=False),
        _scaling("keda-operator", f"{_KEDA}/cmd/operator", f"{_KEDA}/version.Version", (), 700),
        _scaling("keda-adapter", f"{_KEDA}/cmd/adapter", f"{_KEDA}/version.Version", (), 60),
    )
}  # fmt: skip


def path(name: str) -> Path:
    """Return the path of a program, built first when needed; raises ToolError."""
    return find(name).path


def find(name: str) -> Found:
    """Return a program, its version and its path; raises ToolError."""
    return programs.find(PROGRAMS[name])


def missing(*names: str) -> tuple[str, ...]:
    """Return which of these programs `find` would have to build first, which takes minutes."""
    return programs.missing(*(PROGRAMS[name] for name in names))
