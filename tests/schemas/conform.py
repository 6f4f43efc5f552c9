"""The real kubeconform, strict and offline, with the schemas of both sets."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab import tools
from tests.schemas import builtin, custom
from tests.schemas.kinds import SCHEMALESS, Report

SECONDS = 300


def kubeconform(files: Path | Iterable[Path]) -> Report:
    """Run `kubeconform -strict` on a folder or on files; a kind must have a schema, or stand in SCHEMALESS.

    Raises ValueError when there is nothing to check, and RuntimeError when kubeconform itself fails.
    """
    wanted = [files] if isinstance(files, Path) else list(files)
    if not any(_yaml_in(file) for file in wanted):
        raise ValueError(f"nothing to check in {', '.join(map(str, wanted)) or 'an empty list of files'}")
    command: list[str | Path] = [tools.path("kubeconform"), "-strict", "-output", "json", "-verbose"]
    # The custom kinds first: their files are found by the whole group, the built-in ones only by its first label.
    command += [
        "-schema-location",
        f"{custom.folder()}/{{{{.Group}}}}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
    ]
    command += ["-schema-location", f"{builtin.folder()}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"]
    command += ["-skip", ",".join("/".join(known) for known in SCHEMALESS)]
    nowhere = "http://127.0.0.1:9"  # if a schema ever referred to the web again, this must fail, not be fetched
    done = subprocess.run(
        [*command, *wanted],
        capture_output=True,
        timeout=SECONDS,
        env=os.environ | {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": ""},
    )
    try:
        resources = json.loads(done.stdout)["resources"]
    except (ValueError, KeyError, TypeError):
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"kubeconform failed with exit code {done.returncode}: {output[:2000]}") from None
    checked = [found for found in resources if found["status"] not in ("statusSkipped", "")]
    violations = [line for found in checked if found["status"] != "statusValid" for line in _lines(found)]
    skipped = [found for found in resources if found["status"] == "statusSkipped"]
    return Report(len(checked), tuple(violations), tuple(f"{_title(found)}: {_reason(found)}" for found in skipped))


def _yaml_in(path: Path) -> bool:
    return path.is_file() or any(file.suffix in (".yaml", ".yml", ".json") for file in path.rglob("*"))


def _title(found: Mapping[str, Any]) -> str:
    return f"{found['filename']}: {found['kind'] or 'object without a kind'} {found['name'] or '(no name)'}"


def _lines(found: Mapping[str, Any]) -> list[str]:
    # Its list of errors stops at the first level; the message has all of them, on one line, with mere headings between.
    errors = re.findall(r"- at '([^']*)': (.*?)(?=\s+- at '|$)", found["msg"])
    lines = [f"{where or 'object'}: {error}" for where, error in errors if error != "validation failed"]
    return [f"{_title(found)}: {line}" for line in lines or [found["msg"]]]


def _reason(found: Mapping[str, Any]) -> str:
    return f"no schema: {SCHEMALESS.get((found['version'], found['kind']), 'skipped by kubeconform')}"
