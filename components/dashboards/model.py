"""One model's life: its calls, where it is warm, what it waits for, and its versions."""

from ..alerts import FAILED, REFUSED
from .panel import BY, HERE, RATE, Dashboard, Panel, Query, grown, quantiles, requests

_CALLS = f'{HERE}, server=~"$server", model=~"$model"'
_HELD = f'{HERE}, model=~"$model"'  # What policies and Tritons tell names no server of the definition.


def _all(statuses: tuple[str, str]) -> str:
    """Return the calls with these statuses in the time that is shown."""
    http, grpc = (
        grown(f'tidegate_proxy_requests_total{{{_CALLS}, protocol="{protocol}", status=~"{which}"}}')
        for protocol, which in zip(("http", "grpc"), statuses, strict=True)
    )
    return f"sum({http} or {grpc}) or vector(0)"


def _often(what: str) -> str:
    """Return how often something happened to the model, in each quarter of an hour."""
    return grown(f"tidegate_eviction_model_{what}_total{{{_HELD}}}", "[15m]")


MODEL = Dashboard(
    "model",
    "Model",
    "One model's life: who calls it, where it is warm, what it waits for, and which version answers.",
    {
        "Calls": (
            Panel(
                "Calls, by status",
                "Calls a second by how they ended. 503 and 14: busy; 424: it cannot be loaded; 404: its name or version"
                " is wrong.",
                (Query(f"sum by ({BY}, protocol, status) ({requests(_CALLS)})",
                       "{{namespace}} {{protocol}} {{status}}"),),
                "reqps", "stack",
            ),
            Panel(
                "How long its calls take",
                "Seconds until a call has ended. p50 high: the model itself is slow, or its queue is long. Only p99:"
                " it was cold, or somebody sends large inputs.",
                quantiles("tidegate_proxy_request_seconds", _CALLS, "model", "{{model}}", 0.5, 0.95, 0.99),
                "s",
            ),
            Panel(
                "Why calls did not reach it",
                "Calls a second that the proxy ended itself, by type and reason: docs/proxy-api.md, Problems.",
                (Query(f"sum by ({BY}, type, reason) (rate(tidegate_proxy_model_problems_total{{{_CALLS}}}{RATE}))"
                       f" or on ({BY}) sum by ({BY}) ({requests(_CALLS)}) * 0", "{{namespace}} {{type}} {{reason}}"),),
                "reqps", "stack",
            ),
            Panel(
                "Callers",
                "Calls a second by caller, of all models of the environment, where `proxy.metrics.callers` says that"
                " they are told apart; the proxy's log has caller and model of each line.",
                (Query(f"topk(10, sum by ({BY}, principal)"
                       f" (rate(tidegate_proxy_caller_requests_total{{{HERE}}}{RATE})))",
                       "{{namespace}} {{principal}}"),),
                "reqps", "lines", 8, needs="proxy.metrics.callers",
            ),
            Panel(
                "Failed, and told to come again",
                "Calls in the time shown. Failed ones after a promotion: compare versions below, and roll back.",
                (Query(f"sum({grown(f'tidegate_proxy_requests_total{{{_CALLS}}}')})", "calls"),
                 Query(_all(FAILED), "failed"),
                 Query(_all(REFUSED), "told to come again")),
                "short", "figure",
            ),
        ),
        "Warm and cold": (
            Panel(
                "Where it is",
                "Replicas by the state that the model is in there. `quarantined`: it failed to load too often,"
                " `tidegate why` says why. Back and forth between cold and resident: it thrashes, see Slice.",
                (Query(f"sum by ({BY}, state) (tidegate_eviction_model_state{{{_HELD}}})", "{{namespace}} {{state}}"),),
                "short", "stack",
            ),
            Panel(
                "Loads and evictions",
                "How often it was loaded, could not be, was evicted (by why), and had others evicted, in each quarter"
                " of an hour. Many loads, and evictions for `room`: pin it, or give it a larger slice.",
                (Query(f"sum by ({BY}, model) ({_often('loads')})", "loaded"),
                 Query(f"sum by ({BY}, model) ({_often('load_failures')})",
                       "could not be loaded"),
                 Query(f"sum by ({BY}, reason) ({_often('evictions')})",
                       "evicted: {{reason}}"),
                 Query(f"sum by ({BY}, model) ({_often('evicted_others')})",
                       "had others evicted")),
            ),
            Panel(
                "Who holds it",
                "Leases of proxies on it, by replica. A model without leases may be evicted; one that is always leased"
                " is worth pinning.",
                (Query(f"sum by ({BY}, pod) (tidegate_eviction_model_leases{{{_HELD}}})", "{{namespace}} {{pod}}"),),
                "short", "stack",
            ),
            Panel(
                "Waits",
                "Seconds that calls of its server's pools waited for a cold model. Near `waitSeconds`: loads are slow,"
                " or wait for room; see Load time, and stage files near the GPU.",
                quantiles("tidegate_proxy_lease_wait_seconds", f'{HERE}, server=~"$server"', "server, pool",
                          "{{server}}/{{pool}}", 0.5, 0.95),
                "s",
            ),
            Panel(
                "Load time",
                "Seconds that its last load took. Higher than it was: the volume is slow, or the files are not near.",
                (Query(f"max by ({BY}, pod) (tidegate_eviction_model_load_seconds{{{_HELD}}})",
                       "{{namespace}} {{pod}}"),),
                "s",
            ),
            Panel(
                "Size",
                "Bytes that it takes, and how that is known. Larger than declared: correct the definition.",
                (Query(f"max by ({BY}, pod, from) (tidegate_eviction_model_footprint_bytes{{{_HELD}}})",
                       "{{namespace}} {{pod}} {{from}}"),),
                "bytes",
            ),
        ),
        "Versions": (
            Panel(
                "Shares of its versions",
                "Requests a second that Triton answered, by version: how traffic is split.",
                (Query(f"sum by ({BY}, version) (rate(nv_inference_request_success{{{_HELD}}}{RATE}))",
                       "{{namespace}} version {{version}}"),),
                "reqps", "stack",
            ),
            Panel(
                "Failures of its versions",
                "Requests a second that Triton could not do, by version. A new version with more than the old one:"
                " roll it back.",
                (Query(f"sum by ({BY}, version) (rate(nv_inference_request_failure{{{_HELD}}}{RATE}))",
                       "{{namespace}} version {{version}}"),),
                "reqps",
            ),
            Panel(
                "Computing, and waiting in Triton",
                "Seconds of a request by version: in the model's own queue, and computing. The queue is long: more"
                " instances or replicas. Computing is long: batching, a larger slice.",
                (Query(f"sum by ({BY}, version) (rate(nv_inference_queue_duration_us{{{_HELD}}}{RATE}))"
                       f" / sum by ({BY}, version) (rate(nv_inference_request_success{{{_HELD}}}{RATE}) > 0) / 1e6",
                       "{{namespace}} queue {{version}}"),
                 Query(f"sum by ({BY}, version) (rate(nv_inference_compute_infer_duration_us{{{_HELD}}}{RATE}))"
                       f" / sum by ({BY}, version) (rate(nv_inference_request_success{{{_HELD}}}{RATE}) > 0) / 1e6",
                       "{{namespace}} computing {{version}}")),
                "s",
            ),
        ),
    },
    {
        "cluster": "tidegate_proxy_in_flight",
        "namespace": "tidegate_proxy_in_flight",
        "server": f"tidegate_proxy_requests_total{{{HERE}}}",
        "model": f'tidegate_proxy_requests_total{{{HERE}, server=~"$server"}}',
    },
)  # fmt: skip
