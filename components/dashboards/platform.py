"""Is it well: traffic, errors, time, and the slices, by environment and data plane."""

from .panel import BY, BY_POD, HERE, Dashboard, Panel, Query, grown, recorded_share, requests

_RESIDENT = f'tidegate_eviction_model_state{{{HERE}, state="resident"}}'
_REPLICAS = f"count by ({BY}, server, pool) (max by ({BY}, server, pool, replica) (tidegate_proxy_breaker{{{HERE}}}))"
_MONTH = f"tidegate:replica_price:per_month{{{HERE}}} * on ({BY}, server, pool) group_left () {_REPLICAS}"
_BUSY = f'tidegate_proxy_model_problems_total{{{HERE}, type="busy"}}'

PLATFORM = Dashboard(
    "platform",
    "Platform",
    "Is it well? Of the environments and data planes that are chosen above. It goes by the rules beside the alerts.",
    {
        "Is it well": (
            Panel(
                "Calls that fail",
                "Share of calls that end with an error of a server. High: callers get no answers. See which model it is"
                " below, then the dashboard Model; the runbook of TidegateCallsFail says what else.",
                (recorded_share("failed_calls"),),
                "percentunit", "figure", 6, red_from=0.01,
            ),
            Panel(
                "Calls told to come again",
                "Share of calls that are told busy. High: models do not find room, or a pool is gone. The table below"
                " says which model and why; `tidegate advise` says what to change.",
                (recorded_share("refused_calls"),),
                "percentunit", "figure", 6, red_from=0.01,
            ),
            Panel(
                "Pools without a replica",
                "Pools whose models nobody answers for. More than none: the runbook of TidegatePoolGone.",
                (Query(f"sum by ({BY}) (1 - max by ({BY}, server, pool) (tidegate_proxy_pool_ready{{{HERE}}}))",
                       "{{namespace}}"),),
                "short", "figure", 6, red_from=1,
            ),
            Panel(
                "Alerts",
                "Alerts of Tidegate's that fire, without those that a ticket is enough for. Each has a runbook.",
                (Query('count(ALERTS{alertname=~"Tidegate.*", alertstate="firing", severity!="info", '
                       f"{HERE}}}) or vector(0)", "firing"),),
                "short", "figure", 6, red_from=1,
            ),
        ),
        "Traffic": (
            Panel(
                "Calls",
                "Calls a second. Much more than usual: are they one caller's? The dashboard Model tells callers apart.",
                (Query(f"tidegate:calls:rate5m{{{HERE}}}", "{{namespace}}"),),
                "reqps",
            ),
            Panel(
                "Errors, by status",
                "Calls a second that failed or were refused, by status of HTTP or gRPC. 503 and 14 are busy: see which"
                " model it is. 502 and 504: the server fails or hangs. 500: a defect of the proxy, which is in its"
                " log.",
                (Query(f"sum by ({BY}, protocol, status) ({requests(HERE, ('5..', '2|4|8|13|14|15'))})"
                       f" or on ({BY}) tidegate:calls:rate5m{{{HERE}}} * 0",
                       "{{namespace}} {{protocol}} {{status}}"),),
                "reqps", "stack",
            ),
            Panel(
                "How long calls take",
                "Seconds until a call has ended. p99 high and p50 not: cold models, see Model, Waits. All high: servers"
                " are slow or their queues long, see Proxy, Which replica is slow.",
                tuple(Query(f"histogram_quantile({each}, sum by ({BY}, le)"
                            f" (tidegate:request_seconds_bucket:rate5m{{{HERE}}}))",
                            f"p{round(100 * each)} {{{{namespace}}}}")
                      for each in (0.5, 0.95, 0.99)),
                "s",
            ),
            Panel(
                "Which model is busy, and why",
                "Calls that were told busy in the time shown, by model and reason (docs/proxy-api.md, Busy). `no-room`:"
                " what is resident is in use; `loading` and `queued`: loads take longer than callers wait;"
                " `queue-full`: too many calls at once; `no-replica`, `policy-silent`: a part is gone.",
                (Query(f"topk(20, sum by ({BY}, server, model, reason) ({grown(_BUSY)}))", "calls"),),
                "short", "table", 16,
            ),
            Panel(
                "Versions that failed to load",
                "Versions that a preload pool could not load. More than none: the proxy's log and `tidegate why` give"
                " the reason, TidegateLoadFailed.",
                (Query(f"time() - min by ({BY}, server, pool, model, version)"
                       f" (tidegate_proxy_load_failed_timestamp_seconds{{{HERE}}})", "for"),),
                "s", "table", 8,
            ),
        ),
        "Slices": (
            Panel(
                "Memory in use",
                "Share of a slice's memory that models take. Full is right for models on demand; with evictions beside"
                " it (Slice, Loads) it is too small.",
                (Query(f'tidegate_eviction_bytes{{{HERE}, kind="resident"}} / on ({BY_POD})'
                       f' tidegate_eviction_bytes{{{HERE}, kind="capacity"}}', "{{namespace}} {{pod}}"),),
                "percentunit", "lines", 8,
            ),
            Panel(
                "Who sits in them",
                "Models in memory and what each takes. A large one that few call is better off with a slice of its own,"
                " or not at all: `tidegate advise`.",
                (Query(f"topk(50, sum by ({BY_POD}, model) (tidegate_eviction_model_footprint_bytes{{{HERE}}} and on"
                       f" ({BY_POD}, model) {_RESIDENT}))", "bytes"),),
                "bytes", "table", 16,
            ),
            Panel(
                "Money a month",
                "What the replicas that run now cost in 730 hours, by the inventory's prices; pools without a price are"
                " not in it. Much of it with little in use: `tidegate plan` says what would do.",
                (Query(f"sum by ({BY}, currency) ({_MONTH})", "{{namespace}} {{currency}}"),
                 Query(f"sum by ({BY}, server, pool, currency) ({_MONTH})",
                       "{{namespace}} {{server}}/{{pool}} {{currency}}")),
                "locale", "figure", 24,
                needs="prices in the inventory (docs/capacity.md, Prices)",
            ),
        ),
    },
    {"cluster": "tidegate_proxy_in_flight", "namespace": "tidegate_proxy_in_flight"},
)  # fmt: skip
