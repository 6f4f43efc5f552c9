"""docs/metrics.md: every metric, every dashboard, and every field of the logs, as the code has them."""

from collections.abc import Iterable, Mapping

from tidegate_contracts import log_fields, metrics

from components.dashboards import DASHBOARDS

_HEAD = """# Metrics, dashboards and logs

`make docs` writes this page from `tidegate_contracts/metrics.py` and `log_fields.py`, from which the code takes names,
labels and texts. What is alerted on stands in [runbooks.md](runbooks.md), what callers are told in
[proxy-api.md](proxy-api.md), and what the words mean in [concepts.md](concepts.md).

Names follow [Prometheus' conventions](https://prometheus.io/docs/practices/naming/): base units (seconds, bytes),
`_total` for what only grows, `…_timestamp_seconds` for a time. No label is a caller's word. Prometheus adds
`namespace` and `pod`. Histograms have fixed buckets (the Python client cannot write native histograms in the text
format), which end, in seconds, at CALLS in the proxy, and at LOADS in the policy.

**How many series there are.** *Series* says how many one process has at most; in practice a called model has some 30 in
each proxy for a protocol, and 15 in its policy. `models` are those that have a name of their own: the first 1000 that
are called (`proxy.metrics.models` says how many instead), or of a policy the first 1000 (`metricsModels` of a pool's
`loading`), and for each server one more: the others, which are counted together as `*`; `tidegate_proxy_models_unnamed`
says how many they are. A model that leaves the table, or the settings, gives its place to another, and what was
counted of it is dropped. `callers` are 0 unless `proxy.metrics.callers` says how many have a name, as principals can be
personal data; the others are `*`, too. `replicas` are those that are there now. Each proxy has its own first ones:
while any are unnamed, a sum over proxies by model leaves calls out.
"""
_DASHBOARDS = """## Dashboards

`monitoring: {operator: true, dashboards: true}` puts Grafana's dashboards of an environment into its namespace, as
ConfigMaps with the label that Grafana's sidecar looks for (`dashboardLabels`). `tidegate dashboards` writes them as
JSON files for any Grafana (11 or later), with all environments to choose from. Each
panel says what a high value means, and what to do. Marks on the line of time tell when a version answers that has not
answered for a day (`tidegate:version_answers:since_timestamp_seconds`: one that is merely loaded again makes none),
when a routing table was taken over, and which alerts a rollout's gate would wait for. They go by the recording rules
beside the alerts (`monitoring.rules`), whose series are called `tidegate:…`; the PrometheusRule has
them all.

Files are imported by *Dashboards, New, Import*, or lie in a folder that is provisioned; the first list of each
dashboard chooses the Prometheus. In a Prometheus of several clusters each series has to have the label `cluster`
(`externalLabels` of each cluster's own). Grafana's sidecar looks only into its own namespace unless it is told to look
into all (`sidecar.dashboards.searchNamespace: ALL` in Grafana's chart). **Money a month** is on Platform where the
inventory has prices ([capacity.md](capacity.md#prices)): it is what runs now, and the series
`tidegate:replica_price:per_month` says what a replica of each pool costs.

| an engineer on call asks | dashboard | panel |
| --- | --- | --- |
| which model is busy, and why? | Platform | Which model is busy, and why |
| who evicts whom? | Slice | Who evicts others, and who is evicted |
| did the last promotion raise errors? | Rollout | Did the last promotion raise errors? |
| which replica is slow? | Proxy | Which replica is slow? |
| is a language model slow because requests wait? | Engine | Running and waiting |
| will tonight's batch fit? | Slice | Will tonight's batch fit? |

No metric has pairs of models, of which there may be a million: whom a model had evicted is in the policy's log.

<!-- not run: it is for a cluster of yours -->

```sh
kubectl --namespace "$NS" logs --selector tidegate.dev/loading=on-demand \\
  --container eviction-policy --since 1h --tail -1 | grep '"wantedBy":"[^"]'
```

"""
_LOGS = """## Logs

Proxy, eviction policy and observer write one JSON object a line to standard error. A rollout writes such lines to
`logs/rollout.jsonl` beside its record ([rollout.md](rollout.md)). A field means the same wherever it stands, and is
left out where there is nothing to say.

**To follow a request**, take its `x-request-id`, the caller's own or the one in the answer, or the trace of its
`traceparent`:

<!-- not run: it is for a cluster of yours -->

```sh
kubectl --namespace "$NS" logs --selector app.kubernetes.io/name=inference-proxy \\
  --since 9h --tail -1 | grep order-8
kubectl --namespace "$NS" logs --selector tidegate.dev/loading=on-demand \\
  --container eviction-policy --since 9h --tail -1 | grep order-8
```

A line of the proxy such as `"seconds": 4.1, "waitedSeconds": 3.9` says that the call waited for its model to be loaded,
for which the policy's line `… is loaded` (`"event":"loaded"`, by the model's name) says why: `queuedSeconds` for room
and its turn, before the load's own `seconds`. Without `waitedSeconds`
(it was less than a tenth of a second) the time went by at the `replica`: its queue and computing are on the dashboard
Model.
A log goes with its pod (`--previous` has that of a container that was started again): whoever asks in the morning
needs a collector of logs; its fields are those below. `--prefix` says which pod each line is of.

**Not every call has a line.** The proxy logs calls that went well a few a second; those that took a second or more, or
waited for their model, up to 20 a second; those that failed up to 50, and how many were left out. For each of them
there is [proxy.tracing](definition.md#proxy-tracing), or the caller's own log. The policy has a line
for leases that were waited for or refused, up to 20 a
second, with the id of the first call that wanted it; its lines about the load, and about what was evicted for it, name
the model. Triton gets both headers; where it traces, its spans have the proxy's as their parent
([proxy.tracing](definition.md#proxy-tracing)).

"""


def page() -> str:
    """Return the page."""
    buckets = {name.upper(): ", ".join(f"{each:g}" for each in each_of) for name, each_of in metrics.SECONDS.items()}
    parts = [_HEAD.replace("CALLS", buckets["CALLS"]).replace("LOADS", buckets["LOADS"])]
    for title, families in (
        ("The proxy's", metrics.PROXY),
        ("The eviction policy's", metrics.EVICTION),
        ("Of engines", metrics.ENGINE),
    ):
        rows = ((f"`{each.series_name}`", each.kind, each.unit, _names(each.labels), _series(each), each.text)
                for each in families.values())  # fmt: skip
        parts += [f"## {title}\n", _table(("metric", "kind", "unit", "labels", "series", "what"), rows)]
    labels = ((f"`{name}`", label.meaning, str(label.most)) for name, label in metrics.LABELS.items())
    shown_rows = ((each.title, each.description, "; ".join(panel["title"] for panel in each.panels))
            for each in DASHBOARDS)  # fmt: skip
    shown = _table(("dashboard", "what for", "panels"), shown_rows)
    parts += [
        "## Labels\n",
        _table(("label", "what it says", "values at most"), labels),
        _DASHBOARDS + shown,
        _LOGS + _fields(),
    ]
    return "\n".join(parts)


def _fields() -> str:
    said: Mapping[str, str] = log_fields.ALWAYS | log_fields.FIELDS
    return _table(("field", "what it says"), ((f"`{name}`", text) for name, text in said.items()))


def _names(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _series(family: metrics.Family) -> str:
    number, words = family.most_series()
    return " × ".join([*words, *([str(number)] if number > 1 or not words else [])])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
