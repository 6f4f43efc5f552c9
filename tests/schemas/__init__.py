"""Validates Kubernetes objects offline with the real kubeconform. A kind without a schema is a violation."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab import tools

from . import builtin, custom

Object = Mapping[str, Any]
SECONDS = 300


def check(objects: Iterable[Object]) -> list[str]:
    """Return a line for everything that is wrong with the objects: which one, where, what."""
    with tempfile.TemporaryDirectory() as folder:
        for number, item in enumerate(objects):
            Path(folder, f"{number:03}.json").write_text(json.dumps(item), "utf-8")
        return kubeconform(Path(folder))[1]


def kubeconform(folder: Path) -> tuple[int, list[str]]:
    """Run `kubeconform -strict` on the files in a directory. Return the number of checked objects, and the violations.

    Raises RuntimeError when kubeconform itself fails.
    """
    # The custom kinds first: their files are found by the whole group, the built-in ones only by its first label.
    places = [
        f"{custom.folder()}/{{{{.Group}}}}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
        f"{builtin.folder()}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
    ]
    command: list[str | Path] = [tools.path("kubeconform"), "-strict", "-output", "json", "-verbose"]
    done = subprocess.run(
        [*command, *(word for place in places for word in ("-schema-location", place)), folder],
        capture_output=True,
        timeout=SECONDS,
        # If a schema ever referred to the web, this must fail, and not be fetched.
        env=os.environ | {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""},
    )
    try:
        checked = [found for found in json.loads(done.stdout)["resources"] if found["status"]]
    except (ValueError, KeyError, TypeError):
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"kubeconform failed with exit code {done.returncode}: {output[:2000]}") from None
    wrong = (found for found in checked if found["status"] != "statusValid")
    return len(checked), sorted(line for found in wrong for line in _lines(found))


def _lines(found: Mapping[str, Any]) -> list[str]:
    # Its list of errors stops at the first level. The message has all of them on one line, with headings between.
    errors = re.findall(r"- at '([^']*)': (.*?)(?=\s+- at '|$)", found["msg"])
    lines = [f"{where or 'object'}: {error}" for where, error in errors if error != "validation failed"]
    return [f"{found['filename']}: {found['kind']} {found['name']}: {line}" for line in lines or [found["msg"]]]
