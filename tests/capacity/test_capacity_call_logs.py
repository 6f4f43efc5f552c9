"""Logs of proxies and eviction policies, as they are written, become a trace: every call, and no caller."""

import gzip
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tidegate_eviction.core.messages import Loaded
from tidegate_eviction.serving.footprints import Footprints
from tidegate_eviction.serving.metrics import Counts, tell
from tidegate_eviction.simulate.trace import read_trace
from tidegate_service.json_lines import JsonLines
from typer.testing import CliRunner

from capacity.call_logs import read_logs
from cli.app import app

CALLER = "mrs-visitor"
NOON = datetime(2026, 11, 3, 12, tzinfo=UTC).timestamp()


def line(logger: str, at: float, **said: Any) -> str:
    """A line as the processes write it."""
    record = logging.makeLogRecord({"name": logger, "levelno": 20, "levelname": "INFO", "msg": "said", "said": said})
    record.created = NOON + at
    return JsonLines().format(record) + "\n"


def call(at: float, model: str, calls: dict[str, int] | None = None, **more: Any) -> str:
    said = {"protocol": "http", "status": 200, "server": "main", "model": model, "pool": "small", "principal": CALLER}
    told = {} if calls is None else {"calls": {"main": calls}}
    return line("tidegate_proxy.calls", at, **(said | {"seconds": 0.5} | more), **told)


def loaded(model: str, seconds: float, size: int) -> str:
    return line("tidegate_eviction.events", 1.0, event="loaded", model=model, seconds=seconds, footprintBytes=size)


LINES = [
    call(10.0, "fox", {"fox": 1}, seconds=4.5, waitedSeconds=4.0),
    loaded("fox", 4.0, 10**9),
    loaded("owl", 1.0, 2 * 10**9),
    loaded("owl", 3.0, 2 * 10**9),
    call(20.0, "owl", {"fox": 2, "owl": 3}, seconds=1.5),
    line("tidegate_proxy.calls", 20.2, calls={"main": {"owl": 5}, "other": {"cat": 1}}),
    line("tidegate_proxy.serve", 20.3, servers=["main"]),
    "Traceback (most recent call last):\n",
    call(30.0, "owl", {"owl": 1}, status=503, problem="busy"),
]


@pytest.mark.parametrize("before", ["", "[pod/inference-proxy-0/proxy] ", "2026-11-03T12:00:00.1Z stderr F "])
def test_calls_are_counted_as_lines_say_whatever_stands_before_them(tmp_path: Path, before: str) -> None:
    (tmp_path / "a.log").write_text("".join(before + each for each in LINES[:5]), "utf-8")
    with gzip.open(tmp_path / "b.log.gz", "wt", encoding="utf-8") as file:
        file.writelines(before + each for each in LINES[5:])
    found = read_logs(str(tmp_path))
    calls = {key: [round(at, 3) for at in times] for key, times in found.calls.items()}
    assert calls[("main", "fox")] == [0.0, 14.5, 14.5], "the first began when it had not waited yet"
    assert calls[("main", "owl")] == [13.0, 14.5, 14.5, *[14.7] * 5, 24.0]
    assert calls[("other", "cat")] == [14.7]
    assert (found.busy, found.lost) == (1, [])
    assert (found.measured["fox"].load_seconds, found.measured["fox"].warm_seconds) == (4.0, 0.5)
    assert (found.measured["owl"].load_seconds, found.measured["owl"].warm_seconds) == (2.0, 1.5)


def test_the_command_writes_the_trace_of_logs_without_callers(tmp_path: Path) -> None:
    (tmp_path / "with space.log").write_text("".join(LINES), "utf-8")
    file = tmp_path / "day.csv"
    ran = CliRunner().invoke(app, ["trace", str(file), "--logs", f"'{tmp_path}/with'*.log"])
    assert ran.exit_code == 0, ran.output
    assert [each.name for each in read_trace(file).models] == ["fox", "owl"]
    assert CALLER not in file.read_text("utf-8")
    assert "1 call of models that no eviction policy has measured: cat" in ran.stdout


def test_what_copying_files_near_the_gpu_took_is_no_part_of_a_load_as_the_policy_itself_logs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for seconds, copied in ((12.0, 8.0), (6.0, 0.0)):
            tell(Loaded("fox", seconds, 10**9, {}, 1, copied), Counts(), Footprints(tmp_path), {}, 0)
    lines = [JsonLines().format(record) + "\n" for record in caplog.records]
    (tmp_path / "a.log").write_text(call(1.0, "fox") + "".join(lines), "utf-8")
    assert read_logs(str(tmp_path)).measured["fox"].load_seconds == 5.0


def test_lines_of_older_proxies_and_broken_ones_are_told(tmp_path: Path) -> None:
    (tmp_path / "old.log").write_text(call(1.0, "fox") + LINES[0][:90] + "\n" + loaded("fox", 1.0, 5), "utf-8")
    found = read_logs(str(tmp_path / "old.log"))
    assert len(found.calls["main", "fox"]) == 1
    assert [each.partition(" ")[0] for each in found.lost] == ["1", "other"]


def test_a_long_log_is_read_with_its_progress_told_and_found_whole(tmp_path: Path) -> None:
    (tmp_path / "long.log").write_text("".join(call(number / 8, "fox", {"fox": 1}) for number in range(9000)), "utf-8")
    assert len(read_logs(str(tmp_path / "long.log")).calls["main", "fox"]) == 9000


def dumped(**fields: Any) -> str:
    return json.dumps(fields) + "\n"


@pytest.mark.parametrize(
    "wrapped",
    [
        pytest.param(lambda text: dumped(log=text, stream="stderr", time="2026-11-03T12:00:00.1Z"), id="Docker"),
        pytest.param(lambda text: dumped(date=1.1, log=text.rstrip(), kubernetes={"labels": {}}), id="Fluent Bit"),
        pytest.param(lambda text: dumped(message=text.rstrip(), source_type="kubernetes_logs"), id="Vector"),
        pytest.param(lambda text: dumped(message=dumped(log=text)), id="both"),
    ],
)
def test_collectors_may_put_lines_into_records_of_their_own(tmp_path: Path, wrapped: Callable[[str], str]) -> None:
    (tmp_path / "a.log").write_text("".join(LINES), "utf-8")
    (tmp_path / "b.log").write_text("".join(map(wrapped, LINES)), "utf-8-sig")
    plain, other = (read_logs(str(tmp_path / name)) for name in ("a.log", "b.log"))
    assert (other.calls, other.measured, other.lost) == (plain.calls, plain.measured, [])


def test_a_line_in_two_files_or_twice_in_one_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(LINES), "utf-8")
    (tmp_path / "b.log").write_text("".join([*LINES, *LINES]), "utf-8")
    found = read_logs(str(tmp_path))
    assert {key: len(times) for key, times in found.calls.items()} == {
        ("main", "fox"): 3,
        ("main", "owl"): 9,
        ("other", "cat"): 1,
    }
    assert f"{2 * 7} copies of other lines" in found.source


def test_a_form_that_cannot_be_read_is_named_without_the_caller(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_text("".join(each.replace('"', "'") for each in LINES), "utf-8")
    ran = CliRunner().invoke(app, ["trace", str(tmp_path / "out.csv"), "--logs", str(tmp_path)])
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
    assert f"the first at {tmp_path}/b.log:1" in ran.stderr
    assert CALLER not in ran.stderr


@pytest.mark.parametrize(
    ("words", "text", "why"),
    [
        ("nowhere.log", "", "there is no file nowhere.log"),
        ("'open", "", "cannot be read as names"),
        ("{folder}", "", "There is no call of a model in what 1 file hold"),
        ("{folder}/a.log", "\x1f\x8bnot zipped", "a.log cannot be read: "),
        ("{folder}/a.log", LINES[0], "What models take is not known (fox)"),
    ],
)
def test_logs_that_tell_nothing_end_with_one_sentence(tmp_path: Path, words: str, text: str, why: str) -> None:
    (tmp_path / "a.log").write_bytes(text.encode("latin-1"))
    said = words.format(folder=tmp_path)
    ran = CliRunner().invoke(app, ["trace", str(tmp_path / "out.csv"), "--logs", said])
    assert ran.exit_code
    assert why in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("more", [["--hours", "2"], ["--match", 'a="b"'], ["--prometheus", "http://here"]])
def test_what_is_for_prometheus_is_not_for_logs(tmp_path: Path, more: list[str]) -> None:
    ran = CliRunner().invoke(app, ["trace", str(tmp_path / "out.csv"), "--logs", "a.log", *more])
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
    assert "--prometheus" in ran.stderr
