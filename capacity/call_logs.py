"""Traffic in the logs of proxies and eviction policies, in the forms in which collectors store their lines."""

import base64
import csv
import gzip
import io
import json
import re
import shlex
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any

from tidegate_contracts.log_fields import FIELDS
from tidegate_eviction.simulate.trace import shown

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import count_of, counted, escaped, shortened

from .trace import Calls, Measured, Recording, no_calls

_CALL, _EVENT = "tidegate_proxy.calls", "tidegate_eviction.events"  # The loggers.
_MOST_CALLS, _MOST_BYTES = 10**7, 1e15  # In one line.
_IN_TURN = {'"': r"\1", ",": ", ?", ":": ": ?"}


def _begun(text: str, then: str = "") -> str:
    """Return a pattern for any beginning of a text. `then` may follow the whole text."""
    for each in reversed(text):
        then = f"(?:{_IN_TURN.get(each, re.escape(each))}{then})?+"
    return then


_LOGGERS = re.compile(f"{re.escape(_CALL)}|{re.escape(_EVENT)}")
_LOGGER = _begun('","logger":"', rf"(?:{_begun(_CALL)}(?![\w.])|{_begun(_EVENT)})")
_CUT = re.compile(
    r"""\{(\\*"{1,2})time"""
    + _begun('":"', r"[\d:T.+Z-]*" + _begun('","level":"', rf"\w*{_LOGGER}"))
    + r"""(?=(?:\\+[rn])*(?:\\*\s*$|(?!\1)\\*"))"""
)
"""A record that is cut before the end of its logger's name. Its quotes are `"`, or their form in another string."""
_TOTALS = re.compile(r"""calls(?<=["']calls)\\*["']{1,2}\s*:\s*\{""")
_FLAT = re.compile(r'^calls.|"calls[^"\\]')  # A key such as `calls.main.fox`, alone or in JSON.
_BASE64 = re.compile(r'"?(?<![\w+/-])(?:eyJ|H4sI)[\w+/-]{6,}={0,2}"?')  # Of a text that begins with `{"`, or of gzip.
_MOST_UNPACKED = 1 << 26  # Bytes of such a text.
_BEGIN = re.compile(r'[{\["]')
_CRI = re.compile(r"^.*?\b(?:stdout|stderr) [PF] ")  # containerd, CRI-O: time, stream, P for a part of a line
_WRAPPED = "log", "message", "line", "MESSAGE", "textPayload"  # Keys under which collectors put a line.
_OLDER = "of older proxies, not used"  # They log at most 5 calls a second, and no totals (`calls`).
_NO_CALLS = {"ready", "metadata", "config", "stats", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"}
"""Requests about a model that are not inference, and not in the totals."""
_MOST_FAILURES = 64  # Attempts to parse JSON in one line, because a damaged line must not take long.
_MOST_PARTS = 16  # Parts, of 16 KiB each, into which a container runtime splits a line.

Record = dict[str, Any]


@dataclass
class _Logs:
    """The calls and loads in the lines so far. Times are Unix times in seconds."""

    calls: dict[tuple[str, str], Calls] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    sizes: dict[str, int] = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    work: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    busy: int = 0
    lines: Counter[str] = field(default_factory=Counter)  # Every line, by its kind.
    unreadable: str = ""  # Position of the first unreadable line that names a call or a load.
    _seen: set[int] = field(default_factory=set)

    def take(self, records: list[Record]) -> int:
        """Add the records of a line, except copies. Return how many were readable."""
        kinds: Counter[str] = Counter()
        for record in records:
            if (identity := _identity(record)) in self._seen:
                kinds["copies of other lines"] += 1
                continue
            try:
                kind = {_CALL: self._call, _EVENT: self._event}[record["logger"]](record)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
                continue
            self._seen.add(identity)
            kinds[kind] += 1
        self.lines += kinds
        return kinds.total()

    def _call(self, record: Record) -> str:
        if not record.get("calls") and "pool" in record and record.get("verb") not in _NO_CALLS:
            if any(map(_FLAT.match, record)):
                raise ValueError("a collector has flattened the totals")
            return _OLDER
        at = datetime.fromisoformat(record["time"]).timestamp()
        own = record.get("server"), record.get("model")
        counts = [(server, model, n) for server, of in record.get("calls", {}).items() for model, n in of.items()]
        calls = {(server, model): int(_number(n, 1, _MOST_CALLS)) for server, model, n in counts}
        began = at - _number(record["seconds"]) if own in calls else at
        if "status" in record and own in calls:
            if int(record["status"]) == (0 if record["protocol"] == "grpc" else 200):
                self.work[str(own[1])].append(at - began - _number(record.get("waitedSeconds", 0.0)))
            self.busy += record.get("problem") == "busy"
        for key, number in calls.items():
            mine = key == own
            self.calls[key].extend([began] * mine + [at] * (number - mine))
        return "of calls"

    def _event(self, record: Record) -> str:
        if record.get("event") == "loaded" and isinstance(record["model"], str):
            model, size = record["model"], int(_number(record["footprintBytes"], 1, _MOST_BYTES))
            self.loads[model].append(_number(record["seconds"]) - _number(record.get("copiedSeconds", 0.0)))
            self.sizes[model] = size
        return "of eviction policies"


def _number(value: Any, least: float = 0, most: float = 1e9) -> float:
    """Return a number from a log. Raises ValueError if no proxy or policy would write it."""
    if isinstance(value, bool) or not (least <= float(value) <= most):
        raise ValueError(f"{value} is not from {least} to {most}")
    return float(value)


@dataclass
class _File:
    """Reads the lines of one file."""

    path: Path
    logs: _Logs
    _readable: int = 0
    _number: int = 0
    _unreadable: str = ""
    _cut: str = ""  # The beginning of a record that may continue in the next lines.
    _cut_at: str = ""
    _parts: int = 0

    def read(self, text: str) -> None:
        """Add a line, or all of a file that is one JSON value."""
        self._number += 1
        if "eyJ" in text or "H4sI" in text:
            text = _BASE64.sub(_decoded, text)
        loggers, _, cut = named = _named(text)
        if self._cut and not (loggers or cut) and _object_in(part := _payload(text)) is None:
            self._goes_on(part)
            return
        if not any(named):
            self.logs.lines["of other programs"] += 1
            return
        self._give_up()
        found = records_in(text)
        missing = self._take(found)
        if cut or max(named) > len(found):
            read = _named("\n".join(map(json.dumps, found)))
            missing += max(0, *(number - there for number, there in zip(named, read, strict=True)))
        where = f"{escaped(str(self.path))}:{self._number}: {_form(text)}"
        if missing == 1 and not found:
            self._cut, self._cut_at, self._parts = _payload(text), where, 1
        elif missing:
            self._cannot_read(missing, where)

    def _take(self, records: list[Record]) -> int:
        """Add the records of a line. Return how many are unreadable. Fluent Bit can store a line in two forms, of
        which one may lack the logger."""
        unique = list({_identity(each): each for each in sorted(records, key=_has_logger)}.values())
        taken = self.logs.take(unique)
        self._readable += taken
        return len(unique) - taken

    def _goes_on(self, part: str) -> None:
        """Join a line to the one before it, because a container runtime may have split it."""
        self._cut += part
        self._parts += 1
        self.logs.lines["parts of others"] += 1
        if (found := records_in(self._cut)) and not self._take(found):
            self._cut = ""
        elif self._parts > _MOST_PARTS:
            self._give_up()

    def _give_up(self) -> None:
        if self._cut:
            self._cannot_read(1, self._cut_at)
            self._cut = ""

    def _cannot_read(self, records: int, where: str) -> None:
        self._unreadable = self._unreadable or where
        self.logs.unreadable = self.logs.unreadable or where.partition(": ")[0]
        self.logs.lines["cut or damaged"] += records

    def end(self) -> None:
        """Finish the file. Raises CommandError if it has calls or loads, but none is readable."""
        self._give_up()
        if self._unreadable and not self._readable:
            raise CommandError(
                f"--logs: {self._unreadable} has calls or loads in a form that Tidegate cannot read. Export whole "
                "lines with their `logger`, as text or JSON, for example with `kubectl logs`. Nothing was written.",
                WRONG_INPUT,
            )


def records_in(text: str) -> list[Record]:
    """Return proxies' and policies' records in a text: JSON, JSON in strings, CSV cells. Some may lack a logger."""
    found = list(_records(text))
    if not found and '""' in text:
        with suppress(csv.Error):  # a cell that is too long, or contains NUL
            found = [record for cell in next(csv.reader([text]), []) for record in _records(cell)]
    return found


def _records(text: str) -> Iterator[Record]:
    decoder, at, failures = json.JSONDecoder(), 0, 0
    while failures < _MOST_FAILURES and (begin := _BEGIN.search(text, at)):
        try:
            value, at = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            at = begin.end()
            failures += 1
            continue
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict):
                if "timestamp" in each and isinstance(payload := each.get("jsonPayload"), dict):
                    payload.setdefault("time", each["timestamp"])  # Google Cloud moves the line's time there.
                if _has_logger(each) or isinstance(each.get("calls"), dict) or "footprintBytes" in each:
                    yield each
                waiting += () if _has_logger(each) else reversed(each.values())
            elif isinstance(each, list):
                waiting += reversed(each)
            elif isinstance(each, str) and any(_named(each)):
                yield from _records(each)


def _named(text: str) -> tuple[int, int, int]:
    """Return the number of loggers of calls and loads in a text, of fields that only their lines have, and of cut
    records."""
    fields = len(_TOTALS.findall(text)) + text.count("footprintBytes")
    return len(_LOGGERS.findall(text)), fields, len(_CUT.findall(text))


def _identity(record: Record) -> int:
    """Return a number that all copies of a record share, whatever fields a collector added or removed."""
    return hash((str(record.get("time")), *(str(record[key]) for key in FIELDS if key in record)))


def _has_logger(record: Record) -> bool:
    return record.get("logger") in (_CALL, _EVENT)


def _decoded(text: re.Match[str]) -> str:
    """Return a decoded base64 text, as a JSON string if it was one. An incomplete end is dropped. A text without calls
    and loads stays as it is. It may be a word, or a token."""
    payload = text[0].strip('"=').replace("-", "+").replace("_", "/")
    data = base64.b64decode(payload[: len(payload) - (len(payload) % 4 == 1)] + "==")
    if payload.startswith("H4sI"):
        with suppress(zlib.error):
            data = zlib.decompressobj(wbits=31).decompress(data, _MOST_UNPACKED)
    found = data.decode(errors="replace")
    if not any(_named(found)):
        return text[0]
    return json.dumps(found) if text[0].endswith('"') else found


def _object_in(text: str) -> Record | None:
    """Return the JSON object at the end of a line, or None."""
    try:
        return json.loads(text[text.index("{") :])  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return None


def _payload(text: str) -> str:
    """Return the program's own output, without the wrapping of a container runtime or a collector."""
    wrapper = _object_in(text) or {}
    line = next((wrapper[key] for key in _WRAPPED if key in wrapper), None)
    return (line if isinstance(line, str) else _CRI.sub("", text)).rstrip("\r\n")


def _form(text: str) -> str:
    """Return the beginning of a line, up to the first field of the record. It shows the form, but no caller."""
    flat = ", with flattened keys," if _FLAT.search(text) else ""
    return f"`{shortened(escaped(re.split('time|logger', text, maxsplit=1)[0]), 60)}…`{flat}"


def read_logs(words: str) -> Recording:
    """Return the traffic in files. `words` are names or patterns in shell syntax. Raises CommandError."""
    files, logs = _files(words), _Logs()
    for path in shown(files, "reading logs", len(files)):
        _read(path, logs)
    read = ", ".join(f"{number:,} {kind}" for kind, number in logs.lines.most_common()) or "none"
    if not logs.calls:
        raise no_calls(
            f"{counted(files, 'file')} (lines: {read}). Proxies log calls at the level info, with the logger {_CALL}"
        )
    start = min(min(calls) for calls in logs.calls.values() if calls)
    calls = {key: array("d", (at - start for at in times)) for key, times in logs.calls.items()}
    measured = {
        model: Measured(size, _mean(logs.loads[model]), _mean(logs.work.get(model, [])))
        for model, size in logs.sizes.items()
    }
    lost = []
    if logs.unreadable:
        damaged = count_of(logs.lines["cut or damaged"], "unreadable line")
        lost.append(f"{damaged} of calls or loads, the first at {logs.unreadable}")
    if older := logs.lines[_OLDER]:
        lost.append(f"calls of older proxies, which log no totals (`calls`): {count_of(older, 'line')} not used")
    return Recording(calls, measured, logs.busy, lost, f"Lines in {counted(files, 'file')}: {read}.")


def _files(words: str) -> list[Path]:
    try:
        names = shlex.split(words)
    except ValueError as error:
        raise CommandError(f"--logs {escaped(words)}: these are not valid file names: {error}.", WRONG_INPUT) from None
    files: dict[Path, None] = {}
    for name in names:
        found = [Path(each) for each in sorted(glob(name, recursive=True))] or [Path(name)]
        for path in found:
            inside = sorted(each for each in path.rglob("*.log*") if each.is_file()) if path.is_dir() else [path]
            files |= dict.fromkeys(inside)
    if missing := [str(file) for file in files if not file.exists()]:
        raise CommandError(f"--logs: there is no file {escaped(missing[0])}.", WRONG_INPUT)
    if not files:
        raise CommandError(f"--logs {escaped(shortened(words))}: there is no file *.log there.", WRONG_INPUT)
    return list(files)


def _read(path: Path, logs: _Logs) -> None:
    """Read a file line by line, even if it is compressed."""
    file = _File(path, logs)
    try:
        with path.open("rb") as raw:
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            plain = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if zipped else raw
            utf16 = plain.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")  # the encoding of PowerShell's `>`
            lines = io.TextIOWrapper(plain, "utf-16" if utf16 else "utf-8-sig", "replace")
            first = next(lines, "")
            if first.rstrip() in ("[", "{", "[{"):  # JSON over several lines, as in exports of Grafana or gcloud
                first += lines.read()
            for line in filter(None, chain([first], lines)):
                file.read(line)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"--logs: {escaped(str(path))} cannot be read: {why}.") from None
    file.end()


def _mean(values: list[float]) -> float:
    return max(0.0, sum(values) / len(values)) if values else 0.0
