"""What engines measure, under names of their own, and questions that know all of them.

vLLM: vllm/v1/metrics/loggers.py. SGLang: sglang/srt/observability/metrics_collector.py. Dynamo 1.4: those of its
frontend, and the engine's own of what computes behind it. NIM's, and others of one's own, are known where they
are vLLM's.
"""

from typing import Final

RUNNING: Final = ("vllm:num_requests_running", "sglang:num_running_reqs")
WAITING: Final = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")


def most_of_a_pod(names: tuple[str, ...], where: str, time: str) -> str:
    """Return the most that any pod, also one that has gone, measured in a time under the first name that any has."""
    return " or ".join(f"max(max_over_time({name}{{{where}}}{time}))" for name in names)


def mean_of_all_pods(names: tuple[str, ...], where: str, time: str) -> str:
    """Return the sum of what each pod that there is measured on the mean of a time, under the first name that any has.

    What one measured that has gone is measured at others by now.
    """
    each = (f"{name}{{{where}}}" for name in names)
    return " or ".join(f"sum(avg_over_time({series}{time}) and {series})" for series in each)
