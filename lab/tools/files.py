"""Files of pinned Go modules, copied into the cache: CRDs, kwok's stages, and test fixtures."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.tools.programs import FOLDER as LAB
from rollout.tools import gotoolchain, pins
from rollout.tools.cache import cache_root, digest, once, report
from rollout.tools.running import ToolError, run

FOLDER = LAB / "modules"
DOWNLOAD_SECONDS = 10 * 60


@dataclass(frozen=True)
class Source:
    """The files of a module."""

    name: str
    module: str
    root: str
    patterns: tuple[str, ...] = ("*.yaml",)
    crds: bool = True
    folder: Path = FOLDER  # The directory of the go.mod that pins it.


SOURCES = {
    source.name: source
    for source in (
        # The "standard" channel, which administrators install by default.
        Source("gateway-api", "sigs.k8s.io/gateway-api", "config/crd/standard"),
        Source("prometheus-operator", "github.com/prometheus-operator/prometheus-operator",
            "example/prometheus-operator-crd"),
        Source("cert-manager", "github.com/cert-manager/cert-manager", "deploy/crds"),
        Source("keda", "github.com/kedacore/keda/v2", "config/crd/bases", folder=LAB / "scaling"),
        Source("istio", "istio.io/api", "kubernetes", ("customresourcedefinitions.gen.yaml",)),
        # The Kubernetes project's own tests of Pod Security admission. 1.36 changed nothing in them.
        Source("pod-security", "k8s.io/pod-security-admission", "test/testdata/restricted/v1.35",
            ("pass/*.yaml", "fail/*.yaml"), crds=False),
        # The behaviour of simulated nodes and pods, which is not in kwok's binary. Without the volume stages, because
        # Kubernetes' own controller binds claims.
        Source("kwok-stages", "sigs.k8s.io/kwok", "kustomize/stage",
            ("node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
             "pod/fast/pod-*.yaml"),
            crds=False, folder=pins.FOLDER),
    )
}  # fmt: skip


def crd_files(*names: str) -> tuple[Path, ...]:
    """Return the YAML files with the CRDs of these modules, or of all. A file can have several. Raises ToolError."""
    chosen = names or [name for name, source in SOURCES.items() if source.crds]
    return tuple(file for name in chosen for file in module_files(name))


def module_files(name: str) -> tuple[Path, ...]:
    """Return the files of a module, sorted. Raises ToolError."""
    return tuple(sorted(file for file in module_folder(name).rglob("*") if file.is_file()))


def module_folder(name: str) -> Path:
    """Return the directory with the files of a module, copied into the cache if necessary. Raises ToolError."""
    source = SOURCES[name]
    folder = cache_root() / "tools" / key(source) / name
    once(folder, lambda partial: _copy(source, folder, partial), f"the files of {source.module}")
    return folder


def key(source: Source) -> str:
    """Return the cache key: a hash of everything that pins the files."""
    pinned = ((source.folder / file).read_bytes() for file in ("go.mod", "go.sum"))
    return digest(*pinned, source.module, source.root, *source.patterns)


def version(name: str) -> str:
    """Return the pinned version of a module."""
    source = SOURCES[name]
    return pins.module_version(source.module, source.folder)


def _copy(source: Source, folder: Path, partial: Path) -> None:
    report(f"fetching the files of {source.module} {version(source.name)} (usually a few seconds) …")
    root = _download(source, folder.with_name(f"{source.name}.log")) / source.root
    files = [
        file
        for pattern in source.patterns
        for file in root.glob(pattern)
        # Directories of CRDs contain other kinds, too, such as an admission policy.
        if not source.crds or re.search(rb"^kind: CustomResourceDefinition$", file.read_bytes(), re.MULTILINE)
    ]
    if not files:
        raise ToolError(
            f"{source.module} {version(source.name)} has no {' or '.join(source.patterns)} in {source.root}\n"
            "  way out: its files have moved. Change their directory in lab/tools/files.py"
        )
    for file in files:
        copy = partial / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _download(source: Source, log: Path) -> Path:
    command = [str(gotoolchain.go(source.folder).path), "mod", "download", "-json", source.module]
    failed = f"downloading the module {source.module} {version(source.name)} failed"
    way_out, environment = gotoolchain.network_hint(), gotoolchain.environment()
    printed = run(command, log, DOWNLOAD_SECONDS, failed, way_out, environment, source.folder)
    return Path(json.loads(printed[printed.index("{") :])["Dir"])
