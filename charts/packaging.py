"""The chart as a package: `Chart.yaml`, what Helm and Artifact Hub are told of it, and one file for an OCI registry.

The file has the same bytes each time and on every machine.
"""

import fnmatch
import io
import re
import struct
import tarfile
import tomllib
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .values_file import scalar

ROOT = Path(__file__).resolve().parents[1]
NAME = "tidegate"
DISTRIBUTION = "tidegate-platform"
# Native sidecars, which hold the eviction policies, are stable from here on.
KUBE_VERSION = ">=1.33.0-0"
KEYWORDS = ("gpu", "inference", "mig", "model-serving", "nvidia", "triton")
# Keep a Changelog's headings, and Artifact Hub's words for them.
_KINDS = {word: word.lower() for word in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")}
_FOR_DEVELOPERS = "Development"  # The heading of what concerns nobody who installs the chart.

# The oldest time that every archive format can hold; when a file was written says nothing about what is in it.
_TIME = 315_532_800  # 1980-01-01
_BLOCK = 65_535
_FIRST = ("Chart.yaml", "values.yaml", "values.schema.json")


def version() -> str:
    """Return the version of the project, which is the chart's as well."""
    in_checkout = (ROOT / "pyproject.toml").is_file()
    return _project()["version"] if in_checkout else metadata.version(DISTRIBUTION)


def chart_description() -> str:
    """Return the chart's description: the project's."""
    return _project()["description"]


def _project() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def chart_yaml() -> str:
    """Return the text of `Chart.yaml`."""
    released, made = changes((ROOT / "CHANGELOG.md").read_text("utf-8"), version())
    lines = [
        "apiVersion: v2",
        f"name: {NAME}",
        f"description: {scalar(chart_description())}",
        "type: application",
        f"version: {version()}",
        f"appVersion: {scalar(version())}",
        f"kubeVersion: {scalar(KUBE_VERSION)}",
        f"keywords: [{', '.join(KEYWORDS)}]",
        "annotations:",
        f"  artifacthub.io/license: {_project()['license']}",
        "  artifacthub.io/category: ai-machine-learning",
        f'  artifacthub.io/prerelease: "{"false" if released else "true"}"',
        "  artifacthub.io/changes: |",
        *(f"    - kind: {kind}\n      description: {scalar(text)}" for kind, text in made),
    ]
    return "\n".join(lines) + "\n"


def changes(changelog: str, version: str) -> tuple[bool, list[tuple[str, str]]]:
    """Say whether a changelog has a version as released, and return the changes of the chart, each with its kind."""
    _, *sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    released = next((each for each in sections if re.match(rf"\[?{re.escape(version)}\b", each)), None)
    found = []
    for part in re.split(r"^### ", released or sections[0], flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        items = re.split(r"^- ", body, flags=re.MULTILINE)[1:]
        found += [(_KINDS[heading], " ".join(item.split())) for item in items if heading != _FOR_DEVELOPERS]
    return released is not None, found


def package(chart: Path, out: Path) -> Path:
    """Write `<out>/tidegate-<version>.tgz` from a chart's folder, and return its path."""
    target = out / f"{NAME}-{version()}.tgz"
    out.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_bytes(packaged(chart))
    partial.replace(target)
    return target


def packaged(chart: Path) -> bytes:
    """Return the archive of a chart's folder."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in files(chart):
            data = (chart / path).read_bytes()
            entry = tarfile.TarInfo(f"{NAME}/{path.as_posix()}")
            entry.size, entry.mode, entry.mtime = len(data), 0o644, _TIME
            tar.addfile(entry, io.BytesIO(data))
    return gzipped(archive.getvalue())


def files(chart: Path) -> list[Path]:
    """Return the files that belong into the package, in the order in which Helm packs them."""
    ignored = [line for line in (chart / ".helmignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    found = (path.relative_to(chart) for path in chart.rglob("*") if path.is_file())
    return sorted((path for path in found if not _is_ignored(path, ignored)), key=_place)


def _place(path: Path) -> tuple[int, str]:
    name = path.as_posix()
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), name


def _is_ignored(path: Path, patterns: list[str]) -> bool:
    """Say whether `.helmignore` leaves a file out; we write folders (`ci/`) and names (`*.orig`) there, no more."""
    folders = [*path.parents[:-1]]
    return any(
        any(fnmatch.fnmatchcase(folder.name, pattern[:-1]) for folder in folders)
        if pattern.endswith("/")
        else fnmatch.fnmatchcase(path.name, pattern)
        for pattern in patterns
    )


def gzipped(data: bytes) -> bytes:
    """Return data as a gzip file that stores it as it is.

    What a compressor makes of the same bytes differs between versions of zlib, and the chart is small.
    """
    header = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    return header + b"".join(_blocks(data)) + struct.pack("<II", zlib.crc32(data), len(data) % 2**32)


def _blocks(data: bytes) -> Iterator[bytes]:
    for begin in range(0, max(len(data), 1), _BLOCK):
        block = data[begin : begin + _BLOCK]
        last = begin + _BLOCK >= len(data)
        yield struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block
