"""The project's own images, built from their Dockerfiles by a real builder, on a base made here.

No registry of images is asked.

The base is what `python:3.11-slim` is to users: a Python with pip, a shell, and nothing to compile with. It holds the
Python that runs the tests. Packages come through pip, configured as this machine's.
"""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pip

from lab.tools import debian
from lab.tools.cache import cache_root, digest, once
from lab.tools.errors import ToolError

from .image_archives import PYTHON, Configuration, copy_python, pack

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("buildah", "busybox-static")
SHELL = ("sh", "cat", "ls", "rm", "id", "env", "wget")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
LIBRARIES = (
    *("libgcc_s.so.1", "libstdc++.so.6", "libm.so.6"),
    *("libdl.so.2", "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libutil.so.1"),
)
"""What compiled packages may count on, on every Linux that wheels are made for, beside the C library."""
PASSED_ON = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries")
BUILD_SECONDS = 10 * 60


@dataclass(frozen=True)
class Product:
    """Something that has an image of its own."""

    what: str
    dockerfile: str
    sources: tuple[str, ...]
    requirements: str

    def ingredients(self) -> list[bytes]:
        """Return everything that the image depends on."""
        found = [file for folder in self.sources for file in sorted((ROOT / folder).rglob("*"))]
        files = [ROOT / self.dockerfile, ROOT / ".dockerignore", ROOT / self.requirements]
        files += [file for file in found if file.is_file() and file.suffix != ".pyc"]
        files += [Path(__file__), Path(__file__).with_name("image_archives.py"), Path(sys.executable).resolve()]
        return [part for file in files for part in (str(file.name).encode(), file.read_bytes())]


PROXY = Product(
    "the proxy's image",
    "proxy/Dockerfile",
    ("contracts/tidegate_contracts", "service/tidegate_service", "proxy/tidegate_proxy"),
    "requirements/proxy.txt",
)
POLICY = Product(
    "the eviction policy's image",
    "policies/eviction/Dockerfile",
    ("contracts/tidegate_contracts", "service/tidegate_service", "policies/eviction/tidegate_eviction"),
    "requirements/eviction.txt",
)


def built_image(product: Product, name: str) -> Path:
    """Return an archive with a product's image under this name; made on first use. Needs Linux and root."""
    archive = cache_root() / "images" / f"{digest(name, *product.ingredients())}.tar"
    once(archive, lambda partial: _build(product, name, partial), product.what)
    return archive


@dataclass(frozen=True)
class Contents:
    """What an archive with one image tells of it."""

    names: list[str]
    configuration: dict[str, Any]
    added: dict[str, tarfile.TarInfo]
    """The regular files of its last layer, by path."""


def contents(archive: Path) -> Contents:
    """Read an archive of `built_image`."""
    with tarfile.open(archive) as image:
        (told,) = json.load(_extracted(image, "manifest.json"))
        configuration = json.load(_extracted(image, told["Config"]))["config"]
        with tarfile.open(fileobj=_extracted(image, told["Layers"][-1])) as layer:
            added = {f"/{member.name}": member for member in layer.getmembers() if member.isreg()}
    return Contents(told["RepoTags"], configuration, added)


def _extracted(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    assert file is not None
    return file


def _build(product: Product, name: str, partial: Path) -> None:
    room = partial.parent
    packages = debian.unpacked(*PACKAGES)
    certificates = _base(room / "base", packages.path("busybox"))
    pack(room / "base", ["localhost/python:3.11-slim"], room / "base.tar", _CONFIGURATION)
    (room / "pip.conf").write_text(_pip_configuration(certificates))
    (room / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (room / "registries.conf").write_text("")
    _library_cache(packages, room / "ld.so.cache")
    alone = f'mount --bind "{room}/ld.so.cache" /etc/ld.so.cache && exec "$0" "$@"'
    storage = [f"--root={room}/storage", f"--runroot={room}/run", "--storage-driver=vfs"]
    buildah = ["unshare", "--mount", "sh", "-ec", alone, str(packages.path("buildah")), *storage]
    settings = {"TMPDIR": str(room), "CONTAINERS_REGISTRIES_CONF": str(room / "registries.conf")}
    environment = packages.environment() | settings
    policy = f"--signature-policy={room}/policy.json"
    build = [
        *(*buildah, "build", policy, "--isolation=chroot", f"--build-arg=BASE=oci-archive:{room}/base.tar"),
        *(f"--secret=id=pip,src={room}/pip.conf", f"--file={ROOT / product.dockerfile}", f"--tag={name}", str(ROOT)),
    ]
    doing = f"building {product.what} failed"
    way_out = f"see {product.dockerfile}"
    _run(build, environment, doing, way_out)
    _run([*buildah, "push", policy, name, f"docker-archive:{partial}:{name}"], environment, doing, way_out)


_CONFIGURATION = Configuration(
    environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": f"/{PYTHON}/lib"},
)


def _library_cache(packages: debian.Unpacked, cache: Path) -> None:
    """Write where libraries are, for the loader: buildah starts itself again, without its environment."""
    folders = sorted({str(file.parent) for file in packages.root.glob("**/lib/**/*.so.*")})
    own = cache.with_name("ld.so.conf")
    own.write_text("\n".join([*folders, "include /etc/ld.so.conf", ""]))
    command = ["/sbin/ldconfig", "-X", "-C", str(cache), "-f", str(own)]
    _run(command, os.environ, "listing the builder's libraries failed", "see what ldconfig says")


def _run(command: list[str], environment: Mapping[str, str], failure: str, way_out: str) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise ToolError(f"{failure}:\n{said}\n  way out: {way_out}")


def _base(root: Path, busybox: Path) -> bool:
    """Make the base's root folder; tell whether it has this machine's certificates."""
    for folder in ("bin", "usr/local/bin", "tmp", "etc/ssl/certs", "proc", "sys", "dev", "run", "var/tmp", "root"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    shutil.copy(busybox, root / "bin" / "busybox")
    for applet in SHELL:
        (root / "bin" / applet).symlink_to("busybox")
    library = copy_python(root)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to(f"/{PYTHON}/bin/python3")
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True, timeout=20).stdout
    for name, place in re.findall(r"^\s*(\S+) \([^)]*\) => (\S+)$", listed, re.MULTILINE):
        target = root / PYTHON / "lib" / name
        if name in LIBRARIES and not target.exists():
            shutil.copy(place, target)
    package = Path(pip.__file__).parent
    for part in (package, package.with_name(f"pip-{pip.__version__}.dist-info")):
        shutil.copytree(part, library / "site-packages" / part.name, ignore=shutil.ignore_patterns("__pycache__"))
    own = os.environ.get("PIP_CERT") or CERTIFICATES
    if Path(own).exists():
        shutil.copy(own, root / CERTIFICATES.strip("/"))
    return Path(own).exists()


def _pip_configuration(certificates: bool) -> str:
    """Return what this machine's pip is told about where packages are, as a file."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, timeout=60
    )
    told: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if option in PASSED_ON and (option not in told or section == ":env:"):
            told[option] = value.strip("'\"")
    if certificates:
        told["cert"] = CERTIFICATES
    written = configparser.RawConfigParser()
    written["global"] = told
    return "".join(["[global]\n", *(f"{option} = {value}\n" for option, value in written["global"].items())])
