"""`tidegate tune`: which configuration of a model is best."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Exit, Option

from ...cli.output import File, Json, Text, Texts, answering, counted, note, print_json, print_table, size
from ...errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ..tuning.plan import Measurement, Report


def tune(
    model: Annotated[str, Argument(metavar="ENTRY", help="Folder of the model's entry; its name with --url.")],
    instances: Annotated[str, Option(metavar="N,…", help="Instances to try; as configured without.")] = "",
    max_batch: Annotated[
        str, Option(metavar="N,…", help="max_batch_size to try, with dynamic batching; as configured without.")
    ] = "",
    batch: Annotated[str, Option(metavar="N,…", help="Rows in each request.")] = "1",
    concurrency: Annotated[str, Option(metavar="N,…", help="Requests at the same time.")] = "1,2,4,8,16",
    latency_ms: Annotated[float | None, Option(metavar="MS", help="The limit that the best keeps to.")] = None,
    percentile: Annotated[int, Option(help="Of the latency that the limit is about: 50, 90, 95 or 99.")] = 99,
    write: Annotated[File, Option(metavar="FILE", help="Write the best config.pbtxt there.")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Also where there is one already.")] = False,
    plot: Annotated[File, Option(metavar="FILE", help="Draw it, as .png or .svg.")] = None,
    shape: Annotated[Texts, Option(metavar="INPUT:D,…", help="Dimensions of an input that are open.")] = None,
    input_data: Annotated[File, Option(metavar="PATH", help="perf_analyzer's input data; random without.")] = None,
    window: Annotated[float, Option(metavar="SECONDS", help="Length of one measurement.")] = 2.0,
    url: Annotated[Text, Option(metavar="HOST:PORT", help="Measure this Triton, and change nothing there.")] = None,
    metrics_url: Annotated[Text, Option(metavar="URL", help="Its metrics, which tell the memory of its GPUs.")] = None,
    protocol: Annotated[Literal["grpc", "http"], Option(help="How the model is called.")] = "grpc",
    tritonserver: Annotated[Text, Option(metavar="PROGRAM", help="The one on the PATH by default.")] = None,
    triton_option: Annotated[
        Texts, Option(metavar="OPTION", help="One more argument of tritonserver; repeatable.")
    ] = None,
    perf_analyzer: Annotated[Text, Option(metavar="PROGRAM", help="The one on the PATH by default.")] = None,
    as_json: Json = False,
) -> None:
    """Measure a model at every combination of instances, batches and concurrency, and name the best.

    Exits with 1 where nothing keeps to the limit.
    """
    with answering():
        from ..entries.entry import read_entry
        from ..entries.text import CONFIG
        from ..tuning import drawing, perf, sweep
        from ..tuning.plan import SweepPlan
        from ..tuning.server import Address, TritonProgram

        if percentile not in (50, 90, 95, 99):
            raise UsageError(f"--percentile {percentile} is none of 50, 90, 95, 99")
        plan = SweepPlan(
            batches=_numbers("batch", batch), concurrencies=_numbers("concurrency", concurrency),
            instances=_numbers("instances", instances), max_batches=_numbers("max-batch", max_batch),
            protocol=protocol, window_seconds=window, input_data=input_data,
            latency_limit_seconds=None if latency_ms is None else latency_ms / 1000,
            percentile=percentile,  # type: ignore[arg-type]
            shapes=dict(_shape(each) for each in shape or ()),
        )  # fmt: skip
        if plot is not None:
            drawing.check_plot(plot)
        if write is not None:
            if url is not None:
                raise UsageError("--write and --url cannot stand together: nothing is changed there")
            sweep.check_target(write, overwrite=overwrite)
        if url is None:
            entry = read_entry(Path(model))
            server = TritonProgram.find(tritonserver, tuple(triton_option or ()))
            if write is not None and sweep.has_comments(entry):
                note(f"note: {write} will have every field of {entry.folder / CONFIG}, and none of its comments")
        program = perf.find_perf_analyzer(perf_analyzer)
        settings = counted(sum(1 for _ in plan.settings()), "setting")
        note(f"{settings}, 3 to {plan.windows} windows of {plan.window_seconds:g} s for each")
        if url is not None:
            address = Address(url, protocol, metrics_url)
            report = sweep.tune(model, plan, server=address, perf_analyzer=program, progress=note)
        else:
            report = sweep.tune(entry, plan, server=server, perf_analyzer=program, progress=note)
        if as_json:
            print_json(report)
        else:
            _show(report)
        # What an hour was spent on is written first: a picture that fails loses none of it.
        if write is not None and report.best is not None:
            sweep.write_config(write, sweep.tuned_text(entry, report), overwrite=overwrite)
            note(f"{write}: written")
        if plot is not None:
            drawing.plot(plot, report)
            note(f"{plot}: drawn")
        if report.best is None:
            raise Exit(ExitCode.FOUND)


def _show(report: "Report") -> None:
    rows = [
        (
            _word(each.setting.instances), _word(each.setting.max_batch), each.setting.batch, each.setting.concurrency,
            f"{each.inferences_per_second:.1f}", *(f"{each.latency(p) * 1000:.1f}" for p in (50, 95, 99)),
            _bytes(each.memory_bytes), _bytes(each.gpu_memory_bytes), _remark(report, each),
        )
        for each in report.measurements
    ]  # fmt: skip
    columns = ("#instances", "#max batch", "#batch", "#concurrency", "#inferences/s", "#p50 ms", "#p95 ms", "#p99 ms",
               "#memory", "#GPU memory", "")  # fmt: skip
    print_table(columns, rows)
    for failure in report.failures:
        print(f"{failure.setting}: not measured: {failure.why}")
    limit, best = report.latency_limit_seconds, report.best
    within = "" if limit is None else f" within {limit * 1000:g} ms (p{report.percentile})"
    if best is not None:
        print(f"best{within}: {best.setting} – {best.inferences_per_second:.1f} inferences/s")
        return
    least = min(report.measurements, key=lambda each: each.latency(report.percentile))
    print(f"nothing keeps{within}; the least is {least.latency(report.percentile) * 1000:.1f} ms, with {least.setting}")


def _remark(report: "Report", found: "Measurement") -> str:
    from ..tuning.plan import is_within

    words = ["best"] if found == report.best else []
    words += [] if is_within(found, report.latency_limit_seconds, report.percentile) else ["over the limit"]
    return ", ".join([*words, *([] if found.stable else ["unstable"])])


def _word(value: int | None) -> str:
    return "as is" if value is None else str(value)


def _bytes(count: int | None) -> str | None:
    return None if count is None else size(count)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text.strip() else ()
    except ValueError:
        raise UsageError(f"--{option} {text!r} is no list of whole numbers, such as 1,2,4") from None


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition(":")
    if not name:
        raise UsageError(f"--shape {text!r} has no input's name", do="say INPUT:D,…, such as IN:3,224,224")
    return name, _numbers("shape", dims)
