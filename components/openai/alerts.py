"""Alerts on what engines behind OpenAI's API measure."""

from typing import Any

from ..alerts import alert
from . import series
from .series import whichever


def openai_alerts(selector: str) -> list[dict[str, Any]]:
    """Return alerts on engines that do not start, that hang or that queue more than they compute.

    `selector` holds the labels of every series.
    """
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
