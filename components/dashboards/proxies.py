"""The proxies: whether they are full, what they hold, what they cannot reach, and which replica is slow."""

from .panel import BY, HERE, RATE, Dashboard, Panel, Query, quantiles

_POOL = f"{BY}, server, pool"
_AT = f"{_POOL}, replica"
_ASKING = f"count by ({_AT}) (tidegate_proxy_breaker{{{HERE}}})"
_ANSWERED = f"sum by ({BY}, pod) (rate(nv_inference_request_success{{{HERE}}}{RATE}) > 0)"

PROXY = Dashboard(
    "proxy",
    "Proxy",
    "The proxies: saturation, memory, breakers, tables, certificates; and which replica is slow.",
    {
        "Saturation": (
            Panel(
                "Places in use",
                "Share of the places for calls that are taken. Near 1 with calls that wait: more proxies, or a replica"
                " that does not answer holds them.",
                (Query(f"tidegate_proxy_in_flight{{{HERE}}} / tidegate_proxy_in_flight_limit{{{HERE}}}",
                       "{{namespace}} {{pod}}"),),
                "percentunit",
            ),
            Panel(
                "Calls that wait",
                "Calls that wait for a place, or for a cold model. The first grows: see Places in use. The second: see"
                " Slice.",
                (Query(f"sum by ({BY}) (tidegate_proxy_waiting{{{HERE}}})", "{{namespace}} for a place"),
                 Query(f"sum by ({_POOL}) (tidegate_proxy_lease_waiting{{{HERE}}})",
                       "{{namespace}} {{server}}/{{pool}} for a model")),
                "short",
            ),
            Panel(
                "Memory that callers hold",
                "Share of the memory that callers may make a proxy hold. Near 1: calls are refused as `full`; large"
                " bodies at once, or answers that are not taken. More memory for the proxy, or fewer at once.",
                (Query(f"tidegate_proxy_held_bytes{{{HERE}}} / tidegate_proxy_held_limit_bytes{{{HERE}}}",
                       "{{namespace}} {{pod}} {{of}}"),),
                "percentunit",
            ),
            Panel(
                "Ended so that others go on",
                "Connections and calls a second that were cut, by why. `room`: many connections that do not say who"
                " they are; `chatter`: frames that move nothing. Somebody floods the proxy: see its log.",
                (Query(f"sum by ({BY}, of) (rate(tidegate_proxy_cut_total{{{HERE}}}{RATE}))", "{{namespace}} {{of}}"),),
                "reqps",
            ),
        ),
        "Replicas": (
            Panel(
                "Which replica is slow?",
                "Seconds that Triton takes for a request, by pod: its queue and computing; and how many proxies get no"
                " answer at all from a replica, by its address. One far above the others, or without an answer: look"
                " at its node and its log, and delete the pod. Breakers says since when.",
                (Query(f"sum by ({BY}, pod) (rate(nv_inference_request_duration_us{{{HERE}}}{RATE}))"
                       f" / {_ANSWERED} / 1e6",
                       "seconds"),
                 Query(f"{_ASKING} - (count by ({_AT}) (tidegate_proxy_breaker{{{HERE}, state=\"closed\"}})"
                       f" or {_ASKING} * 0)",
                       "proxies without an answer")),
                "short", "table", 12,
            ),
            Panel(
                "Calls at each replica",
                "Calls under way at a replica. One far above the others is slow, or hangs.",
                (Query(f"sum by ({_AT}) (tidegate_proxy_replica_in_flight{{{HERE}}})",
                       "{{namespace}} {{server}}/{{pool}} {{replica}}"),),
                "short", "lines", 12,
            ),
            Panel(
                "Breakers",
                "Replicas by the state of their circuit breaker. Not closed: it gives no answers, TidegateBreakerOpen.",
                (Query(f"count by ({_POOL}, state)"
                       f" (count by ({_AT}, state) (tidegate_proxy_breaker{{{HERE}}} == 1))",
                       "{{namespace}} {{server}}/{{pool}} {{state}}"),),
                "short", "stack",
            ),
            Panel(
                "Calls without an answer",
                "Calls a second that a replica gave no answer to, by how.",
                (Query(f"sum by ({BY}, server, how) (rate(tidegate_proxy_upstream_errors_total{{{HERE}}}{RATE}))"
                       f" or on ({BY}) sum by ({BY}) (tidegate_proxy_in_flight{{{HERE}}}) * 0",
                       "{{namespace}} {{server}} {{how}}"),),
                "reqps",
            ),
            Panel(
                "Policies that are silent",
                "Replicas whose eviction policy gives no answer: nothing is loaded there. TidegatePolicySilent.",
                (Query(f"sum by ({_POOL}) (min by ({_AT}) (tidegate_proxy_policy_silent{{{HERE}}}))",
                       "{{namespace}} {{server}}/{{pool}}"),),
            ),
        ),
        "Leases": (
            Panel(
                "Waits for a model",
                "Seconds that calls waited for a cold model. Near `waitSeconds`: many are told busy after it.",
                quantiles("tidegate_proxy_lease_wait_seconds", HERE, "server, pool", "{{server}}/{{pool}}", 0.5, 0.95),
                "s",
            ),
            Panel(
                "Spills",
                "Calls a second that asked a second replica, because the first had no room. Many: models want more"
                " memory.",
                (Query(f"sum by ({_POOL}) (rate(tidegate_proxy_lease_spills_total{{{HERE}}}{RATE}))",
                       "{{namespace}} {{server}}/{{pool}}"),),
                "reqps",
            ),
        ),
        "Tables and certificates": (
            Panel(
                "Files that are refused",
                "Proxies that go on with the last good table, by file: TidegateTableRefused. More than none: the log"
                " says why.",
                (Query(f"sum by ({BY}, file) (1 - tidegate_proxy_config_good{{{HERE}}})",
                       "{{namespace}} {{file}}"),),
            ),
            Panel(
                "Reloads",
                "How often proxies have taken a file over, in each quarter of an hour. After a rollout all of an"
                " environment do, within two minutes: one that did not does not see the new table.",
                (Query(f"changes(tidegate_proxy_config_generation{{{HERE}}}[15m])", "{{namespace}} {{pod}} {{file}}"),),
            ),
            Panel(
                "Certificate",
                "Seconds until it ends. Below two weeks: who renews it?",
                (Query(f"min by ({BY}) (tidegate_proxy_certificate_expires_timestamp_seconds{{{HERE}}}) - time()",
                       "{{namespace}}"),),
                "s", "figure", 4, red_below=14 * 86_400, needs="proxy.tls",
            ),
            Panel(
                "Issuers' keys",
                "Seconds that the keys of an issuer are trusted yet. It falls: the issuer cannot be reached.",
                (Query(f"min by ({BY}, issuer) (tidegate_proxy_issuer_keys_trusted_seconds{{{HERE}}})",
                       "{{namespace}} {{issuer}}"),),
                "s", "figure", 4, red_below=3 * 3600, needs="an issuer of tokens",
            ),
        ),
    },
    {"cluster": "tidegate_proxy_in_flight", "namespace": "tidegate_proxy_in_flight"},
)  # fmt: skip
