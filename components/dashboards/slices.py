"""One slice: who sits in it, who waits for it, who evicts whom, and whether more fits."""

from .panel import BY, BY_POD, HERE, RATE, Dashboard, Panel, Query, grown, quantiles

_POD = f'{HERE}, pod=~"$pod"'
_RESIDENT = f'tidegate_eviction_model_state{{{_POD}, state="resident"}}'
_SIZES = f"tidegate_eviction_model_footprint_bytes{{{_POD}}}"
_LEASED = f"sum by ({BY_POD}) ({_SIZES} and on ({BY_POD}, model) tidegate_eviction_model_leases{{{_POD}}} > 0)"

_OTHERS = f"tidegate_eviction_model_evicted_others_total{{{_POD}}}"
_FOR_ROOM = f'tidegate_eviction_model_evictions_total{{{_POD}, reason="room"}}'


def _bytes(kind: str) -> Query:
    return Query(
        f'sum by ({BY_POD}) (tidegate_eviction_bytes{{{_POD}, kind="{kind}"}})',
        f"{{{{namespace}}}} {{{{pod}}}} {kind}",
    )


SLICE = Dashboard(
    "slice",
    "Slice",
    "One slice with models on demand: memory, leases, loads, evictions.",
    {
        "Memory": (
            Panel(
                "Models in memory",
                "Bytes of each resident model, one on the other. Bands that come and go: the slice is too small for"
                " what is called. A band that never goes is pinned or always in use.",
                (Query(f"topk(40, sum by ({BY_POD}, model) ({_SIZES} and on ({BY_POD}, model) {_RESIDENT}))",
                       "{{namespace}} {{model}}"),),
                "bytes", "stack", 12,
            ),
            Panel(
                "Memory of the slice",
                "What is there, what models take, what is being loaded or is not free yet, and what did not come back."
                " `leaked` grows: the runbook of TidegateMemoryLeaked. `used` far above `resident`: something else"
                " uses the GPU.",
                (*map(_bytes, ("capacity", "resident", "loading", "freeing", "leaked")),
                 Query(f"sum by ({BY_POD}) (tidegate_eviction_memory_used_bytes{{{_POD}}})",
                       "{{namespace}} {{pod}} used, as measured")),
                "bytes", "lines", 12,
            ),
            Panel(
                "Will tonight's batch fit?",
                "What there is, what is in use now, and the most that was in use in the next twelve hours as they were"
                " a day ago. Without the third nobody knows yet. The third beside what the batch needs is more than"
                " the first: it does not fit; move it, or add a replica.",
                (Query(f'sum by ({BY_POD}) (tidegate_eviction_bytes{{{_POD}, kind="capacity"}})',
                       "{{namespace}} {{pod}} there is"),
                 Query(f"{_LEASED} or sum by ({BY_POD}) (tidegate_eviction_leases{{{_POD}}}) * 0",
                       "{{namespace}} {{pod}} in use now"),
                 Query(f"max_over_time(({_LEASED})[12h:5m] offset 12h)"
                       f" or sum by ({BY_POD}) (tidegate_eviction_leases{{{_POD}}} offset 1d) * 0",
                       "{{namespace}} {{pod}} in use a day ago")),
                "bytes", "figure", 12,
            ),
            Panel(
                "Busy GPU",
                "Share of the time in which the slice computes. High with queues in Triton: more replicas. Low with"
                " calls told busy: memory is short, not computing.",
                (Query(f"avg by ({BY_POD}) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_POD}}})"
                       f" or avg by ({BY_POD}) (nv_gpu_utilization{{{_POD}}})",
                       "{{namespace}} {{pod}}"),),
                "percentunit", "lines", 12,
                needs="a GPU, and for MIG slices the DCGM exporter, scraped with honorLabels",
            ),
        ),
        "Loads": (
            Panel(
                "Who evicts others, and who is evicted",
                "In the time shown: how often a model had others evicted, and how often it was evicted to make room;"
                " not for which one: metrics have no pairs. The policy's log has: each line of event `evicted` names"
                " the model, and the one `wantedBy` which its room was. Two models high in both columns take turns:"
                " one needs another pool.",
                (Query(f"topk(20, sum by ({BY}, model) ({grown(_OTHERS)}))", "had others evicted"),
                 Query(f"topk(20, sum by ({BY}, model) ({grown(_FOR_ROOM)}))", "was evicted")),
                "short", "table", 12,
            ),
            Panel(
                "Loading",
                "Share of the time in which models are loaded. Half of it with evictions: it thrashes, the runbook of"
                " TidegateThrash.",
                (Query(f"sum by ({BY_POD}) (rate(tidegate_eviction_load_seconds_sum{{{_POD}}}{RATE}))",
                       "{{namespace}} {{pod}}"),),
                "percentunit", "lines", 6,
            ),
            Panel(
                "Queue of loads",
                "Models that are loaded, wait for it, or are not tried any more. A queue that stays: loads are slow,"
                " or memory is short.",
                (Query(f"sum by ({BY_POD}, state) (tidegate_eviction_models"
                       f'{{{_POD}, state=~"queued|loading|quarantined"}})',
                       "{{namespace}} {{pod}} {{state}}"),
                 Query(f"sum by ({BY_POD}) (tidegate_eviction_waiters{{{_POD}}})",
                       "{{namespace}} {{pod}} callers that wait")),
                "short", "lines", 6,
            ),
            Panel(
                "How long loads take",
                "Seconds of a load. Higher than it was: the volume is slow; stage files near the GPU.",
                quantiles("tidegate_eviction_load_seconds", _POD, "pod", "{{pod}}", 0.5, 0.95),
                "s", "lines", 6,
            ),
            Panel(
                "Evictions",
                "Models that were unloaded, by why, in each quarter of an hour. Many for `room`: the slice is too"
                " small.",
                (Query(f"sum by ({BY_POD}, reason) (increase(tidegate_eviction_evictions_total{{{_POD}}}[15m]))"
                       f" or on ({BY}, pod) sum by ({BY_POD}) (tidegate_eviction_leases{{{_POD}}}) * 0",
                       "{{namespace}} {{pod}} {{reason}}"),),
                "short", "stack", 6,
            ),
            Panel(
                "Leases",
                "Leases that proxies hold. Falls to none while there are calls: proxies cannot reach the policy.",
                (Query(f"sum by ({BY_POD}) (tidegate_eviction_leases{{{_POD}}})", "{{namespace}} {{pod}}"),),
                "short", "lines", 6,
            ),
            Panel(
                "Warm, loaded, refused",
                "Requests for leases a second, by what came of them. `hit` is warm. `busy` beyond a few: see Why.",
                (Query(f"sum by ({BY}, outcome) (rate(tidegate_eviction_acquires_total{{{_POD}}}{RATE}))",
                       "{{namespace}} {{outcome}}"),),
                "reqps", "stack", 6,
            ),
            Panel(
                "Why leases are not to be had",
                "Requests for leases a second that were refused for now, by reason: docs/proxy-api.md, Busy.",
                (Query(f"sum by ({BY}, reason) (rate(tidegate_eviction_busy_total{{{_POD}}}{RATE}))"
                       f" or on ({BY}) sum by ({BY}) (tidegate_eviction_leases{{{_POD}}}) * 0",
                       "{{namespace}} {{reason}}"),),
                "reqps", "stack", 6,
            ),
        ),
    },
    {
        "cluster": "tidegate_eviction_leases",
        "namespace": "tidegate_eviction_leases",
        "pod": f"tidegate_eviction_leases{{{HERE}}}",
    },
)  # fmt: skip
