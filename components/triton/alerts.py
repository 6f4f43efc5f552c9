"""Alerts on what Tritons measure."""

from typing import Any

from ..alerts import alert, record


def triton_alerts(selector: str) -> list[dict[str, Any]]:
    """Return alerts on requests that fail or queue, and the time since which each version answers.

    A version that is loaded again within a day is not new. The model by which the eviction policy reads memory is left
    out. `selector` holds the labels of every series.
    """
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
