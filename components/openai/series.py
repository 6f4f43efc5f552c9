"""The names of the engines' metrics, and queries that work with all of them.

vLLM: vllm/v1/metrics/loggers.py. SGLang: sglang/srt/observability/metrics_collector.py. Dynamo 1.4: the metrics of its
frontend, and those of the engine behind it. NIM and custom engines work if their metrics have vLLM's names.
"""

from typing import Final

RUNNING: Final = ("vllm:num_requests_running", "sglang:num_running_reqs")
WAITING: Final = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")


def most_of_a_pod(names: tuple[str, ...], where: str, time: str) -> str:
    """Return a query for the maximum of any present or former pod in a time, with the first name that has data."""
    return " or ".join(f"max(max_over_time({name}{{{where}}}{time}))" for name in names)


def mean_of_all_pods(names: tuple[str, ...], where: str, time: str) -> str:
    """Return a query for the sum of the means of all present pods over a time, with the first name that has data.
    Former pods do not count, because other pods have their requests by now."""
    each = (f"{name}{{{where}}}" for name in names)
    return " or ".join(f"sum(avg_over_time({series}{time}) and {series})" for series in each)
