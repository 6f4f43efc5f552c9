"""Files out of pinned Go modules, copied into the cache folder: CRDs, what kwok plays, and test fixtures."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.tools.programs import FOLDER as LAB
from rollout.tools import gotoolchain, pins
from rollout.tools.cache import cache_root, digest, once, say
from rollout.tools.running import ToolError, run

FOLDER = LAB / "modules"
DOWNLOAD_SECONDS = 10 * 60


@dataclass(frozen=True)
class Source:
    """Which files of which module are wanted."""

    name: str
    module: str
    root: str
    patterns: tuple[str, ...] = ("*.yaml",)
    crds: bool = True
    folder: Path = FOLDER  # where the go.mod that pins it is


SOURCES = {
    source.name: source
    for source in (
        # The "standard" channel: what a cluster's administrator installs unless asked for experiments.
        Source("gateway-api", "sigs.k8s.io/gateway-api", "config/crd/standard"),
        Source("prometheus-operator", "github.com/prometheus-operator/prometheus-operator",
            "example/prometheus-operator-crd"),
        Source("cert-manager", "github.com/cert-manager/cert-manager", "deploy/crds"),
        Source("keda", "github.com/kedacore/keda/v2", "config/crd/bases", folder=LAB / "scaling"),
        Source("istio", "istio.io/api", "kubernetes", ("customresourcedefinitions.gen.yaml",)),
        # What the Kubernetes project tests its own Pod Security admission with; 1.36 changed nothing in it.
        Source("pod-security", "k8s.io/pod-security-admission", "test/testdata/restricted/v1.35",
            ("pass/*.yaml", "fail/*.yaml"), crds=False),
        # How simulated nodes and their pods behave; kwok's binary does not hold these. Its volume stages are left out:
        # claims are bound by Kubernetes' own controller.
        Source("kwok-stages", "sigs.k8s.io/kwok", "kustomize/stage",
            ("node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
             "pod/fast/pod-*.yaml"),
            crds=False, folder=pins.FOLDER),
    )
}  # fmt: skip


def crd_files(*names: str) -> tuple[Path, ...]:
    """Return the YAML files with the CustomResourceDefinitions of these modules, by default of all; raises ToolError.

    A file may hold several documents.
    """
    chosen = names or [name for name, source in SOURCES.items() if source.crds]
    return tuple(file for name in chosen for file in module_files(name))


def module_files(name: str) -> tuple[Path, ...]:
    """Return the wanted files of a module, sorted; raises ToolError."""
    return tuple(sorted(file for file in module_folder(name).rglob("*") if file.is_file()))


def module_folder(name: str) -> Path:
    """Return the folder with the wanted files of a module, copied into the cache first; raises ToolError."""
    source = SOURCES[name]
    folder = cache_root() / "tools" / key(source) / name
    once(folder, lambda partial: _copy(source, folder, partial), f"the files of {source.module}")
    return folder


def key(source: Source) -> str:
    """Return the cache key: a hash of all that pins the files."""
    pinned = ((source.folder / file).read_bytes() for file in ("go.mod", "go.sum"))
    return digest(*pinned, source.module, source.root, *source.patterns)


def version(name: str) -> str:
    """Return the pinned version of a module."""
    source = SOURCES[name]
    return pins.module_version(source.module, source.folder)


def _copy(source: Source, folder: Path, partial: Path) -> None:
    say(f"fetching the files of {source.module} {version(source.name)} (usually a few seconds) …")
    root = _download(source, folder.with_name(f"{source.name}.log")) / source.root
    files = [
        file
        for pattern in source.patterns
        for file in root.glob(pattern)
        # Folders of CRDs hold other things as well, which are not asked for: an admission policy, for one.
        if not source.crds or re.search(rb"^kind: CustomResourceDefinition$", file.read_bytes(), re.MULTILINE)
    ]
    if not files:
        raise ToolError(
            f"{source.module} {version(source.name)} has no {' or '.join(source.patterns)} in {source.root}\n"
            "  way out: its files have moved, say where to in lab/tools/files.py"
        )
    for file in files:
        copy = partial / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _download(source: Source, log: Path) -> Path:
    command = [str(gotoolchain.go(source.folder).path), "mod", "download", "-json", source.module]
    failed = f"downloading the module {source.module} {version(source.name)} failed"
    way_out, environment = gotoolchain.network_hint(), gotoolchain.environment()
    said = run(command, log, DOWNLOAD_SECONDS, failed, way_out, environment, source.folder)
    return Path(json.loads(said[said.index("{") :])["Dir"])
