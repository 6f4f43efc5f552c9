"""What is alerted on: promises to callers that are broken too fast, and the causes that are known."""

from typing import Any

from stacks.definition.environment import RUNBOOKS, Objectives

from .alerts import FAILED, REFUSED, alert, record
from .args import PoolPrice
from .kinds import KINDS
from .place import Place

_BURNS = (
    ("critical", (("14.4", "1h", "5m"), ("6", "6h", "30m"))),
    ("info", (("3", "1d", "2h"), ("1", "3d", "6h"))),
)
"""How many times as fast as 30 days allow, over a long and a short time: Google, The Site Reliability Workbook, 2018,
chapter 5, table 5-8 (multiwindow, multi-burn-rate alerts)."""
_LEAST = 5  # Calls that must have gone wrong within the long time: a few of a few are no rate.
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
        each["annotations"]["runbook_url"] = f"{runbooks}#{each['alert'].lower()}"
    return [*_records(here, objectives), *alerts]


def price_rule(place: Place, price: PoolPrice) -> dict[str, Any]:
    """Return a rule that says what a replica of a pool costs a month."""
    labels = {"namespace": place.namespace, "server": price.server, "pool": price.pool, "currency": price.currency}
    return {**record("tidegate:replica_price:per_month", f"vector({price.per_month})"), "labels": labels}


def _records(here: str, objectives: Objectives) -> list[dict[str, Any]]:
    """Return what goes wrong, as calls a second, and as shares of all calls over each time that alerts look at.

    What has not gone wrong yet has no series, and is none.
    """
    total = f"sum by (namespace) (rate(tidegate_proxy_requests_total{{{here}}}[5m]))"

    def calls(http: str, grpc: str) -> str:
        found = " or ".join(
            f'rate(tidegate_proxy_requests_total{{{here}, protocol="{protocol}", status=~"{statuses}"}}[5m])'
            for protocol, statuses in (("http", http), ("grpc", grpc))
        )
        return f"sum by (namespace) ({found}) or {total} * 0"

    seconds = "sum by (namespace) (rate(tidegate_proxy_request_seconds_"
    in_time = f'{seconds}bucket{{{here}, le=~"{objectives.latency_seconds}([.]0)?"}}[5m]))'
    rates = {
        "calls": total,
        "failed_calls": calls(*FAILED),
        "refused_calls": calls(*REFUSED),
        "slow_calls": f"{seconds}count{{{here}}}[5m])) - {in_time}",
    }
    times = dict.fromkeys(time for _, burns in _BURNS for burn in burns for time in burn[1:])
    buckets = f"sum by (namespace, le) (rate(tidegate_proxy_request_seconds_bucket{{{here}}}[5m]))"
    return [
        *(record(f"tidegate:{what}:rate5m", expression) for what, expression in rates.items()),
        record("tidegate:request_seconds_bucket:rate5m", buckets),
        *(
            record(f"tidegate:{what}:ratio_{time}", f"{_over(here, what, time)} / {_over(here, 'calls', time)}")
            for what in [*rates][1:]
            for time in times
        ),
    ]


def _over(here: str, what: str, time: str) -> str:
    return f"avg_over_time(tidegate:{what}:rate5m{{{here}}}[{time}])"


def _burns(here: str, objectives: Objectives) -> list[dict[str, Any]]:
    def burns(what: str, objective: str, times: str, long: str, short: str) -> str:
        most = f"{times} * (1 - {objective} / 100)"
        too_much = " and ".join(f"tidegate:{what}:ratio_{time}{{{here}}} > {most}" for time in (long, short))
        return f"{too_much} and 300 * sum_over_time(tidegate:{what}:rate5m{{{here}}}[{long}:5m]) > {_LEAST}"

    return [
        alert(
            name,
            " or ".join(burns(what, objective, *burn) for burn in windows),
            f"{{{{ $value | humanizePercentage }}}} of the calls in {{{{ $labels.namespace }}}} {said}.",
            lasting="2m",
            severity=severity,
        )
        for name, what, objective, said in (
            ("TidegateCallsFail", "failed_calls", objectives.availability, "fail"),
            ("TidegateCallsBusy", "refused_calls", objectives.answered, "are told to come again"),
            ("TidegateCallsSlow", "slow_calls", objectives.latency, f"take more than {objectives.latency_seconds} s"),
        )
        for severity, windows in _BURNS
    ]


def _of_servers(here: str) -> list[dict[str, Any]]:
    gone = f"max by ({_WHERE}) (tidegate_proxy_pool_ready{{{here}}}) == 0"
    open_ = f'max by ({_WHERE}, replica) (tidegate_proxy_breaker{{{here}, state!="closed"}}) == 1'
    failures = f"tidegate_eviction_model_load_failures_total{{{here}}}"
    quarantined = f"tidegate_eviction_model_quarantined_timestamp_seconds{{{here}}}"
    since = f"time() - max by (namespace, pod, model) ({quarantined})"
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
            f"min by ({_WHERE}, replica) (tidegate_proxy_policy_silent{{{here}}}) == 1"
            f" unless on ({_WHERE}, replica) ({open_}) unless on ({_WHERE}) ({gone})",
            f"The eviction policy beside {{{{ $labels.replica }}}} of {_POOL} is silent: it loads no model.",
            lasting="2m",
            severity="critical",
        ),
        *(rule for kind in KINDS.values() for rule in kind.alerts(here)),
        alert(
            "TidegateLoadFailed",
            f"max by ({_WHERE}, model, version) (time() - tidegate_proxy_load_failed_timestamp_seconds{{{here}}})",
            f"Version {{{{ $labels.version }}}} of {{{{ $labels.model }}}} has not been loaded in {_POOL}"
            " for {{ $value | humanizeDuration }}: the proxy's log says why.",
        ),
        alert(
            "TidegateOnDemandLoadFailed",
            # A series that begins with the first failure has not increased yet.
            f"sum by (namespace, pod, model) (increase({failures}[15m]) > 0"
            f" or {failures} > 0 unless max_over_time({failures}[6h] offset 15m))"
            f" unless on (namespace, pod, model) {quarantined}",
            "Loads of {{ $labels.model }} fail in {{ $labels.pod }}: the eviction policy's log says why.",
            lasting="1m",
        ),
        alert(
            "TidegateModelQuarantined",
            f'{since} or max by (namespace, pod) (tidegate_eviction_models{{{here}, state="quarantined"}}) > 0'
            f" unless on (namespace, pod) {quarantined}",
            "{{ with $labels.model }}{{ . }}{{ else }}A model{{ end }} failed to load too often in {{ $labels.pod }},"
            " and is not tried any more: the policy's list says why.",
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
            f'tidegate_eviction_memory_source{{{here}, source="none"}} == 1',
            "{{ $labels.pod }} cannot read how much GPU memory is in use: it trusts declared sizes.",
            lasting="15m",
        ),
        alert(
            "TidegateSlicesShort",
            f"max by (namespace, pod) (kube_pod_status_unschedulable{{{here}}}) == 1",
            "{{ $labels.pod }} finds no node: slices, or what else it asks for, are short.",
            lasting="10m",
        ),
    ]


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
            "TidegateTargetDown",
            f"up{{{here}}} == 0",
            "{{ $labels.pod }} has not answered Prometheus ({{ $labels.instance }}) for five minutes.",
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
            f"{left} < 14 * 86400",
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
