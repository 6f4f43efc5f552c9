"""What is left: metrics, the response cache, decoupled answers, agents of the repository."""

from collections.abc import Iterator
from typing import Any

from ....findings import Finding, error, warning
from ..entry import Entry
from .backends import is_ensemble


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with them."""
    decoupled = config.model_transaction_policy.decoupled
    if config.response_cache.enable:
        if decoupled:
            yield error(
                "the response cache and decoupled answers exclude each other",
                entry.where("response_cache"),
                do="take response_cache out",
            )
        elif not config.HasField("sequence_batching"):
            yield warning(
                "nothing is cached on a server that is started without --cache-config",
                entry.where("response_cache"),
                "that is Triton's default",
            )
    if decoupled and is_ensemble(config):
        yield warning(
            "an ensemble is decoupled when one of its steps is",
            entry.where("model_transaction_policy"),
            "Triton ignores what is written here",
            "take it out",
        )
    for number, control in enumerate(config.model_metrics.metric_control):
        where = entry.where(f"model_metrics.metric_control[{number}]")
        if not control.metric_identifier.family:
            yield error("a metric has no family", where, do='write metric_identifier { family: "…" }')
        if not control.histogram_options.buckets:
            yield error("a metric has no buckets", where, do="write histogram_options { buckets: [ … ] }")
    if config.model_repository_agents.agents:
        yield warning(
            "an agent of the repository must be installed with the server",
            entry.where("model_repository_agents"),
            "else Triton refuses the model",
        )
