"""What is alerted on: promises to callers that are broken too fast, and the causes that are known."""

from typing import Any

from stacks.definition.environment import RUNBOOKS, Objectives

from .alerts import FAILED, REFUSED, alert, record
from .args import PoolPrice
from .openai.alerts import openai_alerts
from .place import Place
from .triton.alerts import triton_alerts

_CRITICAL = (("14.4", "1h", "5m", ""), ("6", "6h", "30m", "1h"))
_INFO = (("3", "1d", "2h", "6h"), ("1", "3d", "6h", "1d"))
"""How many times as fast as 30 days allow, over a long and a short time: Google, The Site Reliability Workbook, 2018,
chapter 5, table 5-8 (multiwindow, multi-burn-rate alerts). The last: what was not measured for so long has no slow
burn yet, but that of the pair before."""
_RAW = ("30m", "1h")
"""Times over which calls are counted as proxies count them; longer ones go by what is recorded, which is cheaper, and
late by up to five minutes."""
_LEAST = 5  # Calls that must have gone wrong within the long time: a few of a few are no rate.
_WANTS_MEMORY = "no-room|queued|loading|draining|unloading|freeing"  # Reasons of `busy`: docs/proxy-api.md.
_POOL = "{{ $labels.server }}/{{ $labels.pool }}"
_WHERE = "namespace, server, pool"


def alert_rules(place: Place, objectives: Objectives, runbooks: str = RUNBOOKS) -> list[dict[str, Any]]:
    """Return recording rules and alerts on what servers, the proxy, the eviction policy and Prometheus itself measure.

    A series that is missing is no zero: a target that cannot be read shows as `up`, and no proxy at all as absent. Each
    alert leads to its section of the page `runbooks`.
    """
    here = f'namespace="{place.namespace}"'
    alerts = [*_burns(here, objectives), *_of_servers(here), *_of_proxies(here)]
    for each in alerts:
        if "alert" in each:
            each["annotations"]["runbook_url"] = f"{runbooks}#{each['alert'].lower()}"
    return [*_records(here, objectives), *alerts]


def price_rule(place: Place, price: PoolPrice) -> dict[str, Any]:
    """Return a rule that says what a replica of a pool costs a month."""
    labels = {"namespace": place.namespace, "server": price.server, "pool": price.pool, "currency": price.currency}
    return {**record("tidegate:replica_price:per_month", f"vector({price.per_month})"), "labels": labels}


def _counted(here: str, objectives: Objectives) -> dict[str, str]:
    """Return calls, and those that go wrong, as sums of what `rate` or `increase` makes of counters over a time.

    What has not gone wrong yet has no series, and is none.
    """
    total = f"sum by (namespace) (%(of)s(tidegate_proxy_requests_total{{{here}}}[%(time)s]))"
    taken, in_time = _taken(here, objectives)
    return {
        "calls": total,
        "failed_calls": f"sum by (namespace) ({_ended(here, *FAILED)}) or {total} * 0",
        "refused_calls": f"sum by (namespace) ({_ended(here, *REFUSED)}) or {total} * 0",
        "slow_calls": f"sum by (namespace) ({taken}) - sum by (namespace) ({in_time})",
    }


def _ended(here: str, http: str, grpc: str) -> str:
    return " or ".join(
        f'%(of)s(tidegate_proxy_requests_total{{{here}, protocol="{protocol}", status=~"{statuses}"}}[%(time)s])'
        for protocol, statuses in (("http", http), ("grpc", grpc))
    )


def _taken(here: str, objectives: Objectives) -> tuple[str, str]:
    seconds = "%(of)s(tidegate_proxy_request_seconds_"
    in_time = f'{seconds}bucket{{{here}, le=~"{objectives.latency_seconds}([.]0)?"}}[%(time)s])'
    return f"{seconds}count{{{here}}}[%(time)s])", in_time


def _records(here: str, objectives: Objectives) -> list[dict[str, Any]]:
    """Return calls and what goes wrong, as calls a second and of an hour, and as shares of all calls over each time
    that alerts look at: what went wrong in it, by all calls in it."""
    counted = _counted(here, objectives)

    def ratio(what: str, time: str) -> str:
        if time == "1h":
            return f"tidegate:{what}:increase1h{{{here}}} / tidegate:calls:increase1h{{{here}}}"
        if time == "5m":
            return f"tidegate:{what}:rate5m{{{here}}} / tidegate:calls:rate5m{{{here}}}"
        if time in _RAW:
            return " / ".join(f"({counted[each] % {'of': 'rate', 'time': time}})" for each in (what, "calls"))
        return " / ".join(f"avg_over_time(tidegate:{each}:rate5m{{{here}}}[{time}])" for each in (what, "calls"))

    times = dict.fromkeys(time for burn in (*_CRITICAL, *_INFO) for time in burn[1:3])
    buckets = f"sum by (namespace, le) (rate(tidegate_proxy_request_seconds_bucket{{{here}}}[5m]))"
    return [
        *(
            record(f"tidegate:{what}:{of}{time}", sums % {"of": of, "time": time})
            for of, time in (("rate", "5m"), ("increase", "1h"))
            for what, sums in counted.items()
        ),
        record("tidegate:request_seconds_bucket:rate5m", buckets),
        *(record(f"tidegate:{what}:ratio_{time}", ratio(what, time)) for what in [*counted][1:] for time in times),
    ]


def _burns(here: str, objectives: Objectives) -> list[dict[str, Any]]:
    """Return two alerts for each promise: one to get up for, and one for the day, which is silent for what the other
    has told of."""

    def burn(what: str, objective: str, times: str, long: str, short: str, known: str) -> str:
        too_much = " and ".join(
            f"tidegate:{what}:ratio_{time}{{{here}}} > {times} * (1 - {objective} / 100)" for time in (long, short)
        )
        if not known:
            return f"{too_much} and tidegate:{what}:increase1h{{{here}}} > {_LEAST}"
        often = f"sum_over_time(tidegate:{what}:increase1h{{{here}}}[{long}:5m]) / 12 > {_LEAST}"
        return f"{too_much} and {often} and present_over_time(tidegate:calls:rate5m{{{here}}}[{long}] offset {known})"

    def burns(what: str, objective: str, time: str, pairs: tuple[tuple[str, str, str, str], ...]) -> str:
        return f"tidegate:{what}:ratio_{time}{{{here}}} and ({' or '.join(burn(what, objective, *p) for p in pairs)})"

    def still(what: str, objective: str) -> str:
        return f"tidegate:{what}:ratio_5m{{{here}}} > 1 - {objective} / 100"

    made = []
    for name, what, objective, said, by, concerned in (
        ("TidegateCallsFail", "failed_calls", objectives.availability, "fail", "status", _ended(here, *FAILED)),
        (
            "TidegateCallsBusy",
            "refused_calls",
            objectives.answered,
            "are told to come again",
            "reason",
            f'%(of)s(tidegate_proxy_model_problems_total{{{here}, type="busy"}}[%(time)s])',
        ),
        (
            "TidegateCallsSlow",
            "slow_calls",
            objectives.latency,
            f"take more than {objectives.latency_seconds} s",
            "",
            " - ignoring (le) ".join(_taken(here, objectives)),
        ),
    ):
        labels = ", ".join(filter(None, ("model", by)))
        most = f"topk(1, sum by ({labels}) ({concerned % {'of': 'increase', 'time': '1h'}}) > 0)"
        why = f" ({by} {{{{ . | first | label `{by}` }}}})" if by else ""
        most = f"{{{{ with query `{most}` }}}}, most of them of {{{{ . | first | label `model` }}}}{why}{{{{ end }}}}"
        told = f'ALERTS{{{here}, alertname="{name}", severity="critical", alertstate="firing"}}'
        made += [
            alert(
                name,
                expression,
                f"{{{{ $value | humanizePercentage }}}} of the calls of the last {time} in {{{{ $labels.namespace }}}}"
                f" {said}{most}.",
                lasting=lasting,
                severity=severity,
            )
            for severity, time, lasting, expression in (
                (
                    "critical",
                    "hour",
                    "1m",
                    f"{burns(what, objective, '1h', _CRITICAL)} and {still(what, objective)}",
                ),
                (
                    "info",
                    "day",
                    "15m",
                    f"{burns(what, objective, '1d', _INFO)} unless on (namespace) last_over_time({told}[6h])",
                ),
            )
        ]
    return made


def _of_servers(here: str) -> list[dict[str, Any]]:
    gone = f"max by ({_WHERE}) (tidegate_proxy_pool_ready{{{here}}}) == 0"
    open_ = f'max by ({_WHERE}, replica) (tidegate_proxy_breaker{{{here}, state!="closed"}}) == 1'
    silent = f"min by ({_WHERE}, replica) (tidegate_proxy_policy_silent{{{here}}}) == 1"
    down = f"up{{{here}}} == 0"
    failures = f"tidegate_eviction_model_load_failures_total{{{here}}}"
    quarantined = f"tidegate_eviction_model_quarantined_timestamp_seconds{{{here}}}"
    # A policy that tells nothing has not let its models out.
    told = f"on (namespace, pod) ({down} unless on (namespace, pod) tidegate_eviction_leases{{{here}}})"
    kept = f"{quarantined} or last_over_time({quarantined}[1h]) and {told}"
    return [
        alert(
            "TidegatePoolGone",
            gone,
            f"Calls of the models of {_POOL} find no replica: none is there, answers, or keeps answering.",
            lasting="1m",
            severity="critical",
        ),
        alert(
            "TidegateBreakerOpen",
            f"{open_} unless on ({_WHERE}) ({gone})",
            f"The replica {{{{ $labels.replica }}}} of {_POOL} is ready for Kubernetes and gives proxies no answer.",
            lasting="2m",
        ),
        alert(
            "TidegatePolicySilent",
            f"{silent} unless on ({_WHERE}, replica) ({open_}) unless on ({_WHERE}) ({gone})",
            f"The eviction policy beside {{{{ $labels.replica }}}} of {_POOL} is silent: it loads no model.",
            lasting="2m",
            severity="critical",
        ),
        _starved(here),
        *triton_alerts(here),
        *openai_alerts(here),
        alert(
            "TidegateLoadFailed",
            f"max by ({_WHERE}, model, version) (time() - tidegate_proxy_load_failed_timestamp_seconds{{{here}}})",
            f"Version {{{{ $labels.version }}}} of {{{{ $labels.model }}}} has not been loaded in {_POOL}"
            " for {{ $value | humanizeDuration }}: the proxy's log says why.",
            lasting="1m",
            severity="critical",
        ),
        alert(
            "TidegateOnDemandLoadFailed",
            # A series that begins with the first failure has not increased yet; of one that is not told any more
            # nobody knows whether it goes on.
            f"sum by (namespace, pod, model) (increase({failures}[15m]) > 0 and {failures}"
            f" or {failures} > 0 unless max_over_time({failures}[6h] offset 15m))"
            f" unless on (namespace, pod, model) {quarantined}",
            "{{ $value | printf `%.0f` }} loads of {{ $labels.model }} failed in {{ $labels.pod }} lately: the eviction"
            " policy's log says why.",
            lasting="1m",
        ),
        alert(
            "TidegateModelQuarantined",
            f"time() - max by (namespace, pod, model) ({kept})"
            f' or max by (namespace, pod) (tidegate_eviction_models{{{here}, state="quarantined"}}) > 0'
            f" unless on (namespace, pod) {quarantined}",
            "{{ with $labels.model }}{{ . }} failed to load too often in {{ $labels.pod }}, and has not been tried for"
            " {{ $value | humanizeDuration }}{{ else }}{{ $value }} models failed to load too often in"
            " {{ $labels.pod }}, and are not tried any more{{ end }}: the policy's list says why.",
            lasting="1m",
        ),
        alert(
            "TidegateThrash",
            f"rate(tidegate_eviction_load_seconds_sum{{{here}}}[30m]) > 0.5 and on (namespace, pod)"
            f' rate(tidegate_eviction_evictions_total{{{here}, reason="room"}}[30m]) > 0',
            "{{ $labels.pod }} loads models for {{ $value | humanizePercentage }} of the time, and evicts others.",
            lasting="15m",
        ),
        alert(
            "TidegateMemoryLeaked",
            f'tidegate_eviction_bytes{{{here}, kind="leaked"}} > on (namespace, pod) group_left ()'
            f' 0.1 * tidegate_eviction_bytes{{{here}, kind="capacity"}}',
            "{{ $value | humanize1024 }}B in {{ $labels.pod }} did not come back from unloaded models.",
            lasting="15m",
        ),
        alert(
            "TidegateServerRecycled",
            f"increase(tidegate_eviction_recycles_total{{{here}}}[6h]) > 2.5",  # of two it is a bit more than 2
            "The server of {{ $labels.pod }} was restarted {{ printf `%.0f` $value }} times in six hours for memory"
            " that models did not give back.",
        ),
        alert(
            "TidegateMemoryUnseen",
            # What hangs tells nothing, of memory either.
            f'tidegate_eviction_memory_source{{{here}, source="none"}} == 1 unless on (namespace, pod) ({down})',
            "{{ $labels.pod }} cannot read how much GPU memory is in use: it trusts declared sizes.",
            lasting="15m",
        ),
        alert(
            "TidegateSlicesShort",
            f"max by (namespace, pod) (kube_pod_status_unschedulable{{{here}}}) == 1",
            "{{ $labels.pod }} finds no node: slices, or what else it asks for, are short.",
            lasting="10m",
        ),
        alert(
            "TidegateTargetDown",
            f"{down} unless on (namespace, pod, instance) ({_explained(down, gone, f'{open_} or {silent}')})",
            "{{ $labels.pod }} does not answer Prometheus ({{ $labels.instance }}).",
        ),
    ]


def _starved(here: str) -> dict[str, Any]:
    """Return an alert on one model whose callers get no answer for want of memory, however many calls others have."""

    def grown(series: str) -> str:
        return f"sum by (namespace, server, model) (increase({series}[10m]))"

    refused = grown(f'tidegate_proxy_model_problems_total{{{here}, type="busy", reason=~"{_WANTS_MEMORY}"}}')
    answered = grown(f'tidegate_proxy_requests_total{{{here}, status=~"200|0"}}')
    return alert(
        "TidegateModelStarved",
        f"{refused} > {_LEAST} and {refused} > 10 * ({answered} or {refused} * 0)",
        "{{ $labels.server }}/{{ $labels.model }} refused {{ $value | printf `%.0f` }} calls in ten minutes for want of"
        " memory, and answered at most one in ten.",
        lasting="2m",
        severity="critical",
    )


def _explained(down: str, pools: str, replicas: str) -> str:
    """Return which of the targets that are down are of pools, or replicas, that other alerts tell of: by the name of
    the StatefulSet, as the pod's name has it, and the replica's address."""
    at = '"host", "$1", "%s", "(.*):[0-9]+"'
    of = f'label_replace(label_replace({down}, "set", "$1", "pod", "(.*)-[0-9]+"), {at % "instance"})'
    name = '"set", "-", "server", "pool"'
    return (
        f"{of} and on (namespace, set) label_join({pools}, {name})"
        f" or {of} and on (namespace, set, host) label_replace(label_join({replicas}, {name}), {at % 'replica'})"
    )


def _of_proxies(here: str) -> list[dict[str, Any]]:
    left = f"min by (namespace) (tidegate_proxy_certificate_expires_timestamp_seconds{{{here}}}) - time()"
    held = f"tidegate_proxy_held_bytes{{{here}}} / tidegate_proxy_held_limit_bytes{{{here}}}"
    return [
        alert(
            "TidegateProxiesGone",
            f"absent(tidegate_proxy_in_flight{{{here}}})",
            "Nothing is known of proxies in {{ $labels.namespace }}: none runs, or Prometheus reads none.",
            lasting="2m",
            severity="critical",
        ),
        alert(
            "TidegateTableRefused",
            f"tidegate_proxy_config_good{{{here}}} == 0 or tidegate_eviction_settings_good{{{here}}} == 0",
            "{{ $labels.pod }} refuses its {{ with $labels.file }}{{ . }}{{ else }}settings{{ end }} file,"
            " and goes on with the last good one: its log says why.",
        ),
        alert(
            "TidegateDrift",
            f"tidegate_proxy_config_edited{{{here}}} == 1",
            "{{ $labels.pod }} goes by another {{ $labels.file }} table than the one that was rolled out.",
        ),
        alert(
            "TidegateProxyFull",
            f"{held} > 0.9",
            "What {{ $labels.of }} make {{ $labels.pod }} hold is {{ $value | humanizePercentage }} of what they may:"
            " calls are about to be refused.",
        ),
        alert(
            "TidegateCertificateExpires",
            f"{left} < 14 * 86400 >= 2 * 86400",
            "The proxy's certificate in {{ $labels.namespace }} ends in {{ $value | humanizeDuration }}.",
            severity="info",
        ),
        alert(
            "TidegateCertificateExpires",
            f"{left} < 2 * 86400",
            "The proxy's certificate in {{ $labels.namespace }} ends in {{ $value | humanizeDuration }}.",
            severity="critical",
        ),
        alert(
            "TidegateIssuerUnanswering",
            f"min by (namespace, issuer) (tidegate_proxy_issuer_keys_trusted_seconds{{{here}}}) < 3 * 3600",
            "{{ $labels.issuer }} gives no keys: tokens of it are believed for {{ $value | humanizeDuration }} more.",
            severity="critical",
        ),
    ]
