"""What is measured of a model's life, what good figures are, and how much is done for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.bench.report import Goal

ROOT: Final = Path(__file__).resolve().parents[3]
MB = 1_000_000
GOALS: Final[Mapping[str, Goal]] = {
    "publish_small_vs_cp": Goal("publishing many small files, against cp -r and sha256sum", "≤ 1.3"),
    "publish_large_vs_cp": Goal("publishing a few large files, against cp -r and sha256sum", "≤ 1.3"),
    "publish_small_vs_rsync": Goal("many small files, against rsync -c", "report"),
    "publish_large_vs_rsync": Goal("a few large files, against rsync -c", "report"),
    "publish_mb_per_s": Goal("MB a second of the large ones", "report"),
    "register_rss_mb": Goal("most memory while 100 MB are registered, in MB", "report"),
    "register_rss_growth": Goal("the same for the largest entry, against that", "flat: ≤ 1.1"),
    "triton_model_vs_client": Goal("a call of 600 KB by TritonModel, against bare tritonclient", "≤ 1.2"),
    "pyfunc_vs_client": Goal("the same call by the pyfunc that MLflow has loaded", "report"),
    "triton_model_rss_mb": Goal(
        "most memory of a model endpoint's process, without MLflow's web server, in MB", "report (0.2 GB)"
    ),
    "triton_model_import_s": Goal("seconds to import it", "report"),
}
"""The keys of the last line, in its order."""


@dataclass(frozen=True)
class Scale:
    """How often, how many, how large."""

    runs: int  # Turns that each side has.
    small_files: int
    large_bytes: int  # Of each of the large files.
    registered_bytes: tuple[int, ...]  # Sizes of the entries that are registered, the smallest first.
    calls: int  # In each turn of a caller.


FULL: Final = Scale(5, 2000, 256 * MB, (100 * MB, 1000 * MB, 4000 * MB), 200)
QUICK: Final = Scale(1, 50, 4 * MB, (10 * MB, 20 * MB), 5)  # Just enough to see that figures can be had.
