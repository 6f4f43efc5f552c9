"""The sweep: configurations made of the owner's, call after call on each, and the one that is written in the end."""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import TidegateError, UnreachableError, UsageError
from ...findings import Finding, errors
from ..entries.checks import check_entry
from ..entries.entry import Entry
from ..entries.text import CONFIG, config_text, read_config
from .perf import LoadError, gpu_bytes, measure
from .plan import Failure, Measurement, Report, Setting, SweepPlan, best_of
from .server import Address, NotLoadedError, Running, TritonProgram, described

Progress = Callable[[str], None]
_WARM_UP_SECONDS = 0.2
_COMMENT_OR_TEXT = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")


def tune(
    model: Entry | str,
    plan: SweepPlan,
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
        where, why = model if isinstance(model, str) else model.folder, f"{first.setting}: {first.why}"
        raise UnreachableError("nothing could be measured", where=where, why=why, do="mend that, or try other settings")
    return Report(
        model=model if isinstance(model, str) else model.name,
        latency_limit_seconds=plan.latency_limit_seconds,
        percentile=plan.percentile,
        measurements=tuple(measurements),
        failures=tuple(failures),
        best=best_of(measurements, plan.latency_limit_seconds, plan.percentile),
    )


def _outcomes(
    model: Entry | str, plan: SweepPlan, server: TritonProgram | Address, perf_analyzer: Path, scratch: Path
) -> Iterator[Measurement | Failure]:
    if isinstance(server, Address):
        assert isinstance(model, str), "what is measured at an address is named"
        if plan.instances or plan.max_batches:
            do = "name the model's entry without --url: a Triton is then run for each configuration"
            raise UsageError("at an address, --instances and --max-batch change nothing", do=do)
        if server.metrics is not None:
            gpu_bytes(server.metrics, needed=True)
        running = Running(server, described(server, model))
        yield from _calls(running, plan, plan.calls(None, None), perf_analyzer, scratch)
        return
    assert isinstance(model, Entry), "what is measured on a Triton of our own is an entry"
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
    running: Running, plan: SweepPlan, calls: list[Setting], perf_analyzer: Path, folder: Path
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


def _check_callable(config: ModelConfig, plan: SweepPlan) -> None:
    if config.model_transaction_policy.decoupled and plan.protocol != "grpc":
        raise UsageError(f"model {config.name} is decoupled, which gRPC alone can stream", do="say --protocol grpc")
    known = {tensor.name for tensor in config.input}
    for name in plan.shapes:
        if name not in known:
            raise UsageError(f"model {config.name} has no input {name}", do=f"there are: {', '.join(sorted(known))}")
    for tensor in config.input if plan.input_data is None else ():
        if -1 in tensor.dims and tensor.name not in plan.shapes and not tensor.optional:
            dims = ",".join(str(dim) for dim in tensor.dims)
            do = f"say its shape with --shape {tensor.name}:{dims.replace('-1', '16')}, or give --input-data"
            raise UsageError(f"input {tensor.name} of model {config.name} has dimensions that are open: {dims}", do=do)


def require_sound(entry: Entry) -> None:
    """Raise UsageError about the first reason for which an entry cannot be measured on a Triton of its own."""
    if _config(entry).HasField("ensemble_scheduling"):
        what = "an ensemble is not measured alone, and has no instances of its own"
        do = "tune the models of its steps, one by one; or measure it with --url where it runs with them"
        raise UsageError(what, where=entry.where("ensemble_scheduling"), do=do)
    _refuse(errors(check_entry(entry)), entry.folder)
    links = [each for each in entry.problems if (entry.folder / each.where).is_symlink()]
    _refuse(links, entry.folder)


def variant(entry: Entry, instances: int | None, max_batch: int | None) -> ModelConfig:
    """Return the entry's configuration with so many instances in each group, and batches of so many rows, if said."""
    config = ModelConfig()
    config.CopyFrom(_config(entry))
    if instances is not None:
        if not config.instance_group:
            config.instance_group.add()
        for group in config.instance_group:
            group.count = instances
    if max_batch is not None:
        if config.max_batch_size < 1:
            what = "the model takes no batches, so there is no max_batch_size to try"
            why = "its max_batch_size is 0, and the dimensions of its tensors are whole"
            do = "leave --max-batch away; where the model does take batches, say so in its configuration first"
            raise UsageError(what, where=entry.where("max_batch_size"), why=why, do=do)
        config.max_batch_size = max_batch
        if not config.HasField("sequence_batching"):
            config.dynamic_batching.SetInParent()
            fitting = [size for size in config.dynamic_batching.preferred_batch_size if size <= max_batch]
            config.dynamic_batching.preferred_batch_size[:] = fitting
    return config


def tuned_text(entry: Entry, report: Report) -> str:
    """Return the text of the best configuration, with a heading; raises UsageError where nothing keeps to the limit."""
    best = report.best
    if best is None:
        raise UsageError(f"nothing that was tried keeps to the limit, so no {CONFIG} is written")
    config = variant(entry, best.setting.instances, best.setting.max_batch)
    heading = (
        f"# Found by `tidegate tune` with {best.setting}: {best.inferences_per_second:.1f} inferences/s, "
        f"p{report.percentile} {best.latency(report.percentile) * 1000:.1f} ms.\n"
    )
    text = heading + config_text(config)
    checked = replace(entry, text=read_config(text), problems=())
    _refuse(errors(check_entry(checked)))
    return text


def has_comments(entry: Entry) -> bool:
    """Tell whether the text of an entry's configuration has comments, which a new text does not have."""
    text = (entry.folder / CONFIG).read_text("utf-8", "replace") if entry.text is not None else ""
    return any(found[0].startswith("#") for found in _COMMENT_OR_TEXT.finditer(text))


def write_config(path: Path, text: str, *, overwrite: bool = False) -> None:
    """Write a configuration, whole or not at all; raises UsageError where something is there that may not go."""
    check_target(path, overwrite=overwrite)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
        new = Path(scratch, path.name)
        new.write_text(text, "utf-8")
        new.chmod(0o644)
        new.replace(path)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise UsageError where a configuration cannot be written: asked before an hour is spent on it."""
    if path.is_dir():
        raise UsageError("is a folder", where=path, do=f"name a file, such as {path / CONFIG}")
    if not path.parent.is_dir():
        raise UsageError("there is no such folder", where=path.parent)
    if path.exists() and not overwrite:
        raise UsageError("is there already", where=path, do="name another file, or say --overwrite")


def _config(entry: Entry) -> ModelConfig:
    if entry.text is None:
        what = f"there is no {CONFIG}"
        raise UsageError(what, where=entry.folder, do="make one with `tidegate model new`, and tune it then")
    _refuse(errors(entry.text.problems))
    assert entry.config is not None  # what cannot be parsed has a problem
    return entry.config


def _refuse(findings: Iterable[Finding], folder: Path = Path()) -> None:
    for finding in findings:
        raise UsageError(finding.what, where=folder / finding.where, why=finding.why, do=finding.do)
