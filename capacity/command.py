"""`tidegate trace`: writes recorded traffic as a trace."""

import time
from pathlib import Path

from rich.filesize import decimal
from tidegate_eviction.simulate.report import duration
from tidegate_eviction.simulate.trace import SimulationError, write_trace

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import count_of, counted, escaped

from .call_logs import read_logs
from .prometheus import Prometheus
from .recording import record
from .trace import trace_of

_DAY = 24.0


def write_recorded(out: Path, prometheus: str, hours: float | None, match: str, logs: str) -> None:
    """Write the trace of a Prometheus's last hours, or of logs. Print its contents and losses. Raises CommandError."""
    if bool(prometheus) == bool(logs):
        raise CommandError("Add a source: --prometheus <url> (--hours 168), or --logs <files>.", WRONG_INPUT)
    if logs and (match or hours is not None):
        raise CommandError("Remove --hours and --match, which are only for --prometheus.", WRONG_INPUT)
    length = _DAY if hours is None else hours
    recording = read_logs(logs) if logs else record(Prometheus(prometheus, match), length, time.time())
    trace, notes = trace_of(recording)
    if out.is_dir():
        raise CommandError(f"{escaped(str(out))} is a directory. Set a file, such as day.csv.gz in it.", WRONG_INPUT)
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_name(f".{out.name}")  # renamed at the end, so that readers never see a part of it
    try:
        write_trace(trace, new)
        new.replace(out)
    except SimulationError as error:
        raise CommandError(str(error)) from None
    finally:
        new.unlink(missing_ok=True)
    lasts = duration(trace.seconds[-1] - trace.seconds[0])
    calls, models = count_of(len(trace), "call"), counted(trace.models, "model")
    print(f"{escaped(str(out))}: {calls} of {models} ({decimal(trace.total_bytes)}) in {lasts}")
    if recording.source:
        print(f"  {recording.source}")
    for note in notes:
        print(f"  lost or changed: {note}")
