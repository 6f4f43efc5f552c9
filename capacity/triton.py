"""Triton's metrics (Triton, docs/user_guide/metrics.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .samples import PoolSamples

WORK_SECONDS = "sum by (namespace, model) (max_over_time(nv_inference_request_duration_us{$match}[$length])) / 1e6"
"""The duration of all requests of a model since it was loaded, in Triton's queue and computing, without the load."""
REQUESTS = "sum by (namespace, model) (max_over_time(nv_inference_request_success{$match}[$length]))"
"""The number of these requests."""
QUEUE: Final = "nv_inference_queue_duration_us"
_COMPUTE: Final = tuple(f"nv_inference_compute_{part}_duration_us" for part in ("input", "infer", "output"))


@dataclass(frozen=True)
class Work:
    """The work of a pool's servers. Seconds are sums over calls."""

    queue_seconds: Mapping[str, float] = field(default_factory=dict)  # By model.
    compute_seconds: float = 0.0

    @property
    def queued_seconds(self) -> float:
        return sum(self.queue_seconds.values())

    @property
    def queue_share(self) -> float:
        """Queued seconds per computed second."""
        return self.queued_seconds / self.compute_seconds if self.compute_seconds else 0.0


def server_work(found: PoolSamples) -> Work:
    """Return the work of a pool's servers."""
    queue = {model: value / 1e6 for model, value in found.by_model(QUEUE).items()}
    compute = sum(sum(found.at_pods(each).values()) for each in _COMPUTE) / 1e6
    return Work(queue, compute)
