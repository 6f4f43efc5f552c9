"""The sweep itself: configuration after configuration, call after call."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ...errors import TidegateError, UnreachableError, UsageError
from ..entries.entry import Entry
from .memory import require_metrics, watched
from .perf import LoadError, measure
from .plan import Plan
from .results import Failure, Measurement, Report, Setting, best_of
from .server import Address, Described, NotLoadedError, Running, TritonProgram, described, serving
from .variants import require_sound, variant

Progress = Callable[[str], None]
_WARM_UP_SECONDS = 0.2


def tune(
    model: Entry | str,
    plan: Plan,
    *,
    server: TritonProgram | Address,
    perf_analyzer: Path,
    progress: Progress | None = None,
) -> Report:
    """Measure a model at every setting of a plan, and name the best.

    An entry is measured on Tritons that are run here, one for each configuration; a name at the address of one that
    runs, whose configuration stays as it is. A setting that cannot be measured is reported as that. Raises UsageError
    for what makes no sense, and UnreachableError where nothing could be measured.
    """
    say = progress or (lambda _: None)
    total = sum(1 for _ in plan.settings())
    measurements: list[Measurement] = []
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-tune-") as scratch:
        for outcome in _outcomes(model, plan, server, perf_analyzer, Path(scratch)):
            number = len(measurements) + len(failures) + 1
            if isinstance(outcome, Measurement):
                measurements.append(outcome)
                latency = outcome.latency(plan.percentile) * 1000
                found = f"{outcome.inferences_per_second:.1f} inferences/s, p{plan.percentile} {latency:.1f} ms"
            else:
                failures.append(outcome)
                found = outcome.why.splitlines()[0]
            say(f"{number}/{total} {outcome.setting}: {found}")
    if not measurements:
        first = failures[0]
        raise UnreachableError(
            "nothing could be measured", where=model if isinstance(model, str) else str(model.folder),
            why=f"{first.setting}: {first.why}", do="mend that, or try other settings",
        )  # fmt: skip
    return Report(
        model=model if isinstance(model, str) else model.name,
        latency_limit_seconds=plan.latency_limit_seconds,
        percentile=plan.percentile,
        measurements=tuple(measurements),
        failures=tuple(failures),
        best=best_of(measurements, plan.latency_limit_seconds, plan.percentile),
    )


def _outcomes(
    model: Entry | str, plan: Plan, server: TritonProgram | Address, perf_analyzer: Path, scratch: Path
) -> Iterator[Measurement | Failure]:
    if isinstance(model, str) or isinstance(server, Address):
        if not isinstance(model, str) or not isinstance(server, Address):
            raise UsageError("an entry is measured on a Triton of our own, and a model's name at an address")
        if plan.instances or plan.max_batches:
            raise UsageError(
                "at an address, --instances and --max-batch change nothing",
                do="name the model's entry without --url: a Triton is then run for each configuration",
            )
        if server.metrics is not None:
            require_metrics(server.metrics)
        running = Running(server, described(server, model))
        yield from _calls(running, plan, plan.calls(None, None), perf_analyzer, scratch)
        return
    # What makes no sense is said before anything is started.
    require_sound(model)
    configs = [(variant(model, *each), plan.calls(*each)) for each in plan.variants()]
    for number, (config, calls) in enumerate(configs):
        if not calls:
            continue
        folder = scratch / str(number)
        with ExitStack() as stack:
            try:
                running = stack.enter_context(serving(server, model, config, plan, folder))
            except NotLoadedError as error:
                yield from (Failure(setting=setting, why=error.what) for setting in calls)
                continue
            _warm_up(running, plan, calls[0], perf_analyzer, folder)
            yield from _calls(running, plan, calls, perf_analyzer, folder)


def _calls(
    running: Running, plan: Plan, calls: list[Setting], perf_analyzer: Path, folder: Path
) -> Iterator[Measurement | Failure]:
    _can_be_called(running.model, plan)
    for setting in calls:
        if setting.batch > running.model.most_rows:
            why = f"the model takes {running.model.most_rows} rows at the most (max_batch_size)"
            yield Failure(setting=setting, why=why)
            continue
        with watched(running.group, running.address.metrics) as peak:
            try:
                found = measure(perf_analyzer, running.address, running.model, setting, plan, folder)
            except LoadError as error:
                yield Failure(setting=setting, why=error.what)
                continue
        yield Measurement(
            setting=setting,
            inferences_per_second=found.inferences_per_second,
            p50_seconds=found.p50,
            p90_seconds=found.p90,
            p95_seconds=found.p95,
            p99_seconds=found.p99,
            memory_bytes=peak.host,
            gpu_memory_bytes=peak.gpu,
            stable=found.stable,
        )


def _warm_up(running: Running, plan: Plan, setting: Setting, perf_analyzer: Path, folder: Path) -> None:
    """Call a model that was just loaded: its first answers take longer. What fails is said of the measurement."""
    _can_be_called(running.model, plan)
    try:
        measure(
            perf_analyzer,
            running.address,
            running.model,
            setting,
            replace(plan, window_seconds=_WARM_UP_SECONDS),
            folder,
        )
    except TidegateError:
        return


def _can_be_called(model: Described, plan: Plan) -> None:
    """Raise UsageError where the plan leaves open what a call of this model needs."""
    if model.decoupled and plan.protocol != "grpc":
        raise UsageError(f"model {model.name} is decoupled, which gRPC alone can stream", do="say --protocol grpc")
    known = {tensor.name for tensor in model.config.input}
    for name in plan.shapes:
        if name not in known:
            raise UsageError(f"model {model.name} has no input {name}", do=f"there are: {', '.join(sorted(known))}")
    if plan.input_data is not None:
        return
    for tensor in model.config.input:
        if -1 in tensor.dims and tensor.name not in plan.shapes and not tensor.optional:
            dims = ",".join(str(dim) for dim in tensor.dims)
            raise UsageError(
                f"input {tensor.name} of model {model.name} has dimensions that are open: {dims}",
                do=f"say its shape with --shape {tensor.name}:{dims.replace('-1', '16')}, or give --input-data",
            )
