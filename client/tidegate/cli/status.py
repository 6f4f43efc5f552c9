"""`tidegate status` and `tidegate models`: which models there are, where, in memory or not, and how much used."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ExitCode
from .output import Json, answering, note, print_json, print_table

if TYPE_CHECKING:
    from ..status.report import ModelStatus, PlaneStatus, VersionStatus

Environment = Annotated[
    str | None, typer.Option("--environment", "-e", help="The environment, such as dev; all of them without it.")
]
Plane = Annotated[str | None, typer.Option("--plane", help="The data plane; all of them without it.")]
Proxy = Annotated[
    str | None,
    typer.Option("--proxy", help="Address of an inference proxy, instead of the environments that are known."),
]


def status(
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    environment: Environment = None,
    plane: Plane = None,
    proxy: Proxy = None,
    watch: Annotated[
        float, typer.Option("--watch", min=0, max=3600, help="Seconds to watch for rates; 0 shows totals alone.")
    ] = 1.0,
    json: Json = False,
) -> None:
    """Show what is in memory where, which versions answer, how much they are used, and who is hot. Loads nothing."""
    with answering():
        from ..status.collect import collect
        from ..status.proxies import proxies

        found = collect(proxies(environment, plane, proxy), model, watch_seconds=watch)
        if json:
            print_json(found)
        else:
            for each in found:
                _show(each, watched=watch > 0)
        _end(found, json)


def models(
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    environment: Environment = None,
    plane: Plane = None,
    proxy: Proxy = None,
    json: Json = False,
) -> None:
    """Show which models there are, where, which versions answer, what they take and give. Loads nothing."""
    with answering():
        from ..status.collect import collect
        from ..status.proxies import proxies

        found = collect(proxies(environment, plane, proxy), model, signatures=True)
        shown = sorted((each for at in found for each in at.models), key=lambda each: each.model)
        if json:
            print_json(shown)
        else:
            columns = (
                "MODEL", "ENVIRONMENT", "SERVER", "LOADING", "VERSIONS", "TRAFFIC", "INPUTS", "OUTPUTS", "#BATCH",
            )  # fmt: skip
            print_table(columns, [_model_row(each) for each in shown])
        _end(found, json)


def _end(planes: "list[PlaneStatus]", json: bool) -> None:
    """End with the exit code of what could not be asked, where all have one; in words where no JSON says it."""
    from ..status.collect import failures

    if found := failures(planes):
        for each in () if json else found:
            note(each)
        codes = {each.exit_code for each in planes if each.error}
        raise typer.Exit(codes.pop() if len(codes) == 1 else ExitCode.UNREACHABLE)


def _show(plane: "PlaneStatus", *, watched: bool) -> None:
    if plane.error:
        return
    rate = ("#PER SECOND", "#BUSY") if watched else ()
    columns = (
        "MODEL", "SERVER", "STATE", "TRAFFIC", "VERSION", "#REQUESTS", "#FAILED", *rate, "#MEAN", "#QUEUED",
        "LAST USED",
    )  # fmt: skip
    rows = [row for model in plane.models for row in _rows(model, watched)]
    at = f" on {plane.plane}" if plane.plane else ""
    print_table(columns, rows, f"{plane.environment}{at}: {plane.proxy} (you are {plane.caller})")
    note(f"{plane.environment}{at}: counts are of one replica of each pool, since it loaded the model")
    for pool in plane.unavailable:
        note(f"{plane.environment}{at}: the pool {pool} gives no statistics now")
    for model in plane.models:
        if model.why:
            note(f"{model.model}: {model.why}")
        if model.state == "absent":
            note(
                f"{model.model}: no version of it is in memory: nobody has deployed it here, or Triton cannot load it\n"
                f"  do: tidegate history {model.model} tells who brought what; `tidegate deploy` or `promote` brings it"
            )


def _model_row(model: "ModelStatus") -> tuple[object, ...]:
    unloaded = model.resident is False and model.state != "absent"
    return (
        model.model,
        f"{model.environment} {model.plane}".strip(),
        model.server,
        model.loading if model.state in ("ready", "not-ready") else _state(model),
        ", ".join(version.version for version in model.versions),
        model.traffic,
        "\n".join(model.inputs) or ("(not in memory)" if unloaded else ""),
        "\n".join(model.outputs),
        model.max_batch,
    )


def _rows(model: "ModelStatus", watched: bool) -> list[tuple[object, ...]]:
    server = model.server if model.pool is None else f"{model.server}/{model.pool}"
    head: tuple[object, ...] = (model.model, server, _state(model), model.traffic)
    blank: tuple[object, ...] = ("", "", "", "")
    if not model.versions:
        return [(*head, *[""] * (8 if watched else 6))]
    return [(*(blank if number else head), *_cells(each, watched)) for number, each in enumerate(model.versions)]


def _cells(version: "VersionStatus", watched: bool) -> tuple[object, ...]:
    rate: tuple[str, ...] = ()
    if watched and version.per_second is not None and version.busy is not None:
        rate = (f"{version.per_second:.1f}", f"{100 * version.busy:.0f} %")
    elif watched:
        rate = ("", "")
    return (
        version.version if version.ready else f"{version.version} (not ready)",
        version.requests,
        version.failures,
        *rate,
        _time(version.mean_seconds),
        _time(version.queue_seconds),
        "never" if version.last_used is None else f"{version.last_used:%Y-%m-%d %H:%M:%S} UTC",
    )


def _state(model: "ModelStatus") -> str:
    if model.state != "ready":
        return {"not-ready": "not ready", "absent": "not deployed"}.get(model.state, model.state)
    if model.loading != "on-demand":
        return "ready"
    return {True: "in memory", False: "on demand", None: "on demand?"}[model.resident]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.2f} ms"
