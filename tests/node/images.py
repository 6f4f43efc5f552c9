"""The images of a node, all in the cache before the tests create a namespace. They need no image registry."""

import configparser
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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pip

from lab import tools
from lab.tools import debian
from rollout.tools import gotoolchain, pins
from rollout.tools.cache import cache_root, digest, once
from rollout.tools.running import ToolError

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent / "images"
ROLES = ("usr/bin/tritonserver", "usr/bin/python", "usr/bin/caller", "pause")
STAND_INS = ("triton", "proxy", "eviction-policy", "caller", "pause")
SHELL = ("sh", "cat", "env", "head", "base64", "tr", "ls", "rm", "touch", "sleep", "grep", "mount", "wget", "id")
"""Programs that Triton's start command, pip and the tests use."""
PYTHON = "opt/python"  # The path of a real Python in images.
NOT_COPIED = ("__pycache__", "*-packages", "config-*", "ensurepip", "idlelib", "lib2to3", "test", "tests", "tkinter")
LIBRARIES = (
    "libgcc_s.so.1", "libstdc++.so.6", "libm.so.6",
    "libdl.so.2", "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libutil.so.1",
)  # fmt: skip
"""Libraries that compiled packages may expect on every Linux for wheels, in addition to the C library."""
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": f"/{PYTHON}/lib"}
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PASSED_ON = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries")
BUILD_SECONDS = 10 * 60


@dataclass(frozen=True)
class Product:
    image: str
    folder: str
    package: str
    requirements: str

    def ingredients(self) -> list[bytes]:
        folders = ("contracts/tidegate_contracts", "service/tidegate_service", f"{self.folder}/{self.package}")
        found = [file for folder in folders for file in sorted((ROOT / folder).rglob("*"))]
        files = [ROOT / self.folder / "Dockerfile", ROOT / ".dockerignore", ROOT / self.requirements]
        files += [file for file in found if file.is_file() and file.suffix != ".pyc"]
        files += [Path(__file__), Path(sys.executable).resolve()]
        return [part for file in files for part in (file.name.encode(), file.read_bytes())]


PROXY = Product("localhost/inference-proxy:test", "proxy", "tidegate_proxy", "requirements/proxy.txt")
POLICY = Product(
    "localhost/inference-eviction-policy:test", "policies/eviction", "tidegate_eviction", "requirements/eviction.txt"
)


def archives(packages: debian.Unpacked) -> list[Path]:
    """Return the archives of all images of a node. The first time takes minutes and needs a network."""
    with ThreadPoolExecutor() as pool:  # Each change of the sources builds two images again.
        built = pool.map(built_image, (PROXY, POLICY))
        return [stand_ins(packages), single_program("coredns"), *built]


# ---- a directory becomes an image ----


def pack(root: Path, names: Sequence[str], archive: Path, entrypoint: Sequence[str] = ()) -> None:
    """Write a directory as an image with these names, in the format of `docker save`, reproducibly."""
    layer = _tar({"": root})
    config = {
        "architecture": pins.system()[1],
        "os": "linux",
        "config": {"Entrypoint": [*entrypoint], "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "a folder"}],  # Builders that use the image as a base count layers with this.
    }
    about = [{"Config": "config.json", "RepoTags": [*names], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(about).encode(),
    }
    archive.write_bytes(_tar(files))


def _tar(content: dict[str, Path] | dict[str, bytes]) -> bytes:
    """Return directories and files as a tar archive with owner root and without times."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, value in content.items():
            if isinstance(value, bytes):
                member = tarfile.TarInfo(name)
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
                continue
            for path in sorted(value.rglob("*")):
                member = tar.gettarinfo(path, str(path.relative_to(value)))
                member.uid = member.gid = member.mtime = 0
                member.uname = member.gname = ""
                with path.open("rb") if member.isreg() else io.BytesIO() as file:
                    tar.addfile(member, file)
    return whole.getvalue()


def stand_ins(packages: debian.Unpacked) -> Path:
    """Return an archive with one image for all stand-ins, under all their names. The first use creates it."""
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in (".go", ".mod"))
    busybox = packages.path("busybox")
    parts = [path.read_bytes() for path in (Path(__file__), *sources, busybox, Path(sys.executable).resolve())]
    archive = cache_root() / "images" / f"{digest(*STAND_INS, *parts)}.tar"

    def make(partial: Path) -> None:
        root = partial.parent / "root"
        _shell(root, busybox)
        program = root / "usr" / "bin" / "stand-in"
        go = [str(gotoolchain.go().path), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program)]
        subprocess.run(go, cwd=SOURCES, env=gotoolchain.environment(), check=True, timeout=BUILD_SECONDS)
        for role in ROLES:
            (root / role).symlink_to("/usr/bin/stand-in")
        _copy_python(root)
        pack(root, [f"localhost/{name}:test" for name in STAND_INS], partial, ["/pause"])

    once(archive, make, "the stand-in images")
    return archive


def single_program(tool: str) -> Path:
    """Return an archive with an image that contains only one of our static programs."""
    program = tools.path(tool)
    archive = cache_root() / "images" / f"{digest(Path(__file__).read_bytes(), tool, str(program))}.tar"

    def make(partial: Path) -> None:
        root = partial.parent / "root"
        root.mkdir()
        shutil.copy(program, root / tool)
        pack(root, [f"localhost/{tool}:test"], partial, [f"/{tool}"])

    once(archive, make, f"the image of {tool}")
    return archive


def _shell(root: Path, busybox: Path) -> None:
    for folder in ("bin", "usr/bin", "usr/local/bin", "tmp", "etc/ssl/certs", "proc", "sys", "dev", "run", "var/tmp"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(busybox, root / "bin" / "busybox")
    for applet in SHELL:
        (root / "bin" / applet).symlink_to("busybox")


def _copy_python(root: Path) -> Path:
    """Copy this Python and its shared libraries, and return the path of its standard library."""
    program = Path(sys.executable).resolve()
    home = root / PYTHON
    (home / "bin").mkdir(parents=True)
    shutil.copy(program, home / "bin" / "python3")
    library = Path(sysconfig.get_path("stdlib"))
    copied = home / library.relative_to(sys.base_prefix)
    shutil.copytree(library, copied, ignore=shutil.ignore_patterns(*NOT_COPIED))
    programs = [program, *library.glob("lib-dynload/*.so")]
    linked = subprocess.run(["ldd", *programs], capture_output=True, text=True, timeout=60).stdout
    for name, place in {*re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(", linked, re.MULTILINE)}:
        # The loader, which ldd lists without an arrow, keeps its path. The others go to the image's library directory.
        target = home / "lib" / name if name else root / place.strip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(place, target)
    return copied


# ---- the project's images ----


def built_image(product: Product) -> Path:
    """Return an archive with a product's image, which the first use builds. Needs Linux and root."""
    archive = cache_root() / "images" / f"{digest(product.image, *product.ingredients())}.tar"
    once(archive, lambda partial: _build(product, partial), f"the image of {product.folder}")
    return archive


@dataclass(frozen=True)
class Contents:
    names: list[str]
    configuration: dict[str, Any]
    added: dict[str, tarfile.TarInfo]  # The regular files of its last layer, by path.


def contents(archive: Path) -> Contents:
    with tarfile.open(archive) as image:
        (manifest,) = json.load(_extracted(image, "manifest.json"))
        configuration = json.load(_extracted(image, manifest["Config"]))["config"]
        with tarfile.open(fileobj=_extracted(image, manifest["Layers"][-1])) as layer:
            added = {f"/{member.name}": member for member in layer.getmembers() if member.isreg()}
    return Contents(manifest["RepoTags"], configuration, added)


def _extracted(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    assert file is not None
    return file


def _build(product: Product, partial: Path) -> None:
    room = partial.parent
    packages = debian.unpacked("buildah", "busybox-static")
    certificates = _base(room / "base", packages.path("busybox"))
    pack(room / "base", ["localhost/python:3.11-slim"], room / "base.tar")
    (room / "pip.conf").write_text(_pip_configuration(certificates))
    dockerfile = ROOT / product.folder / "Dockerfile"
    more = [f"--build-arg=BASE=docker-archive:{room}/base.tar", f"--secret=id=pip,src={room}/pip.conf"]
    (room / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (room / "registries.conf").write_text("")
    _library_cache(packages, room / "ld.so.cache")
    alone = f'mount --bind "{room}/ld.so.cache" /etc/ld.so.cache && exec "$0" "$@"'
    storage = [f"--root={room}/storage", f"--runroot={room}/run", "--storage-driver=vfs"]
    buildah = ["unshare", "--mount", "sh", "-ec", alone, str(packages.path("buildah")), *storage]
    settings = {"TMPDIR": str(room), "CONTAINERS_REGISTRIES_CONF": str(room / "registries.conf")}
    environment = packages.environment() | settings
    policy = f"--signature-policy={room}/policy.json"
    build = [*buildah, "build", policy, "--isolation=chroot", *more]
    build += [f"--file={dockerfile}", f"--tag={product.image}", str(ROOT)]
    push = [*buildah, "push", policy, product.image, f"docker-archive:{partial}:{product.image}"]
    for command in (build, push):
        _run(command, environment, f"building {product.image} failed", f"see {dockerfile}")


def _library_cache(packages: debian.Unpacked, cache: Path) -> None:
    """Write the loader's cache of libraries, because buildah restarts itself without its environment."""
    folders = sorted({str(file.parent) for file in packages.root.glob("**/lib/**/*.so.*")})
    own = cache.with_name("ld.so.conf")
    own.write_text("\n".join([*folders, "include /etc/ld.so.conf", ""]))
    command = ["/sbin/ldconfig", "-X", "-C", str(cache), "-f", str(own)]
    _run(command, os.environ, "listing the builder's libraries failed", "read the output of ldconfig")


def _run(command: list[str], environment: Mapping[str, str], failure: str, way_out: str) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise ToolError(f"{failure}:\n{output}\n  way out: {way_out}")


def _base(root: Path, busybox: Path) -> bool:
    """Create the base's root directory, and return whether it has this machine's certificates."""
    _shell(root, busybox)
    (root / "root").mkdir()
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    library = _copy_python(root)
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
    own = Path(os.environ.get("PIP_CERT") or CERTIFICATES)
    if own.exists():
        shutil.copy(own, root / CERTIFICATES.strip("/"))
    return own.exists()


def _pip_configuration(certificates: bool) -> str:
    """Return this machine's pip settings for package indexes, as the text of a file."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    settings: dict[str, str] = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if option in PASSED_ON and (option not in settings or section == ":env:"):
            settings[option] = value.strip("'\"")
    if certificates:
        settings["cert"] = CERTIFICATES
    written, text = configparser.RawConfigParser(), io.StringIO()
    written["global"] = settings
    written.write(text)
    return text.getvalue()
