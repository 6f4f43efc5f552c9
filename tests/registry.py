import io
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollout import tools


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run an empty registry as long as the block lasts, and yield its host and port."""
    log = folder / "registry.log"
    with log.open("w") as file:
        command: list[str | Path] = [tools.path(tools.CRANE), "registry", "serve", "--address", "127.0.0.1:0"]
        process = subprocess.Popen(command, stderr=file, stdout=file)
    try:
        deadline = time.monotonic() + 20
        while "serving on port " not in (text := log.read_text("utf-8")):
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.02)
        yield f"127.0.0.1:{text.rsplit('serving on port ', 1)[1].split()[0]}"
    finally:
        process.kill()
        process.wait()


def push(image: str, text: str, folder: Path) -> str:
    """Push an image whose only file holds this text, and return its digest."""
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        info = tarfile.TarInfo("text")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text.encode()))
    command: list[str | Path] = [tools.path(tools.CRANE), "append", "--new_layer", layer, "--new_tag", image]
    done: subprocess.CompletedProcess[str] = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip().rpartition("@")[2]
