"""Writes a dashboard as Grafana 11 and later reads it, in the words of Grafana's own SDK."""

import json
from collections.abc import Mapping
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from .panel import BY, HERE, Dashboard, Panel, Query

_TAG = "tidegate"
_HEIGHT, _OF_FIGURES = 8, 5  # Of Grafana's rows of 30 pixels.
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_SINCE = f"max by ({BY}, model, version) (tidegate:version_answers:since_timestamp_seconds{{{HERE}}})"
MARKS = {
    "A version answers that was not there before": (
        f"{_SINCE} > time() - 600",
        "purple",
        "{{namespace}} {{model}} version {{version}}",
    ),
    "The routing table is taken over": (
        f'sum by ({BY}) (changes(tidegate_proxy_config_generation{{{HERE}, file="routing"}}[5m])) > 0',
        "blue",
        "{{namespace}}",
    ),
    "A gate would wait: an alert": (
        f'ALERTS{{alertstate="firing", severity!="info", {HERE}}}',
        "red",
        "{{namespace}} {{alertname}}",
    ),
}
"""What every dashboard marks on the line of time: its query, its colour, and what a mark says."""


def written(of: Dashboard, namespace: str | None = None) -> str:
    """Return a dashboard as JSON: of one namespace, or for any, with an identifier that stays the same."""
    made = (
        dashboard.Dashboard(f"Tidegate: {of.title}" if namespace is None else f"Tidegate: {of.title} of {namespace}")
        .description(of.description)
        .tags([_TAG])
        .readonly()
        .refresh("30s")
        .time(of.range, "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(
            dashboard.DashboardLink("Tidegate")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .include_vars(True)
            .keep_time(True)
        )
    )
    if namespace is None:
        made = made.uid(f"tidegate-{of.name}")
    for name, metric in of.variables.items():
        made = made.with_variable(_variable(name, metric, namespace if name == "namespace" else None))
    for name, (expression, colour, says) in MARKS.items():
        made = made.annotation(_Mark(name, expression, colour, says))
    for title, panels in of.rows.items():
        made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(_panel(panel))
    return json.dumps(made.build(), cls=JSONEncoder, ensure_ascii=False, separators=(",", ":"))


class _Mark(dashboard.AnnotationQuery):
    """An annotation by a query to Prometheus, of whose text the SDK knows nothing."""

    def __init__(self, name: str, expression: str, colour: str, says: str) -> None:
        super().__init__()
        self.name(name).datasource(_SOURCE).enable(True).icon_color(colour).expr(expression)
        self._says = {
            "titleFormat": name,
            "textFormat": f"{{{{cluster}}}} {says}",
            "step": "60s",
            "useValueForTime": False,
        }

    def build(self) -> Any:
        return _WithMore(super().build().to_json() | self._says)


class _WithMore(dict[str, Any]):
    def to_json(self) -> Mapping[str, Any]:
        return self


def _variable(name: str, metric: str, chosen: str | None) -> dashboard.QueryVariable:
    made = (
        dashboard.QueryVariable(name)
        .query({"query": f"label_values({metric}, {name})", "refId": name})
        .datasource(_SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )
    if chosen is not None:
        return made.current(models.VariableOption(selected=True, text=[chosen], value=[chosen]))
    return made.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))


def _panel(of: Panel) -> Any:
    about = of.description + (f" (Needs {of.needs}.)" if of.needs else "")
    made: Any
    if of.shape == "figure":
        made = stat.Panel().height(_OF_FIGURES).graph_mode(common_models.BigValueGraphMode.AREA)
        made = made.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(_colours(of)))
    elif of.shape == "table":
        made = (
            table.Panel().height(_HEIGHT).with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        )
        columns = (
            ["Value"] if len(of.queries) == 1 else [f"Value #{chr(65 + number)}" for number in range(len(of.queries))]
        )
        names = dict(zip(columns, (each.legend for each in of.queries), strict=True))
        options = {"excludeByName": {"Time": True}, "renameByName": names}
        made = made.with_transformation(models.DataTransformerConfig(id_val="organize", options=options))
    else:
        made = timeseries.Panel().height(_HEIGHT).show_points(common_models.VisibilityMode.NEVER)
        legend = common.VizLegendOptions().show_legend(True).placement(common_models.LegendPlacement.BOTTOM)
        made = made.legend(legend.display_mode(common_models.LegendDisplayMode.LIST)).axis_soft_min(0)
        if of.shape == "stack":
            made = made.fill_opacity(60).stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    made = made.title(of.title).description(about).span(of.width).unit(of.unit).datasource(_SOURCE)
    for number, query in enumerate(of.queries):
        made = made.with_target(_target(query, chr(65 + number), of.shape))
    return made


def _colours(of: Panel) -> list[models.Threshold]:
    """Return the colours of a figure, each from a value on; the first has none. Grafana's own are red from 80 on."""
    if of.red_from is not None:
        return [models.Threshold(color="green"), models.Threshold(value=of.red_from, color="red")]
    if of.red_below is not None:
        return [models.Threshold(color="red"), models.Threshold(value=of.red_below, color="green")]
    return [models.Threshold(color="text")]


def _target(of: Query, ref: str, shape: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(of.expression).ref_id(ref).datasource(_SOURCE)
    if shape == "table":
        return made.instant().format(PromQueryFormat.TABLE)
    # Every query keeps clusters apart, and so does every legend; without the label it is empty.
    return made.range().legend_format(of.legend if "{{cluster}}" in of.legend else f"{{{{cluster}}}} {of.legend}")
