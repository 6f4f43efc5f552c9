"""Traffic in the logs of proxies and eviction policies, as `kubectl logs` or a collector of lines has written them."""

import gzip
import io
import json
import shlex
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import Any

from tidegate_contracts.log_fields import FIELDS
from tidegate_eviction.simulate.trace import shown

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import count_of, counted, escaped, shortened

from .trace import Calls, Measured, Recording, no_calls

_PIECE = 1 << 20  # Bytes of a file after which the progress bar moves.
_CALL, _EVENT = "tidegate_proxy.calls", "tidegate_eviction.events"  # The loggers.
_WRAPPED = "log", "message"  # Keys under which Docker, Fluent Bit and Vector put a line.

Record = dict[str, Any]


@dataclass
class _Logs:
    """The calls and loads in the lines so far. Times are Unix times, in seconds."""

    calls: dict[tuple[str, str], Calls] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    sizes: dict[str, int] = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    work: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    busy: int = 0
    alone: int = 0  # Calls of proxies that are older than `calls`.
    lines: Counter[str] = field(default_factory=Counter)  # Every line, by its kind.
    unreadable: str = ""  # Where the first line is that names a call or a load and cannot be read.
    _seen: set[int] = field(default_factory=set)

    def take(self, text: str, where: str) -> None:
        """Take in a line, unless it is a copy."""
        if _CALL not in text and _EVENT not in text:
            self.lines["of other programs"] += 1
            return
        try:
            record = _record(text)
            identity = hash((record["logger"], record["time"], *(str(record.get(key)) for key in FIELDS)))
            if identity in self._seen:
                self.lines["copies of other lines"] += 1
                return
            self._call(record) if record["logger"] == _CALL else self._event(record)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self.unreadable = self.unreadable or where
            self.lines["cut or damaged"] += 1
            return
        self._seen.add(identity)
        self.lines["of calls" if record["logger"] == _CALL else "of eviction policies"] += 1

    def _call(self, record: Record) -> None:
        at = datetime.fromisoformat(record["time"]).timestamp()
        own = record.get("server"), record.get("model")
        calls = {(server, model): int(n) for server, of in record.get("calls", {}).items() for model, n in of.items()}
        alone = not calls and "pool" in record
        if alone:
            calls[str(own[0]), str(own[1])] = 1
        began = at - float(record["seconds"]) if own in calls else at
        if "status" in record and own in calls:
            if int(record["status"]) == (0 if record["protocol"] == "grpc" else 200):
                self.work[str(own[1])].append(at - began - float(record.get("waitedSeconds", 0.0)))
            self.busy += record.get("problem") == "busy"
        self.alone += alone
        for key, number in calls.items():
            mine = key == own
            self.calls[key].extend([began] * mine + [at] * (number - mine))

    def _event(self, record: Record) -> None:
        if record.get("event") == "loaded":
            model, size = record["model"], int(record["footprintBytes"])
            self.loads[model].append(float(record["seconds"]) - float(record.get("copiedSeconds", 0.0)))
            self.sizes[model] = size


def _record(text: str) -> Record:
    """Return the record in a line, whatever stands before it; a collector may have put the line into one of its own."""
    found: Record = json.loads(text[text.index("{") :])
    while "logger" not in found:
        inner = next(found[key] for key in _WRAPPED if isinstance(found.get(key), str))
        found = json.loads(inner[inner.index("{") :])
    return found


def read_logs(words: str) -> Recording:
    """Return the traffic in files; `words` are names or patterns, as a shell has them. Raises CommandError."""
    files, logs = _files(words), _Logs()
    number = sum(file.stat().st_size // _PIECE + 1 for file in files)
    for _ in shown(_pieces(files, logs), "reading logs", number):
        pass
    read = ", ".join(f"{number:,} {kind}" for kind, number in logs.lines.most_common()) or "none"
    if not logs.calls and logs.unreadable:
        raise CommandError(
            f"--logs: calls or loads are in a form that Tidegate cannot read, the first at {logs.unreadable}. Export "
            "the lines as they were written, for example with `kubectl logs`. Nothing was written.",
            WRONG_INPUT,
        )
    if not logs.calls:
        raise no_calls(
            f"{counted(files, 'file')} hold (lines: {read}). Proxies log calls at the level info, with the "
            f"logger {_CALL}"
        )
    start = min(min(calls) for calls in logs.calls.values() if calls)
    calls = {key: array("d", (at - start for at in times)) for key, times in logs.calls.items()}
    measured = {
        model: Measured(size, _mean(logs.loads[model]), _mean(logs.work.get(model, [])))
        for model, size in logs.sizes.items()
    }
    lost = []
    if logs.unreadable:
        lost.append(
            f"{count_of(logs.lines['cut or damaged'], 'line')} of calls or loads that cannot be read, the first at "
            f"{logs.unreadable}"
        )
    if logs.alone:
        lost.append(
            f"other calls of proxies that log at most 5 calls a second and no total (before `calls`): {logs.alone:,} "
            "of theirs are in it"
        )
    return Recording(calls, measured, logs.busy, lost, f"Lines in {counted(files, 'file')}: {read}.")


def _files(words: str) -> list[Path]:
    try:
        names = shlex.split(words)
    except ValueError as error:
        raise CommandError(f"--logs {escaped(words)} cannot be read as names of files: {error}.", WRONG_INPUT) from None
    files: dict[Path, None] = {}
    for name in names:
        found = [Path(each) for each in sorted(glob(name, recursive=True))] or [Path(name)]
        for path in found:
            inside = sorted(each for each in path.rglob("*.log*") if each.is_file()) if path.is_dir() else [path]
            files |= dict.fromkeys(inside)
    if missing := [str(file) for file in files if not file.exists()]:
        raise CommandError(f"LOGS: there is no file {escaped(missing[0])}.", WRONG_INPUT)
    if not files:
        raise CommandError(f"--logs {escaped(shortened(words))}: there is no file *.log there.", WRONG_INPUT)
    return list(files)


def _pieces(files: list[Path], logs: _Logs) -> Iterator[None]:
    """Read the files line by line, zipped ones too; stop after every piece, so that the progress bar moves."""
    for path in files:
        due = _PIECE
        try:
            with path.open("rb") as raw:
                zipped = raw.peek(2)[:2] == b"\x1f\x8b"
                plain = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if zipped else raw
                for number, line in enumerate(io.TextIOWrapper(plain, "utf-8-sig", "replace"), 1):
                    logs.take(line, f"{escaped(str(path))}:{number}")
                    while raw.tell() >= due:
                        due += _PIECE
                        yield
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandError(f"--logs: {escaped(str(path))} cannot be read: {why}.") from None
        yield


def _mean(values: list[float]) -> float:
    return max(0.0, sum(values) / len(values)) if values else 0.0
