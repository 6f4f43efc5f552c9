"""The catalogue of programs for tests and demos: those of `rollout.tools`, and many more."""

from pathlib import Path

from rollout.tools import programs
from rollout.tools.programs import CRANE, HELM, KUBECTL, KUBERNETES_STAMPS, Found, Program

FOLDER = Path(__file__).resolve().parent
_KEDA = "github.com/kedacore/keda/v2"


def _kubernetes(name: str, seconds: int) -> Program:
    return Program(name, f"k8s.io/kubernetes/cmd/{name}", KUBERNETES_STAMPS, seconds)


def _scaling(name: str, seconds: int) -> Program:
    """Return a program of KEDA, built only on request. Its seconds count after those of the programs before it."""
    stamps = (f"{_KEDA}/version.Version={{version}}",)
    return Program(f"keda-{name}", f"{_KEDA}/cmd/{name}", stamps, seconds, FOLDER / "scaling", by_name=True)


PROGRAMS = {
    program.name: program
    for program in (
        HELM,
        KUBECTL,
        CRANE,
        Program("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", ("main.version=v{version}",), 20),
        _kubernetes("kube-apiserver", 300),
        _kubernetes("kube-controller-manager", 240),
        _kubernetes("kube-scheduler", 180),
        _kubernetes("kube-proxy", 150),
        _kubernetes("kubelet", 270),
        Program("etcd", "go.etcd.io/etcd/server/v3", (), 60),
        Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", ("sigs.k8s.io/kwok/pkg/consts.Version=v{version}",), 100),
        Program("coredns", "github.com/coredns/coredns", (), 60, FOLDER / "coredns"),
        Program("cyclonus", "github.com/mattfenwick/cyclonus/cmd/cyclonus",
            ("github.com/mattfenwick/cyclonus/pkg/cli.version=v{version}",), 50, FOLDER / "cyclonus"),
        Program("pod-security-checks", "k8s.io/pod-security-admission", ("main.version=v{version}",), 40,
            FOLDER / "pod-security"),
        Program("minio", "github.com/minio/minio", ("github.com/minio/minio/cmd.CommitID={version}",), 140,
            FOLDER / "minio"),
        _scaling("operator", 700),
        _scaling("adapter", 60),
    )
}  # fmt: skip
"""Only those of `rollout.tools` are taken from the PATH. The cluster's programs must match each other."""


def path(name: str) -> Path:
    """Return the path of a program, built if necessary. Raises ToolError."""
    return find(name).path


def find(name: str) -> Found:
    """Return a program, its version and its path. Raises ToolError."""
    return programs.find(PROGRAMS[name])
