"""The picture of a wave: load, replicas, what callers waited for, and how long, over time."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import matplotlib
from matplotlib.figure import Figure  # not pyplot, which looks for displays

from .wave import Wave
from .world import BUSY, CHAT, PROXY, RARE

_SLOT_SECONDS = 3


def draw(wave: Wave, file: Path, title: str) -> None:
    """Write it as PNG or SVG, by the file's name."""
    slots: dict[int, list[float]] = defaultdict(list)
    for call in list(wave.calls):
        slots[int(call.ended / _SLOT_SECONDS)].append(call.reply.seconds)
    middle = [(slot + 0.5) * _SLOT_SECONDS for slot in sorted(slots)]
    at = [sample.at for sample in wave.samples]
    with _figure(file, title, 4) as (load, replicas, pressure, latency):
        load.step(at, [sample.callers for sample in wave.samples], where="post", label="callers at work")
        load.plot(middle, [len(slots[slot]) / _SLOT_SECONDS for slot in sorted(slots)], label="calls a second")
        load.set(ylabel="load")
        for name, colour in ((BUSY, "#1f77b4"), (RARE, "#2ca02c"), (CHAT, "#9467bd"), (PROXY, "#d62728")):
            wanted = [sample.wanted.get(name, 0) for sample in wave.samples]
            replicas.step(at, wanted, ":", where="post", color=colour)
            serving = [sample.serving[name] for sample in wave.samples]
            replicas.step(at, serving, "-", where="post", color=colour, label=f"{name} (dotted: wanted)")
        replicas.set(ylabel="replicas", ylim=(-0.2, 4.9))  # with room for what the colours mean
        pressure.plot(at, [sample.queue for sample in wave.samples], label="ms in the queue, mean of two minutes")
        pressure.plot(at, [sample.busy for sample in wave.samples], label="% told busy for want of room")
        pressure.plot(at, [sample.room for sample in wave.samples], label="% of a replica's memory that models take")
        pressure.set_yscale("symlog", linthresh=10)
        pressure.set(ylabel="what KEDA asks")
        latency.plot(middle, [median(slots[slot]) for slot in sorted(slots)], label="half of the calls")
        worst = [quantiles(slots[slot], n=20)[-1] if len(slots[slot]) > 1 else slots[slot][0] for slot in sorted(slots)]
        latency.plot(middle, worst, label="95 % of them")
        latency.set_yscale("log")
        latency.set(ylabel="seconds a call took", xlabel="seconds")
        for axes, place in ((replicas, "upper right"), (pressure, "center right"), (latency, "upper center")):
            axes.legend(fontsize=8, loc=place)


@contextmanager
def _figure(path: Path, title: str, rows: int) -> Iterator[list[Any]]:
    """Yield a figure's axes from above to below, and write it then."""
    figure = Figure(figsize=(9, 4 + 1.5 * rows), layout="constrained")
    all_axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False).flat)
    all_axes[0].set_title(title, fontsize=10)
    for axes in all_axes:
        axes.grid(alpha=0.3)
    yield all_axes
    all_axes[0].legend(fontsize=8, loc="upper right", ncols=3)
    # Without a date and random ids, the same wave is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "tidegate"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else {})
