"""What other components ask of servers that speak OpenAI's HTTP API."""

from collections.abc import Callable
from typing import Any

import pulumi
from tidegate_contracts import openai

from stacks.definition.environment import Mesh
from stacks.definition.openai import DynamoSettings
from stacks.definition.pods import Pods

from ..alerts import alert
from ..args import PoolArgs, PoolContext, ServerArgs
from ..place import Place
from ..values import of_kind, when
from . import series
from .engines import by_engine
from .frontends import OpenaiFrontends, service_of
from .pool import OpenaiPool
from .series import whichever
from .server import OpenaiServerArgs


class OpenaiKind:
    """A server of OpenAI's API, as `components.kinds.ServerKind` asks for it."""

    args: type[ServerArgs] = OpenaiServerArgs
    http_port = openai.HTTP_PORT
    grpc_port = None
    metrics_port = openai.METRICS_PORT
    metrics_path = openai.METRICS_PATH

    def grpc_tls(self, server: OpenaiServerArgs) -> None:
        """Return None: it speaks no gRPC."""

    def live_path(self, server: OpenaiServerArgs) -> str | None:
        """Return the engine's path."""
        return by_engine(server.openai, lambda engine, it: engine.paths(it)[0])

    def service(self, server: OpenaiServerArgs, pool: PoolArgs, make: Callable[[str], str]) -> str:
        """Return what `make` makes of the name of the Service of shared frontends, or of the pool's own."""
        return service_of(server, pool, make)

    def declare_shared(
        self,
        name: str,
        server: OpenaiServerArgs,
        place: Place,
        every_pod: Pods,
        mesh: Mesh | None,
        opts: pulumi.ResourceOptions,
    ) -> OpenaiFrontends | None:
        """Declare the frontends that its pools share, where they do."""
        return of_kind(
            server.openai,
            DynamoSettings,
            lambda it: when(
                it.frontends, lambda found: OpenaiFrontends(name, server, it, found, place, every_pod, mesh, opts)
            ),
        )

    def declare_pool(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions) -> None:
        """Declare the objects of a pool."""
        OpenaiPool(name, pool, opts)

    def alerts(self, selector: str) -> list[dict[str, Any]]:
        """Return alerts on engines that do not begin, that hang, and that have more to do than they can."""
        by = "namespace, pod"
        waiting, running = (whichever(names, selector, by) for names in (series.WAITING, series.RUNNING))

        def stalled(running: str, *tokens: str) -> str:
            still = " + ".join(f"sum by ({by}) (rate({name}{{{selector}}}[5m]))" for name in tokens)
            return f"sum by ({by}) (min_over_time({running}{{{selector}}}[5m])) > 0 and {still} == 0"

        # SGLang counts tokens when a request ends, which may be long.
        vllm = stalled("vllm:num_requests_running", "vllm:prompt_tokens_total", "vllm:generation_tokens_total")
        tokens = "dynamo_frontend_input_sequence_tokens_sum", "dynamo_frontend_output_tokens_total"
        return [
            alert(
                "TidegateEngineNotReady",
                f"max by ({by}) (tidegate_engine_up{{{selector}}}) == 0",
                "The engine of {{ $labels.pod }} has not answered for a quarter of an hour: it loads, or it hangs.",
                lasting="15m",
            ),
            alert(
                "TidegateEngineStalled",
                f"{vllm} or {stalled('dynamo_frontend_inflight_requests', *tokens)}",
                "{{ $labels.pod }} has {{ $value }} requests under way, and no token has come of them for minutes.",
                severity="critical",
            ),
            alert(
                "TidegateEngineQueueGrows",
                f"({waiting}) > ({running})",
                "{{ $value }} requests wait for the engine of {{ $labels.pod }}, more than it computes.",
                lasting="10m",
            ),
        ]
