"""Possible pools: the number and size of their slices, and their cost."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from tidegate_contracts.eviction import MODELS_SHARE
from tidegate_eviction.simulate.engine import SimulationSetting
from tidegate_eviction.simulate.trace import Trace

from stacks import devices
from stacks.command import WRONG_INPUT, CommandError
from stacks.definition.pools import OnDemand, Pool
from stacks.problems import escaped

from .simulations import Figures, setting_of
from .slices import Gpu, GpuSlice

LOADING = OnDemand(mode="on-demand")
"""Planned pools load with the definition's defaults."""
MOST_WAIT_SECONDS: Final = 600


def target_of(text: str) -> float:
    """Return a share of calls, given in per cent. Raises CommandError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share <= 1:
        why = "the share of calls must be more than 0% and at most 100%"
        raise CommandError(f"--target {escaped(text)}: {why}. Set --target 99%.", WRONG_INPUT)
    return share


def longest_wait(longest_load: float, request_seconds: float) -> int:
    """Return a `waitSeconds` of twice the longest load, if a request may take that long."""
    return int(min(MOST_WAIT_SECONDS, request_seconds - 1, math.ceil(2 * longest_load)))


def loading_for(trace: Trace, request_seconds: float) -> OnDemand:
    """Return the loading settings of planned pools: callers wait for the longest load of the trace."""
    wait = longest_wait(max((model.load_seconds for model in trace.models), default=0.0), request_seconds)
    return LOADING.model_copy(update={"wait_seconds": max(LOADING.wait_seconds, wait)})


@dataclass(frozen=True)
class Answer:
    """One pool: replicas on slices of one size, which all models of the trace share."""

    gpu: Gpu = field(hash=False)
    on: GpuSlice
    replicas: int
    loading: OnDemand = field(default=LOADING, hash=False)

    @property
    def share(self) -> Fraction:
        return self.on.share * self.replicas

    def __str__(self) -> str:
        return f"{self.replicas} × {self.on}"

    @property
    def name(self) -> str:
        return f"s-{str(self.on).lower().replace('.', '-').replace(' ', '-')}"

    @property
    def setting(self) -> SimulationSetting:
        return setting_of(self.loading, capacity_bytes(self.gpu, self.on), self.replicas)


@dataclass(frozen=True)
class Row:
    """An answer, and its effect on callers."""

    answer: Answer
    figures: Figures

    def meets(self, target: float) -> bool:
        """Whether enough calls find their model in memory, each model fits, and none is always refused."""
        holds_each = self.figures.largest <= self.answer.setting.capacity_bytes
        return holds_each and self.figures.share_warm >= target and self.figures.serves_every_model


def pool_tree(gpu: Gpu, name: str, on: GpuSlice, replicas: int, planned: OnDemand = LOADING) -> dict[str, Any]:
    """Return a pool in the form of the definition, without keys that have their defaults."""
    product = {"product": gpu.label} if gpu.label else {}
    placement = {"kind": "mig", "profile": on.profile} if on.profile else {"kind": "gpu"}
    if on.profile and gpu.strategy == "dra":
        placement["kind"] = "dra"
    elif on.profile and gpu.strategy == "single":
        placement["strategy"] = "single"
    capacity: dict[str, Any] = {}
    if not on.profile and not (gpu.label and gpu.product):  # the size of such a whole GPU is not known otherwise
        part, whole = MODELS_SHARE
        capacity = {"capacity": f"{on.memory_bytes * part // whole // 10**6}M"}
    wait = {"waitSeconds": planned.wait_seconds} if planned.wait_seconds != LOADING.wait_seconds else {}
    loading = {"mode": "on-demand", **capacity, **wait}
    return {"name": name, "loading": loading, "placement": {**placement, **product}, "replicas": replicas}


def capacity_bytes(gpu: Gpu, on: GpuSlice) -> int:
    """Return the memory for models on such a slice, by the definition's rules."""
    found = devices.capacity_bytes(Pool.model_validate(pool_tree(gpu, "any", on, 1)))
    assert found is not None
    return found


def too_large(gpu: Gpu, trace: Trace) -> list[str]:
    """Return the models that do not fit on a whole GPU."""
    room = capacity_bytes(gpu, gpu.slices[-1])
    return [model.name for model in trace.models if model.footprint_bytes > room]


def best(rows: Sequence[Row], target: float) -> Row | None:
    """Return the cheapest row that meets the target. Of equal ones, that with the least lost seconds."""
    fine = [row for row in rows if row.meets(target)]
    return min(fine, key=lambda row: (row.answer.share, row.figures.lost_seconds, str(row.answer)), default=None)
