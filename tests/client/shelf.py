from hashlib import sha256
from pathlib import Path

from tidegate.registry.artifacts import Artifacts


class Shelf(Artifacts):
    def __init__(self, files: dict[str, bytes]) -> None:
        self.where = "a shelf"
        self.files = files

    def list(self, folder: str) -> tuple[dict[str, int], list[str]]:
        return {path: len(content) for path, content in self.files.items() if path.startswith(f"{folder}/")}, []

    def download(self, path: str, to: Path) -> tuple[int, str]:
        return to.write_bytes(self.files[path]), sha256(self.files[path]).hexdigest()
