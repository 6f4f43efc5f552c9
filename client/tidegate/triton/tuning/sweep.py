"""The sweep itself: configuration after configuration, call after call."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import TidegateError, UnreachableError, UsageError
from ..entries.entry import Entry
from .memory import gpu_bytes
from .perf import LoadError, measure
from .plan import Failure, Measurement, Plan, Report, Setting, best_of
from .server import Address, NotLoadedError, Running, TritonProgram, described
from .variants import require_sound, variant

Progress = Callable[[str], None]
_WARM_UP_SECONDS = 0.2


def tune(
    model: Entry | str,
    plan: Plan,
    *,
    server: TritonProgram | Address,
    perf_analyzer: Path,
    progress: Progress = lambda _: None,
) -> Report:
    """Measure a model at every setting of a plan, and name the best.

    An entry is measured on Tritons that are run here, one for each configuration; a name at the address of one that
    runs, whose configuration stays as it is. A setting that cannot be measured is reported as that. Raises UsageError
    for what makes no sense, and UnreachableError where nothing could be measured.
    """
    total = sum(1 for _ in plan.settings())
    measurements: list[Measurement] = []
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-tune-") as scratch:
        for number, outcome in enumerate(_outcomes(model, plan, server, perf_analyzer, Path(scratch)), 1):
            if isinstance(outcome, Measurement):
                measurements.append(outcome)
                latency = outcome.latency(plan.percentile) * 1000
                found = f"{outcome.inferences_per_second:.1f} inferences/s, p{plan.percentile} {latency:.1f} ms"
            else:
                failures.append(outcome)
                found = outcome.why.splitlines()[0]
            progress(f"{number}/{total} {outcome.setting}: {found}")
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
    if isinstance(model, str) and isinstance(server, Address):
        if plan.instances or plan.max_batches:
            raise UsageError(
                "at an address, --instances and --max-batch change nothing",
                do="name the model's entry without --url: a Triton is then run for each configuration",
            )
        if server.metrics is not None:
            gpu_bytes(server.metrics, needed=True)
        running = Running(server, described(server, model))
        yield from _calls(running, plan, plan.calls(None, None), perf_analyzer, scratch)
        return
    if isinstance(model, str) or isinstance(server, Address):
        raise UsageError("an entry is measured on a Triton of our own, and a model's name at an address")
    # What makes no sense is said before anything is started.
    require_sound(model)
    configs = [(variant(model, *each), plan.calls(*each)) for each in plan.variants()]
    for number, (config, calls) in enumerate((config, calls) for config, calls in configs if calls):
        folder = scratch / str(number)
        with ExitStack() as stack:
            try:
                running = stack.enter_context(server.serving(model, config, plan, folder))
            except NotLoadedError as error:
                yield from (Failure(setting=setting, why=error.what) for setting in calls)
                continue
            _check_callable(running.config, plan)
            with suppress(TidegateError):  # the first answers take longer; what fails is said of the measurement
                measure(perf_analyzer, running, calls[0], replace(plan, window_seconds=_WARM_UP_SECONDS), folder)
            yield from _calls(running, plan, calls, perf_analyzer, folder)


def _calls(
    running: Running, plan: Plan, calls: list[Setting], perf_analyzer: Path, folder: Path
) -> Iterator[Measurement | Failure]:
    _check_callable(running.config, plan)
    most = max(1, int(running.config.max_batch_size))
    for setting in calls:
        try:
            if setting.batch > most:
                raise LoadError(f"the model takes {most} rows at the most (max_batch_size)")
            yield measure(perf_analyzer, running, setting, plan, folder)
        except LoadError as error:
            yield Failure(setting=setting, why=error.what)


def _check_callable(config: ModelConfig, plan: Plan) -> None:
    """Raise UsageError where the plan leaves open what a call of this model needs."""
    if config.model_transaction_policy.decoupled and plan.protocol != "grpc":
        raise UsageError(f"model {config.name} is decoupled, which gRPC alone can stream", do="say --protocol grpc")
    known = {tensor.name for tensor in config.input}
    for name in plan.shapes:
        if name not in known:
            raise UsageError(f"model {config.name} has no input {name}", do=f"there are: {', '.join(sorted(known))}")
    for tensor in config.input if plan.input_data is None else ():
        if -1 in tensor.dims and tensor.name not in plan.shapes and not tensor.optional:
            dims = ",".join(str(dim) for dim in tensor.dims)
            raise UsageError(
                f"input {tensor.name} of model {config.name} has dimensions that are open: {dims}",
                do=f"say its shape with --shape {tensor.name}:{dims.replace('-1', '16')}, or give --input-data",
            )
