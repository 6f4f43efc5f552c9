"""What a node is made of: programs and images, all of them in the cache before any namespace is made."""

import json
from dataclasses import dataclass
from pathlib import Path

from lab import tools
from lab.local_cluster.control_plane import PROGRAMS
from lab.tools import debian

from .built_images import POLICY, PROXY, built_image
from .image_archives import single_program, stand_ins

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "nftables", "iproute2", "busybox-static")
IMAGES = ("triton", "proxy", "eviction-policy", "caller", "pause")


@dataclass(frozen=True)
class Parts:
    """What a node is made of."""

    debian: debian.Unpacked
    archives: list[Path]
    """Of images."""

    def write(self, file: Path) -> None:
        """Write down where they are: for whoever has no network to get others, when a source has changed meanwhile."""
        file.write_text(json.dumps({"debian": str(self.debian.root), "archives": [*map(str, self.archives)]}))

    @classmethod
    def read(cls, file: Path) -> "Parts":
        """Return what was written down."""
        told = json.loads(file.read_text())
        return cls(debian.Unpacked(Path(told["debian"])), [Path(archive) for archive in told["archives"]])


def have_parts() -> Parts:
    """Return all the parts, in the cache from now on: the first time takes minutes, and a network."""
    packages = debian.unpacked(*PACKAGES)
    for tool in (*PROGRAMS, "kubectl", "kubelet", "kube-proxy"):
        tools.path(tool)
    tools.module_files("kwok-stages")
    images = stand_ins([f"localhost/{name}:test" for name in IMAGES], packages)
    others = [
        single_program("coredns", "localhost/coredns:test"),
        built_image(PROXY, "localhost/inference-proxy:test"),
        built_image(POLICY, "localhost/inference-eviction-policy:test"),
    ]
    return Parts(packages, [images, *others])
