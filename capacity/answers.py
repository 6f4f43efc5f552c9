"""Answers to the question how many slices of which size, and what they cost."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from tidegate_contracts.eviction import MODELS_SHARE
from tidegate_eviction.simulate.engine import SimulationSetting
from tidegate_eviction.simulate.trace import Trace, TracedModel

from stacks import devices
from stacks.command import WRONG_INPUT, CommandError
from stacks.definition.pools import OnDemand, Pool
from stacks.problems import escaped

from .simulations import Figures, setting_of
from .slices import Gpu, GpuSlice

LOADING = OnDemand(mode="on-demand")
"""How planned pools load: as the definition does where it says no more."""
MOST_WAIT_SECONDS: Final = 600


def target_of(text: str) -> float:
    """Return a share of calls, written in per cent; CommandError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share <= 1:
        why = "it is a share of calls in per cent: more than 0%, at most 100%"
        raise CommandError(f"--target {escaped(text)}: {why}. Write --target 99%.", WRONG_INPUT)
    return share


def longest_wait(longest_load: float, request_seconds: float) -> int:
    """Return the `waitSeconds` that covers loads of so many seconds, twice over, if a request may take so long."""
    return int(min(MOST_WAIT_SECONDS, request_seconds - 1, math.ceil(2 * longest_load)))


def loading_for(trace: Trace, request_seconds: float) -> OnDemand:
    """Return how planned pools load the models of a trace: callers wait for the longest load."""
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
        """GPUs that it takes."""
        return self.on.share * self.replicas

    def __str__(self) -> str:
        """Its slices."""
        return f"{self.replicas} × {self.on}"

    @property
    def name(self) -> str:
        """The name of its pool."""
        return f"s-{str(self.on).lower().replace('.', '-').replace(' ', '-')}"

    @property
    def setting(self) -> SimulationSetting:
        """How the pool is simulated."""
        return setting_of(self.loading, capacity_bytes(self.gpu, self.on), self.replicas)


@dataclass(frozen=True)
class Row:
    """An answer, and what callers meet."""

    answer: Answer
    figures: Figures

    def meets(self, target: float) -> bool:
        """Say whether it answers this share of requests at once, holds each model, and locks none out."""
        holds_each = self.figures.largest <= self.answer.setting.capacity_bytes
        return holds_each and self.figures.share_warm >= target and self.figures.serves_every_model


def pool_tree(gpu: Gpu, name: str, on: GpuSlice, replicas: int, planned: OnDemand = LOADING) -> dict[str, Any]:
    """Return a pool as a definition has it, and nothing that follows by itself."""
    product = {"product": gpu.label} if gpu.label else {}
    placement = {"kind": "mig", "profile": on.profile} if on.profile else {"kind": "gpu"}
    if on.profile and gpu.strategy == "dra":
        placement["kind"] = "dra"
    elif on.profile and gpu.strategy == "single":
        placement["strategy"] = "single"
    capacity: dict[str, Any] = {}
    if not on.profile and not (gpu.label and gpu.product):  # of such a whole GPU nothing else tells the size
        part, whole = MODELS_SHARE
        capacity = {"capacity": f"{on.memory_bytes * part // whole // 10**6}M"}
    wait = {"waitSeconds": planned.wait_seconds} if planned.wait_seconds != LOADING.wait_seconds else {}
    loading = {"mode": "on-demand", **capacity, **wait}
    return {"name": name, "loading": loading, "placement": {**placement, **product}, "replicas": replicas}


def capacity_bytes(gpu: Gpu, on: GpuSlice) -> int:
    """Return what models may take on such a slice, as the definition has it."""
    found = devices.capacity_bytes(Pool.model_validate(pool_tree(gpu, "any", on, 1)))
    assert found is not None
    return found


def too_large(gpu: Gpu, trace: Trace) -> list[TracedModel]:
    """Return the models that not even a whole GPU holds."""
    room = capacity_bytes(gpu, gpu.slices[-1])
    return [model for model in trace.models if model.footprint_bytes > room]


def best(rows: Sequence[Row], target: float) -> Row | None:
    """Return the cheapest answer that meets the target; of several that whose callers lose least."""
    fine = [row for row in rows if row.meets(target)]
    return min(fine, key=lambda row: (row.answer.share, row.figures.lost_seconds, str(row.answer)), default=None)
