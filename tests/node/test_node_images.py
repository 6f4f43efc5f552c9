"""Images made of a folder, without a registry and without a builder."""

import json
from pathlib import Path

import pytest

from lab.tools import debian

from .environment import PATIENCE, until
from .image_archives import Configuration, pack
from .machine import Machine
from .parts import PACKAGES


def shell(root: Path) -> Path:
    """Make a root file system of a shell and one file."""
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "sh").write_bytes(debian.unpacked(*PACKAGES).path("busybox").read_bytes())
    (root / "bin" / "sh").chmod(0o755)
    (root / "told").write_text("from the file\n")
    (root / "told").chmod(0o600)
    (root / "link").symlink_to("told")
    return root


def test_a_folder_becomes_an_image_that_runs_as_its_configuration_says(node: Machine, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    script = 'read line < /link; echo "{\\"event\\": \\"$line, $GREETING, $PWD\\"}"'
    pack(
        shell(tmp_path / "root"),
        ["localhost/told:1"],
        archive,
        Configuration(["/bin/sh", "-c", script], {"GREETING": "hello"}, user="0:0", folder="/bin"),
    )
    node.import_image(archive)
    node.kubectl("run", "told", "--image=localhost/told:1", "--restart=Never")
    try:
        until(lambda: node.get("pod", "told")["status"]["phase"] == "Succeeded", PATIENCE, "the pod to be done")
        assert json.loads(node.kubectl("logs", "told").stdout) == {"event": "from the file, hello, /bin"}
    finally:
        node.kubectl("delete", "pod", "told", "--now")


@pytest.mark.usefixtures("node")
def test_the_same_folder_becomes_the_same_image(tmp_path: Path) -> None:
    """Whenever it was made, and whoever made it."""
    for name in ("first", "second"):
        pack(shell(tmp_path / name), ["localhost/told:1"], tmp_path / f"{name}.tar", Configuration())
        (tmp_path / name / "told").touch()
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()
