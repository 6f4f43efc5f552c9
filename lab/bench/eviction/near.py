"""Files near the GPU: cold starts from a slow volume with a real Triton, with and without a tier beside it."""

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate_contracts.eviction import EvictionSettings, ManagedModel, Staging
from tidegate_contracts.manifest import PUBLISHED_MANIFEST, ManifestFile, make_manifest
from tidegate_eviction.staging.stager import MODELS

from lab.bench.report import Figures, NotHereError
from lab.local_plane.policy import policy, triton_options, write_settings
from lab.local_plane.repository import Model, publish
from lab.local_plane.slow_volume import SlowVolume, forget, slow_volume
from lab.local_plane.triton import triton
from tests.policies.eviction.rigs.caller import Holder, infer, until
from tests.policies.eviction.rigs.zoo import NUMBER

from .goals import Effort

MB = 10**6
SPEEDS = (25, 100)  # MB/s.
ROOM = 10**9  # Bytes, of memory and of the tier.
LARGE = "large"
PROGRAM = Path(__file__).with_name("weights.py")


def measure(effort: Effort) -> Figures:
    """Measure first and second cold starts at each speed; and those of the same model in a folder of this machine that
    is in memory: no tier saves anything of what these take."""
    cases = [*((speed, is_staged) for speed in SPEEDS for is_staged in (False, True)), None]
    seconds: dict[tuple[tuple[int, bool] | None, int], list[float]] = {}
    for run in range(effort.near_runs):
        for case in cases if run % 2 else reversed(cases):
            for start, took in enumerate(_starts(case, effort.near_mb)):
                seconds.setdefault((case, start), []).append(took)
    middle = {key: statistics.median(each) for key, each in seconds.items()}
    found = Figures()
    for start, which in enumerate(("first", "second")):
        found.add(f"{which} cold start, {effort.near_mb} MB in memory", f"{middle[None, start]:.2f} s")
    for speed in SPEEDS:
        for start, which in enumerate(("first", "second")):
            for is_staged, how in ((False, "not staged"), (True, "staged")):
                took = middle[(speed, is_staged), start]
                what = f"{which} cold start, {effort.near_mb} MB at {speed} MB/s, {how}"
                found.add(what, f"{took:.2f} s, {max(0.0, took - middle[None, start]):.2f} s more than in memory")
        plain, staged = (speed, False), (speed, True)
        found.figures[f"near_first_{speed}"] = middle[staged, 0] / middle[plain, 0]
        found.figures[f"near_second_{speed}"] = middle[plain, 1] / middle[staged, 1]
    return found


@dataclass
class _Plane:
    root: Path
    settings: EvictionSettings
    holder: Holder
    triton: str  # Its HTTP side.

    def unload(self, model: str) -> None:
        """Have a model unloaded: it is none of the pool's for a while."""
        for settings in (self.settings.model_copy(update={"models": ()}), self.settings):
            write_settings(self.root, settings)
            until(lambda: bool(self.holder.listing().models) is bool(settings.models))  # noqa: B023
        self.holder.until(model, "cold")

    def cold_start(self, model: str) -> float:
        """Return how many seconds a model's first answer takes, from asking for it."""
        began = time.perf_counter()
        said = self.holder.acquire(model)
        if said["outcome"] != "granted" or infer(self.triton, model) != 7:
            raise NotHereError(f"{model}: {said}")
        took = time.perf_counter() - began
        self.holder.release(model)
        return took


def _starts(case: tuple[int, bool] | None, mb: int) -> tuple[float, float]:
    """Return the seconds of a model's first cold start, and of one after it was unloaded: from a volume of so many
    MB/s, staged or not; or, None, from memory."""
    speed, is_staged = case or (SPEEDS[-1], False)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        root = Path(folder)
        with slow_volume(root, (2 * mb + 64) * MB, speed * MB) as volume:
            repository, tier = (volume.folder if case else root) / "models", root / "tier"
            repository.mkdir()
            _model(repository, LARGE, mb)
            with _plane(root, volume, repository, tier if is_staged else None) as plane:
                took = []
                for _ in range(2):
                    if case:
                        forget(volume.folder)
                        forget(tier)
                    took.append(plane.cold_start(LARGE))
                    plane.unload(LARGE)
                return took[0], took[1]


@contextmanager
def _plane(root: Path, volume: SlowVolume, repository: Path, tier: Path | None) -> Iterator[_Plane]:
    served = repository
    if tier is not None:
        served = tier / MODELS
        served.mkdir(parents=True)
    settings = EvictionSettings(
        policy="cost-aware", repository=str(repository), capacity_bytes=ROOM, idle_seconds=0, lease_seconds=2,
        wait_seconds=120, models=(ManagedModel(name=LARGE, footprint_bytes=ROOM // 2),),
        staging=None if tier is None else Staging(folder=str(tier), size_bytes=ROOM),
    )  # fmt: skip
    write_settings(root / "policy", settings)
    # Else the Python backend starts each model's process twice, first to complete its configuration: that takes 2 s.
    options = [*triton_options(root / "policy"), "--disable-auto-complete-config"]
    with (
        triton(root / "triton", served, options=options) as server,
        policy(root / "policy", server, options=["--drain-seconds", "0"]) as made,
    ):
        for process in (server.process, made.process):
            volume.slow_down(process.pid)
        yield _Plane(root / "policy", settings, Holder(made), server.http)


def _model(repository: Path, name: str, mb: int) -> None:
    """Publish a model with so many MB of weights, and the manifest by which a copy of it is proved."""
    model = Model(name, PROGRAM, [("INPUT", *NUMBER)], [("OUTPUT", *NUMBER)])
    publish(model, repository, repository.parent / "staging")
    folder = repository / name / "1"
    (folder / "weights.bin").write_bytes(os.urandom(mb * MB))
    files = [
        ManifestFile(path=f"1/{each.name}", size=each.stat().st_size, sha256=_digest(each)) for each in folder.iterdir()
    ]
    (folder / PUBLISHED_MANIFEST).write_bytes(make_manifest(name, files).canonical())


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
