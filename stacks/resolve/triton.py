"""What is resolved of servers of the kind `triton`: the settings of their process."""

from components.args import ServerArgs
from components.triton.server import TritonServerArgs, TritonSettingsArgs

from ..definition.base import Section, extended
from ..definition.triton import TritonServer, TritonSettings


class TritonKind:
    """Triton, as `stacks.resolve.kinds.ServerKind` asks for it."""

    args: type[ServerArgs] = TritonServerArgs

    def settings(self, server: TritonServer) -> dict[str, Section]:
        """Return the settings of the Triton process."""
        said = server.triton
        resolved = extended(
            TritonSettingsArgs,
            said,
            metrics_interval_milliseconds=said.metrics.interval_milliseconds,
            arguments=(*_optional_arguments(said), *said.extra_arguments),
        )
        return {"triton": resolved}

    def exit_seconds(self, server: TritonServer) -> int:
        """Return how long requests in flight may take to end when a replica stops."""
        return server.triton.exit_timeout_seconds


def _optional_arguments(settings: TritonSettings) -> list[str]:
    arguments = []
    if settings.metrics.latency_summaries:
        quantiles = ",".join(f"{one.quantile}:{one.error}" for one in settings.metrics.latency_summaries)
        arguments += ["--metrics-config=summary_latencies=true", f"--metrics-config=summary_quantiles={quantiles}"]
    if settings.rate_limiter is not None:
        arguments.append("--rate-limit=execution_count")
        arguments += [f"--rate-limit-resource={name}:{n}" for name, n in settings.rate_limiter.resources.items()]
    return arguments
