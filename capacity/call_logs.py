"""Traffic as the logs of proxies and eviction policies tell it: one JSON object a line, whatever stands before it."""

import gzip
import json
import shlex
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import Any

from tidegate_eviction.simulate.trace import shown

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import count_of, counted, escaped, shortened

from .trace import Calls, Measured, Recording, no_calls

_PIECE = 1 << 20  # Bytes of a file after which it is told how far they are.
_CALL, _POLICY = '"tidegate_proxy.calls"', '"tidegate_eviction.events"'  # The loggers.


@dataclass
class _Told:
    """What the lines so far have told. Times are Unix time."""

    calls: dict[tuple[str, str], Calls] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    sizes: dict[str, int] = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    work: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    how_many: Counter[str] = field(default_factory=Counter)

    def read(self, line: str) -> None:
        """Take in a line; what is no line of a call or a load is passed over."""
        if _CALL not in line and _POLICY not in line:
            return
        try:
            said = json.loads(line[line.index("{") :])
            self._call(said) if _CALL in line else self._event(said)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.how_many["broken"] += 1

    def _call(self, said: dict[str, Any]) -> None:
        at = datetime.fromisoformat(said["time"]).timestamp()
        own = said.get("server"), said.get("model")
        calls = {(server, model): int(n) for server, of in said.get("calls", {}).items() for model, n in of.items()}
        if not calls and "pool" in said:  # of a proxy that is older than `calls`
            calls[str(own[0]), str(own[1])] = 1
            self.how_many["alone"] += 1
        for key, number in calls.items():
            mine = key == own
            began = at - float(said["seconds"]) if mine else at
            self.calls[key].extend([began] * mine + [at] * (number - mine))
        if "status" in said and own in calls:
            if said["status"] == (0 if said["protocol"] == "grpc" else 200):
                self.work[str(own[1])].append(float(said["seconds"]) - float(said.get("waitedSeconds", 0.0)))
            self.how_many["busy"] += said.get("problem") == "busy"

    def _event(self, said: dict[str, Any]) -> None:
        if said.get("event") == "loaded":
            self.sizes[said["model"]] = int(said["footprintBytes"])
            self.loads[said["model"]].append(float(said["seconds"]) - float(said.get("copiedSeconds", 0.0)))


def read_logs(words: str) -> Recording:
    """Return what files tell; `words` are names or patterns, as a shell has them. Raises CommandError."""
    files, told = _files(words), _Told()
    number = sum(file.stat().st_size // _PIECE + 1 for file in files)
    for _ in shown(_pieces(files, told), "reading logs", number):
        pass
    if not told.calls:
        raise no_calls(
            f"{counted(files, 'file')} tell. Calls are logged by proxies whose log level is info, with the logger "
            "tidegate_proxy.calls"
        )
    start = min(min(calls) for calls in told.calls.values() if calls)
    calls = {key: array("d", (at - start for at in times)) for key, times in told.calls.items()}
    measured = {
        model: Measured(size, _mean(told.loads[model]), _mean(told.work.get(model, [])))
        for model, size in told.sizes.items()
    }
    lost = []
    if told.how_many["broken"]:
        lost.append(f"{count_of(told.how_many['broken'], 'line')} that are no whole JSON")
    if told.how_many["alone"]:
        older = (
            "proxies that do not say for how many calls a line stands (before `calls`): those were at most 5 a second"
        )
        lost.append(f"what was called besides {count_of(told.how_many['alone'], 'call')} of {older}")
    return Recording(calls, measured, told.how_many["busy"], lost)


def _files(words: str) -> list[Path]:
    try:
        names = shlex.split(words)
    except ValueError as error:
        raise CommandError(f"LOGS={escaped(words)} cannot be read as names of files: {error}.", WRONG_INPUT) from None
    files: dict[Path, None] = {}
    for name in names:
        found = [Path(each) for each in sorted(glob(name, recursive=True))] or [Path(name)]
        for path in found:
            inside = sorted(each for each in path.rglob("*.log*") if each.is_file()) if path.is_dir() else [path]
            files |= dict.fromkeys(inside)
    if missing := [str(file) for file in files if not file.exists()]:
        raise CommandError(f"LOGS: there is no file {escaped(missing[0])}.", WRONG_INPUT)
    if not files:
        raise CommandError(f"LOGS={escaped(shortened(words))}: there is no file *.log there.", WRONG_INPUT)
    return list(files)


def _pieces(files: list[Path], told: _Told) -> Iterator[None]:
    """Read the files line by line, zipped ones too; stop after every piece, so that it can be told how far they are."""
    for file in files:
        due = _PIECE
        try:
            with file.open("rb") as raw:
                lines: Iterable[bytes] = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
                for line in lines:
                    told.read(line.decode("utf-8", "replace"))
                    while raw.tell() >= due:
                        due += _PIECE
                        yield
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandError(f"LOGS: {escaped(str(file))} cannot be read: {why}.") from None
        yield


def _mean(values: list[float]) -> float:
    return max(0.0, sum(values) / len(values)) if values else 0.0
