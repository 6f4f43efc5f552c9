"""The log of a process: one JSON object a line."""

import json
import logging
import os
import subprocess
import sys

from tidegate_service.json_lines import JsonLines


def line(message: str, *words: object, said: dict[str, object] | None = None) -> str:
    record = logging.LogRecord("a.logger", logging.WARNING, "", 0, message, words, None)
    if said is not None:
        record.said = said
    return JsonLines().format(record)


def test_a_line_holds_when_who_and_what_and_what_was_said_beside_it() -> None:
    found = json.loads(line("%s is away", "é\n", said={"model": "a", "seconds": 0.5}))
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "warning", "logger": "a.logger", "message": "é\n is away", "model": "a", "seconds": 0.5}


def test_a_line_is_one_line_whatever_is_said() -> None:
    assert "\n" not in line("a\nb", said={"why": "c\nd", "path": object()})


def test_a_trace_is_in_the_line_of_its_failure() -> None:
    try:
        raise ValueError("not so")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert "ValueError: not so" in json.loads(JsonLines().format(record))["exception"]


def test_libraries_write_such_lines_too_once_it_is_configured() -> None:
    program = (
        "import logging; logging.basicConfig(); from tidegate_service.json_lines import configure; configure('warning')"
        "; logging.getLogger('any.library').warning('heard'); logging.getLogger('any.library').info('not heard')"
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=paths, capture_output=True, text=True, timeout=60, check=True
    )
    assert [json.loads(each)["message"] for each in done.stderr.splitlines()] == ["heard"]
    assert not done.stdout
