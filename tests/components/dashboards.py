"""The queries of the dashboards, in Grafana's form."""

import re
from collections.abc import Iterator
from typing import Any

from components.alert_rules import alert_rules
from components.dashboards import DASHBOARDS, Dashboard
from components.naming import Naming
from components.openai import series
from stacks.definition.environment import Objectives

QUESTIONS = {
    "which model is busy, and why": ("platform", "Which model is busy, and why"),
    "who evicts whom": ("slice", "Models that evict others, and evicted models"),
    "did the last promotion raise errors": ("rollout", "Did the last promotion raise errors?"),
    "which replica is slow": ("proxy", "Which replica is slow?"),
    "is a language model slow because requests wait": ("engine", "Running and waiting"),
    "will tonight's batch fit": ("slice", "Will tonight's batch fit?"),
}
"""Questions of an engineer on call, and the dashboard and panel with the answer."""
TRITON = {
    "nv_inference_request_success", "nv_inference_request_failure", "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us", "nv_inference_compute_infer_duration_us", "nv_gpu_utilization",
}  # fmt: skip
PLACE = Naming("prod", "inference")
RECORDED = {each["record"] for each in alert_rules(PLACE, Objectives()) if "record" in each}
ENGINES = {
    *series.RUNNING, *series.WAITING, "vllm:kv_cache_usage_perc", "sglang:token_usage",
    "vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "dynamo_frontend_input_sequence_tokens_sum",
    "vllm:generation_tokens_total", "sglang:generation_tokens_total", "dynamo_frontend_output_tokens_total",
    *(f"{engine}time_to_first_token_seconds{end}" for engine in ("vllm:", "sglang:", "dynamo_frontend_")
      for end in ("_bucket", "_sum", "_count")),
}  # fmt: skip
OTHERS = TRITON | ENGINES | RECORDED | {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "ALERTS"}


def panels() -> Iterator[tuple[Dashboard, dict[str, Any]]]:
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            yield dashboard, panel


def queries(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def query_of(expression: str, rate: str = "1m", **chosen: str) -> str:
    """Return Grafana's query for these values of variables, and all values of the others."""
    query = expression.replace("$__rate_interval", rate).replace("$__range", "5m")
    return re.sub(r"\$(\w+)", lambda found: chosen.get(found[1], ".*"), query)


def expressions() -> list[tuple[str, str]]:
    """Return every query of panels and marks, with a name."""
    found = [
        (f"{dashboard.name}: {panel['title']} {number}", expression)
        for dashboard, panel in panels()
        for number, expression in enumerate(queries(panel))
    ]
    marks = {each["name"]: each["expr"] for board in DASHBOARDS for each in board.content["annotations"]["list"]}
    return found + [(f"mark: {name}", expression) for name, expression in marks.items()]
