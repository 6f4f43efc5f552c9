"""Images without a registry and without a builder: a folder becomes an archive that containerd imports.

`pack` takes any prepared root file system: the stand-ins' here, or that of a real container.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import tools
from lab.tools import gotoolchain, pins
from lab.tools.cache import cache_root, digest, once
from lab.tools.debian import Unpacked

SOURCES = Path(__file__).parent / "images"
ROLES = ("usr/bin/tritonserver", "usr/bin/python", "usr/bin/caller", "pause")
SHELL = ("sh", "cat", "head", "base64", "tr", "ls", "rm", "touch", "sleep", "grep", "mount", "wget", "id")
"""What Triton's start line and the tests use."""
PYTHON = "opt/python"
"""Where the stand-ins' image has a real Python: `helm test` runs one in the proxy's image."""
NOT_COPIED = ("__pycache__", "*-packages", "config-*", "ensurepip", "idlelib", "lib2to3", "test", "tests", "tkinter")
BUILD_SECONDS = 10 * 60


@dataclass(frozen=True)
class Configuration:
    """What an image says of itself."""

    entrypoint: Sequence[str] = ()
    environment: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": f"/{PYTHON}/lib"}
    )
    user: str = ""
    folder: str = "/"


def pack(root: Path, names: Sequence[str], archive: Path, configuration: Configuration) -> None:
    """Write a folder as an image with these names: an OCI layout in a tar file, the same bytes each time."""
    layer = _tar({"": root})
    config = {
        "architecture": pins.system()[1],
        "os": "linux",
        "config": {
            "Entrypoint": list(configuration.entrypoint),
            "Env": [f"{name}={value}" for name, value in configuration.environment.items()],
            "User": configuration.user,
            "WorkingDir": configuration.folder,
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs = [layer, _json(config)]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _described(blobs[1], "config.v1+json"),
            "layers": [_described(blobs[0], "layer.v1.tar")],
        }
    )
    named = [
        {**_described(manifest, "manifest.v1+json"), "annotations": {"io.containerd.image.name": name}}
        for name in names
    ]
    files = {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in (*blobs, manifest)}
    files["index.json"] = _json({"schemaVersion": 2, "manifests": named})
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    archive.write_bytes(_tar(files))


def _described(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(tree: Any) -> bytes:
    return json.dumps(tree, sort_keys=True).encode()


def _tar(content: dict[str, Path] | dict[str, bytes]) -> bytes:
    """Return folders and files as a tar archive of root's, without times."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, value in content.items():
            if isinstance(value, bytes):
                member = tarfile.TarInfo(name)
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
            else:
                for path in sorted(value.rglob("*")):
                    member = tar.gettarinfo(path, str(path.relative_to(value)))
                    member.uid = member.gid = member.mtime = 0
                    member.uname = member.gname = ""
                    with path.open("rb") if member.isreg() else io.BytesIO() as file:
                        tar.addfile(member, file)
    return whole.getvalue()


def stand_ins(names: Sequence[str], debian: Unpacked) -> Path:
    """Return an archive with an image that plays every part, under all these names; made on first use."""
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in (".go", ".mod"))
    busybox = debian.path("busybox")
    parts = [path.read_bytes() for path in (Path(__file__), *sources, busybox, Path(sys.executable).resolve())]
    archive = cache_root() / "images" / f"{digest(*names, *parts)}.tar"

    def make(partial: Path) -> None:
        root = partial.parent / "root"
        for folder in ("bin", "usr/bin", "tmp", "etc", "proc", "sys", "dev"):
            (root / folder).mkdir(parents=True)
        shutil.copy(busybox, root / "bin" / "busybox")
        for applet in SHELL:
            (root / "bin" / applet).symlink_to("busybox")
        program = root / "usr" / "bin" / "stand-in"
        go = [str(gotoolchain.go().path), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program)]
        subprocess.run(go, cwd=SOURCES, env=gotoolchain.environment(), check=True, timeout=BUILD_SECONDS)
        for role in ROLES:
            (root / role).symlink_to("/usr/bin/stand-in")
        copy_python(root)
        pack(root, names, partial, Configuration(entrypoint=["/pause"]))

    once(archive, make, "the stand-in images")
    return archive


def copy_python(root: Path) -> Path:
    """Copy the Python that runs this, and the libraries that it is linked with; return its standard library's place."""
    program = Path(sys.executable).resolve()
    home = root / PYTHON
    (home / "bin").mkdir(parents=True)
    shutil.copy(program, home / "bin" / "python3")
    library = Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns(*NOT_COPIED)
    copied = home / library.relative_to(sys.base_prefix)
    shutil.copytree(library, copied, ignore=ignored)
    programs = [program, *library.glob("lib-dynload/*.so")]
    linked = subprocess.run(["ldd", *programs], capture_output=True, text=True, timeout=60).stdout
    for name, place in {*re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(", linked, re.MULTILINE)}:
        # The loader, which stands there without an arrow, is looked for where it is; the others where the image says.
        target = home / "lib" / name if name else root / place.strip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(place, target)
    return copied


def single_program(tool: str, name: str) -> Path:
    """Return an archive with an image that holds one of our static programs and nothing else."""
    program = tools.path(tool)
    archive = cache_root() / "images" / f"{digest(Path(__file__).read_bytes(), name, str(program))}.tar"

    def make(partial: Path) -> None:
        root = partial.parent / "root"
        root.mkdir()
        try:
            os.link(program, root / tool)
        except OSError:
            shutil.copy(program, root / tool)
        pack(root, [name], partial, Configuration(entrypoint=[f"/{tool}"]))

    once(archive, make, f"the image of {tool}")
    return archive
