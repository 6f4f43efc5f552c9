"""Real logs of proxies and eviction policies become a trace with every call, and without callers."""

import base64
import csv
import gzip
import io
import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.core.messages import Loaded
from tidegate_eviction.serving.footprints import Footprints
from tidegate_eviction.serving.metrics import Counts, observe
from tidegate_eviction.simulate.trace import read_trace
from tidegate_service.json_lines import JsonLines
from typer.testing import CliRunner

from capacity.call_logs import read_logs
from cli.app import app
from stacks.command import CommandError

CALLER = "mrs-visitor"
NOON = datetime(2026, 11, 3, 12, tzinfo=UTC).timestamp()


def line(logger: str, at: float, **fields: Any) -> str:
    record = logging.makeLogRecord({"name": logger, "levelno": 20, "levelname": "INFO", "msg": "done", "data": fields})
    record.created = NOON + at
    return JsonLines().format(record) + "\n"


def call(at: float, model: str, calls: dict[str, int] | None = None, **more: Any) -> str:
    fields = {"protocol": "http", "status": 200, "server": "main", "model": model, "pool": "small", "principal": CALLER}
    totals = {} if calls is None else {"calls": {"main": calls}}
    return line("tidegate_proxy.calls", at, **(fields | {"seconds": 0.5} | more), **totals)


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
def test_calls_are_counted_despite_prefixes_of_their_records(tmp_path: Path, before: str) -> None:
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
    ran = CliRunner().invoke(app, ["trace", "--out", str(file), "--logs", f"'{tmp_path}/with'*.log"])
    assert ran.exit_code == 0, ran.output
    assert [each.name for each in read_trace(file).models] == ["fox", "owl"]
    assert CALLER not in file.read_text("utf-8")
    assert "1 call of models that no eviction policy has measured: cat" in ran.stdout
    assert re.search(r": 12 calls of 2 models \(.*\) in 24 s\n", ran.stdout), ran.stdout
    ran = CliRunner().invoke(app, ["trace", "--out", str(tmp_path), "--logs", f"'{tmp_path}/with'*.log"])
    assert (ran.exit_code, "is a directory. Set a file" in ran.stderr) == (2, True)


def test_loads_are_read_as_the_policy_itself_logs_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for seconds in (12.0, 6.0):
            observe(Loaded("fox", seconds, 10**9, {}, 1), Counts(), Footprints(tmp_path), {})
    lines = [JsonLines().format(record) + "\n" for record in caplog.records]
    (tmp_path / "a.log").write_text(call(1.0, "fox", {"fox": 1}) + "".join(lines), "utf-8")
    assert read_logs(str(tmp_path)).measured["fox"].load_seconds == 9.0


def test_lines_of_older_proxies_and_broken_ones_are_reported(tmp_path: Path) -> None:
    older = call(0.5, "fox", verb="infer") + call(0.7, "fox", verb="metadata")
    text = older + call(1.0, "fox", {"fox": 1}) + LINES[0][:90] + "\n" + loaded("fox", 1.0, 5)
    (tmp_path / "old.log").write_text(text, "utf-8")
    found = read_logs(str(tmp_path / "old.log"))
    assert len(found.calls["main", "fox"]) == 1
    assert [each.partition(" of ")[0] for each in found.lost] == ["1 unreadable line", "calls"]
    assert found.lost[1].endswith(": 1 line not used")
    assert "1 of older proxies, not used" in found.source


def test_flattened_totals_are_a_form_that_cannot_be_read_and_not_an_older_proxy(tmp_path: Path) -> None:
    flat = parsed(call(1.0, "fox", verb="infer")) | {"calls.main.fox": 1}
    (tmp_path / "flat.log").write_text(dumped(**flat), "utf-8")
    with pytest.raises(CommandError, match="with flattened keys, has calls or loads in a form"):
        read_logs(str(tmp_path))


KUBERNETES = {"pod_name": "inference-proxy-0", "labels": {"app": "x"}, "annotations": {"a/b": "{}"}}


def dumped(**fields: Any) -> str:
    return json.dumps(fields) + "\n"


def parsed(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        return json.loads(text)  # type: ignore[no-any-return]
    return {}


def cri(text: str) -> str:
    """containerd and CRI-O split a line of more than 16 KiB into parts. Here each part has 120 bytes."""
    parts = [text.rstrip("\n")[at : at + 120] for at in range(0, len(text), 120)]
    return "".join(f"2026-11-03T12:00:00.1Z stderr {'F' if part is parts[-1] else 'P'} {part}\n" for part in parts)


def docker(text: str) -> str:
    parts = [text[at : at + 120] for at in range(0, len(text), 120)]
    return "".join(dumped(log=part, stream="stderr", time="2026-11-03T12:00:00.1Z") for part in parts)


def merged(text: str) -> str:
    """Fluent Bit with Merge_Log and Keep_Log has the record twice."""
    return dumped(date=1762171200.1, log=text, log_processed=parsed(text), kubernetes=KUBERNETES)


def lifted(text: str) -> str:
    """The same with Nest: the fields of the record are next to the line."""
    return dumped(**{"log": text} | parsed(text))


def moved(text: str) -> dict[str, Any]:
    """GKE stores a line of JSON as a payload, without its time."""
    payload = parsed(text)
    return {"timestamp": payload.pop("time"), "jsonPayload": payload} if payload else {"textPayload": text}


def csv_row(text: str) -> str:
    rows = io.StringIO()
    csv.writer(rows).writerow(["1762171200100000000", "2026-11-03 12:00:00.100", text.rstrip("\n")])
    return rows.getvalue()


LINEWISE: dict[str, Callable[[str], str]] = {
    "plain": str,
    "kubectl --prefix": lambda text: f"[pod/inference-proxy-0/proxy] {text}",
    "kubectl --timestamps": lambda text: f"2026-11-03T12:00:00.1Z {text}",
    "cri": cri,
    "docker": docker,
    "docker json in syslog": lambda text: f"<30>Nov  3 12:00:00 node dockerd[7]: {docker(text)}",
    "fluent bit": lambda text: dumped(
        date=1762171200.1, stream="stderr", _p="F", log=text.rstrip(), kubernetes=KUBERNETES
    ),
    "fluent bit, merged": merged,
    "fluent bit, lifted": lifted,
    "vector": lambda text: dumped(message=text.rstrip(), kubernetes=KUBERNETES, source_type="kubernetes_logs"),
    "journald": lambda text: dumped(_HOSTNAME="node", MESSAGE=dumped(log=text).rstrip()),
    "logcli": lambda text: f'2026-11-03T12:00:00Z {{app="proxy", pod="a"}} {text}',
    "logcli -o jsonl": lambda text: dumped(
        labels={"app": "proxy"}, line=text.rstrip(), timestamp="2026-11-03T12:00:00Z"
    ),
    "logfmt": lambda text: f"ts=2026-11-03T12:00:00Z level=info msg={json.dumps(text.rstrip())}\n",
    "csv": csv_row,
    "base64": lambda text: base64.b64encode(text.encode()).decode() + "\n",
    "base64, unpadded": lambda text: base64.b64encode(text.encode()).decode().rstrip("=") + "\n",
    "base64 of gzip": lambda text: dumped(data=base64.b64encode(gzip.compress(text.encode())).decode()),
    "base64 in json": lambda text: dumped(data=base64.urlsafe_b64encode(text.encode()).decode(), pod="a"),
    "opentelemetry": lambda text: dumped(
        resourceLogs=[{"scopeLogs": [{"logRecords": [{"body": {"stringValue": text}}]}]}]
    ),
}
WHOLE: dict[str, Callable[[Sequence[str]], bytes]] = {
    "lines": lambda lines: "".join(lines).encode(),
    "gzip": lambda lines: gzip.compress("".join(lines).encode()),
    "byte order mark": lambda lines: "".join(lines).encode("utf-8-sig"),
    "PowerShell": lambda lines: "".join(lines).replace("\n", "\r\n").encode("utf-16"),
}
EXPORTS: dict[str, Callable[[Sequence[str]], str]] = {
    "grafana": lambda lines: json.dumps([{"line": each, "timestamp": "1", "fields": {"app": "x"}} for each in lines]),
    "gcloud": lambda lines: json.dumps([{"textPayload": each, "labels": {}} for each in lines], indent=2),
    "gke": lambda lines: json.dumps([moved(each) for each in lines]),
    "elastic": lambda lines: json.dumps(
        {"hits": {"hits": [{"_source": {"message": each}} for each in lines]}}, indent=1
    ),
    "loki": lambda lines: json.dumps({"data": {"result": [{"stream": {}, "values": [["1", each] for each in lines]}]}}),
}


def without_logger(text: str) -> str:
    return dumped(**{key: value for key, value in parsed(text).items() if key != "logger"})


def in_apostrophes(text: str) -> str:
    return text.replace('"', "'")


def cut_at(column: int) -> Callable[[str], str]:
    return lambda text: text.rstrip("\n")[:column] + "\n"


NO_JSON = {"apostrophes", "no JSON"}  # In base64, only the beginning of JSON is known.
DAMAGES: dict[str, Callable[[str], str]] = {
    "no logger": without_logger,
    "another logger": lambda text: text.replace('"logger":"tidegate', '"logger":"collector'),
    "apostrophes": in_apostrophes,
    "no JSON": lambda text: in_apostrophes(without_logger(text)),
    **{f"cut at {column}": cut_at(column) for column in (6, 9, 30, 45, 56, 60, 70, 80, 90, 120)},
}


def calls_in(folder: Path, content: bytes) -> dict[tuple[str, str], list[float]]:
    (folder / "of.log").write_bytes(content)
    found = read_logs(str(folder / "of.log"))
    assert "cut or damaged" not in found.source
    return {key: [round(at, 3) for at in times] for key, times in found.calls.items()}


@given(
    st.lists(st.sampled_from(list(LINEWISE)), min_size=len(LINES), max_size=len(LINES)), st.sampled_from(list(WHOLE))
)
def test_collectors_may_wrap_lines_as_they_like_even_each_in_another_way(
    tmp_path_factory: pytest.TempPathFactory, wrappings: list[str], whole: str
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    wrapped = [LINEWISE[name](each) for name, each in zip(wrappings, LINES, strict=True)]
    assert calls_in(folder, WHOLE[whole](wrapped)) == calls_in(folder, "".join(LINES).encode())


@pytest.mark.parametrize("export", EXPORTS)
def test_exports_of_log_stores_give_the_same_trace(tmp_path: Path, export: str) -> None:
    assert calls_in(tmp_path, EXPORTS[export](LINES).encode()) == calls_in(tmp_path, "".join(LINES).encode())


@given(st.sampled_from(list(LINEWISE)), st.integers(0, len(LINES) - 1), st.floats(0.0, 1.0))
def test_a_line_that_is_cut_is_counted_if_it_names_a_call_or_a_load(
    tmp_path_factory: pytest.TempPathFactory, wrapping: str, place: int, share: float
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    wrapped = [LINEWISE[wrapping](each) for each in LINES]
    cut = wrapped[place][: int(share * len(wrapped[place]))].rstrip("\n") + "\n"
    (folder / "cut.log").write_text("".join([*wrapped[:place], cut, *wrapped[place + 1 :]]), "utf-8")
    found = read_logs(str(folder / "cut.log"))
    others = calls_in(folder, "".join(LINES[:place] + LINES[place + 1 :]).encode())
    all_calls, less = (sum(map(len, each.values())) for each in (found.calls, others))
    unreadable = [each for each in found.lost if "cut.log" in each]
    assert all_calls >= less
    if not unreadable and all_calls == less and "calls" in LINES[place]:
        assert not re.search(r"""\{\\*"+time""", cut)


@pytest.mark.parametrize(
    ("form", "damage"),
    [each for each in product([*LINEWISE, *EXPORTS], DAMAGES) if each[1] not in NO_JSON or "base64" not in each[0]],
)
def test_every_call_and_load_counts_despite_a_damaged_logger(tmp_path: Path, form: str, damage: str) -> None:
    def wrapped(lines: Sequence[str]) -> str:
        return EXPORTS[form](lines) if form in EXPORTS else "".join(map(LINEWISE[form], lines))

    whole = [call(float(at), "fox", {"fox": 1}) for at in range(4)]
    lost = [call(8.0, "owl", {"owl": 2}), loaded("owl", 1.0, 5), call(9.0, "owl", {"owl": 2}), loaded("owl", 2.0, 5)]
    damaged = [DAMAGES[damage](each) for each in lost]
    mixed = [each for pair in zip(whole, damaged, strict=True) for each in pair]
    (tmp_path / "mixed.log").write_text(wrapped(mixed), "utf-8")
    found = read_logs(str(tmp_path / "mixed.log"))
    assert len(found.calls["main", "fox"]) == 4
    assert found.lost[0].startswith("4 unreadable lines of calls or loads")
    (tmp_path / "alone.log").write_text(wrapped(damaged), "utf-8")
    with pytest.raises(CommandError, match=r"alone\.log:\d+: .* has calls or loads in a form"):
        read_logs(str(tmp_path))


def test_a_copy_without_a_logger_of_a_line_that_has_one_is_a_copy(tmp_path: Path) -> None:
    """Fluent Bit with Merge_Log and Keep_Log, and a filter that removed a field."""
    lines = [dumped(log=each, log_processed=json.loads(without_logger(each))) for each in LINES[:5]]
    assert calls_in(tmp_path, "".join(lines).encode()) == calls_in(tmp_path, "".join(LINES[:5]).encode())


@pytest.mark.parametrize("model", ["surveyJudge-v2", "eyJudge-v2", "eyJhbGciOiJub25lIn0"])
@pytest.mark.parametrize("form", LINEWISE)
def test_a_model_whose_name_looks_like_base64_keeps_its_calls(tmp_path: Path, form: str, model: str) -> None:
    lines = [call(float(at), model, {model: 1}, url=f"/v2/models/{model}/infer") for at in range(3)]
    assert calls_in(tmp_path, "".join(map(LINEWISE[form], lines)).encode()) == {("main", model): [0.0, 1.0, 2.0]}


@pytest.mark.parametrize("form", LINEWISE)
def test_numbers_of_calls_that_other_programs_log_are_no_damage(tmp_path: Path, form: str) -> None:
    other = dumped(time="2026-11-03T12:00:00Z", level="info", calls=3)
    both = dumped(counts={"calls": 3}, log=LINES[0])
    text = "".join(map(LINEWISE[form], [other, both, other]))
    assert calls_in(tmp_path, text.encode()) == calls_in(tmp_path, LINES[0].encode())


@pytest.mark.parametrize(
    "wrong",
    [
        *(call(10.0, "fox", {"fox": 1}, seconds=seconds) for seconds in (float("nan"), float("inf"), -1e12)),
        *(call(10.0, "fox", {"fox": count}) for count in (-5, True, 2 * 10**9)),
        loaded("fox", 1.0, -5),
    ],
)
def test_numbers_that_no_process_writes_are_damage(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "of.log").write_text(LINES[0] + wrong, "utf-8")
    found = read_logs(str(tmp_path / "of.log"))
    assert "cut or damaged" in found.source + "".join(found.lost)
    assert sum(map(len, found.calls.values())) == 1


def test_a_line_in_two_files_or_twice_in_one_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(LINES), "utf-8")
    (tmp_path / "b.log").write_text("".join(map(docker, LINES)) + "".join(map(merged, LINES)), "utf-8")
    found = read_logs(str(tmp_path))
    assert {key: len(times) for key, times in found.calls.items()} == {
        ("main", "fox"): 3,
        ("main", "owl"): 9,
        ("other", "cat"): 1,
    }
    assert f"{2 * 7} copies of other lines" in found.source


def test_a_form_that_cannot_be_read_is_shown_without_the_caller(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(LINES), "utf-8")
    (tmp_path / "b.log").write_text("".join(each.replace('"', "'") for each in LINES), "utf-8")
    ran = CliRunner().invoke(app, ["trace", "--out", str(tmp_path / "out.csv"), "--logs", str(tmp_path)])
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
    assert f"{tmp_path}/b.log:1: `{{'" in ran.stderr
    assert CALLER not in ran.stderr


@pytest.mark.parametrize(
    ("words", "text", "why"),
    [
        ("nowhere.log", "", "there is no file nowhere.log"),
        ("'open", "", "not valid file names"),
        ("{folder}", "", "There is no call of a model in 1 file"),
        ("{folder}/a.log", "\x1f\x8bnot zipped", "a.log cannot be read: "),
        ("{folder}/a.log", LINES[0], "The memory of fox is unknown."),
    ],
)
def test_useless_logs_end_with_one_sentence(tmp_path: Path, words: str, text: str, why: str) -> None:
    (tmp_path / "a.log").write_bytes(text.encode("latin-1"))
    names = words.format(folder=tmp_path)
    ran = CliRunner().invoke(app, ["trace", "--out", str(tmp_path / "out.csv"), "--logs", names])
    assert ran.exit_code
    assert why in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("more", [["--hours", "2"], ["--match", 'a="b"'], ["--prometheus", "http://here"]])
def test_options_for_prometheus_are_refused_with_logs(tmp_path: Path, more: list[str]) -> None:
    ran = CliRunner().invoke(app, ["trace", "--out", str(tmp_path / "out.csv"), "--logs", "a.log", *more])
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
    assert "--prometheus" in ran.stderr
