import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate_contracts.eviction import Staging
from tidegate_eviction.staging.sources import Contents
from tidegate_eviction.staging.stager import Stager, disk_bytes
from tidegate_eviction.triton.repository import TritonRepository

KIB = 1 << 10


def write_model(root: Path, name: str, content: bytes = b"", size: int = 8 * KIB) -> Path:
    folder = root / "source" / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").write_bytes(((content or name.encode()) * size)[:size])
    (folder.parent / "config.pbtxt").write_text(f'name: "{name}"\n')
    return folder


def write_ensemble(root: Path, name: str, *parts: str) -> None:
    (root / "source" / name / "1").mkdir(parents=True)
    steps = " ".join(f'step {{ model_name: "{part}" }}' for part in parts)
    (root / "source" / name / "config.pbtxt").write_text(f'platform: "ensemble" ensemble_scheduling {{ {steps} }}')


def files_below(folder: Path) -> dict[str, bytes]:
    found = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


@dataclass
class Rig:
    root: Path
    is_mounted: bool = True  # Whether the server can read the source directly, which it cannot for a bucket.
    room_seconds: float = 600.0
    before_read: Callable[[str], object] = str  # Called on a thread before each read of a model's source.

    def __post_init__(self) -> None:
        (self.root / "source").mkdir(exist_ok=True)
        self.repository = TritonRepository(str(self.root / "source"))
        self.loads = 0

    @property
    def served(self) -> Path:
        return self.root / "tier" / "models"

    @property
    def staged(self) -> set[str]:
        return {model for model, _ in self.stager.copies}

    def is_near(self, model: str) -> bool:
        return (self.served / model).resolve().is_relative_to((self.root / "tier" / "files").resolve())

    def check(self) -> None:
        """Check that no partial copy is visible, and that the copies fit the size."""
        for link in self.served.iterdir():
            assert link.is_symlink()
            found = files_below(link.resolve())
            assert not found or found == files_below(self.root / "source" / link.name), link.name
        assert self.stager.used_bytes <= self.stager.settings.size_bytes
        taken = sum(-(-len(data) // 4096) * 4096 for data in files_below(self.root / "tier" / "files").values())
        assert taken <= self.stager.settings.size_bytes

    def room_for(self, *models: str) -> int:
        found = (self.repository.contents(each) for each in models)
        return sum(disk_bytes(each) for each in found if each is not None)

    def make(self, size_bytes: int = 1 << 20) -> Stager:
        def contents(model: str) -> Contents | None:
            self.before_read(model)
            return self.repository.contents(model)

        settings = Staging(folder=str(self.root / "tier"), size_bytes=size_bytes)
        repository = self.root / "source" if self.is_mounted else None
        self.stager = Stager(settings, contents, repository, room_seconds=self.room_seconds)
        return self.stager

    async def begin(self, model: str) -> tuple[int, float]:
        self.loads += 1
        number = self.loads
        return number, await self.stager.ensure(number, model)

    async def load(self, model: str, *, failed: bool = False) -> float:
        number, seconds = await self.begin(model)
        self.stager.done(number, failed=failed)
        return seconds

    @asynccontextmanager
    async def running(self, size_bytes: int = 1 << 20) -> AsyncIterator[Stager]:
        stager = self.make(size_bytes)
        stager.open()
        try:
            yield stager
        finally:
            await stager.close()
