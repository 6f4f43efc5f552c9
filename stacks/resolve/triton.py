"""What is resolved of servers of the kind `triton`: the settings of their process."""

from collections.abc import Mapping
from typing import Any

from components.args import ServerArgs
from components.triton.server import TritonServerArgs, TritonSettingsArgs

from ..definition.base import Section, extended
from ..definition.triton import RESOLVED_ARGUMENTS, TritonServer, TritonSettings


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

    def read_back(self, server: dict[str, Any]) -> Mapping[tuple[str, ...], tuple[str, ...]]:
        """Turn the settings of the process back, but for arguments that stand for other keys in the definition."""
        settings = server["triton"] = server.get("triton") or {}
        settings["metrics"] = {"intervalMilliseconds": settings.pop("metricsIntervalMilliseconds", None)}
        arguments = settings.pop("arguments", None) or []
        settings["extraArguments"] = [one for one in arguments if one[2:].partition("=")[0] not in RESOLVED_ARGUMENTS]
        return {
            ("triton", "metrics", "intervalMilliseconds"): ("triton", "metricsIntervalMilliseconds"),
            ("triton", "extraArguments"): ("triton", "arguments"),
        }


def _optional_arguments(settings: TritonSettings) -> list[str]:
    arguments = []
    if settings.metrics.latency_summaries:
        quantiles = ",".join(f"{one.quantile}:{one.error}" for one in settings.metrics.latency_summaries)
        arguments += ["--metrics-config=summary_latencies=true", f"--metrics-config=summary_quantiles={quantiles}"]
    if settings.rate_limiter is not None:
        arguments.append("--rate-limit=execution_count")
        arguments += [f"--rate-limit-resource={name}:{n}" for name, n in settings.rate_limiter.resources.items()]
    return arguments
