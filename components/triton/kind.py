"""What other components ask of Triton."""

from collections.abc import Callable
from typing import Any

import pulumi
from tidegate_contracts import triton

from stacks.definition.servers import ServerTls

from ..alerts import alert, record
from ..args import PoolArgs, PoolContext, ServerArgs
from ..place import pool_headless_name
from .pool import TritonPool
from .server import TritonServerArgs


class TritonKind:
    """Triton, as `components.kinds.ServerKind` asks for it."""

    args: type[ServerArgs] = TritonServerArgs
    http_port = triton.HTTP_PORT
    grpc_port = triton.GRPC_PORT
    metrics_port = triton.METRICS_PORT
    metrics_path = triton.METRICS_PATH

    def grpc_tls(self, server: TritonServerArgs) -> ServerTls | None:
        """Return the secret with the server's gRPC certificate; None where gRPC is plain."""
        return server.triton.grpc_tls

    def live_path(self, server: TritonServerArgs) -> None:
        """Return None: it is the same for all."""

    def service(self, server: TritonServerArgs, pool: PoolArgs, make: Callable[[str], str]) -> str:
        """Return what `make` makes of the name of the pool's own Service."""
        return make(pool_headless_name(server.name, pool.name))

    def declare_shared(self, *_: Any) -> None:
        """Declare nothing: pools of Triton share nothing."""

    def declare_pool(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions) -> None:
        """Declare the objects of a pool."""
        TritonPool(name, pool, opts)

    def alerts(self, selector: str) -> list[dict[str, Any]]:
        """Return alerts on requests that fail and on requests that wait; and since when a version answers: one that is
        loaded again within a day is no new one, and the model by which the eviction policy reads memory is none."""
        mine = f'nv_inference_request_success{{{selector}, model!="tidegate_memory"}}'
        answers = f"sum by (namespace, model, version) ({mine}) > 0"
        since = f"tidegate:version_answers:since_timestamp_seconds{{{selector}}}"
        return [
            record(
                since.partition("{")[0],
                f"last_over_time({since}[1d]) and {answers} or ({answers}) * 0 + time()",
            ),
            alert(
                "TidegateRequestsFail",
                f"sum by (namespace, pod, model) (rate(nv_inference_request_failure{{{selector}}}[5m]))"
                f" > 0.05 * (sum by (namespace, pod, model) (rate(nv_inference_request_success{{{selector}}}[5m]))"
                f" + sum by (namespace, pod, model) (rate(nv_inference_request_failure{{{selector}}}[5m])))",
                "More than 5 % of the requests of {{ $labels.model }} fail in the Triton of {{ $labels.pod }}.",
                lasting="10m",
            ),
            alert(
                "TidegateQueueGrows",
                f"sum by (namespace, pod, model) (rate(nv_inference_queue_duration_us{{{selector}}}[5m]))"
                f" / sum by (namespace, pod, model) (rate(nv_inference_request_success{{{selector}}}[5m])) / 1e6 > 0.5",
                "Requests of {{ $labels.model }} queue for {{ $value | humanizeDuration }} in {{ $labels.pod }}.",
                lasting="10m",
            ),
        ]
