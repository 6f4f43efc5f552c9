"""Writes the folder of the chart, all of it: what stands there and is not generated is removed."""

from collections.abc import Mapping
from pathlib import Path

from . import CHART, templates
from .generate import templates_of
from .metadata import ROOT, chart_yaml
from .readme import readme
from .scenarios import default_values, scenarios, values_yaml
from .smoke_test import SmokeTest
from .values_schema import schema_text

_TEXT = Path(__file__).parent / "text"


def contents() -> dict[str, str]:
    """Return what the chart's files must say, by their paths below its folder."""
    objects = templates()
    found = {
        ".helmignore": (_TEXT / ".helmignore").read_text("utf-8"),
        "Chart.yaml": chart_yaml(),
        "LICENSE": (ROOT / "LICENSE").read_text("utf-8"),
        "README.md": readme(default_values()),
        "values.schema.json": schema_text(),
        "values.yaml": values_yaml(),
        **{f"ci/{name}": text for name, text in scenarios().items()},
        **{f"templates/{name}": text for name, text in (objects | _notes(objects)).items()},
        **{f"templates/tests/{name}": text for name, text in _tests().items()},
    }
    return dict(sorted(found.items()))


def _tests() -> dict[str, str]:
    """Return the templates of `helm test`."""
    return templates_of(lambda args: SmokeTest("helm-test", args))


def _notes(objects: Mapping[str, str]) -> dict[str, str]:
    """Return the notes, which read the objects that the other templates make."""
    files = " ".join(f'"{name}"' for name in sorted(objects) if name.endswith(".yaml"))
    parts = (_TEXT / "_notes.tpl").read_text("utf-8").replace("@TEMPLATES@", f"list {files}")
    return {"NOTES.txt": (_TEXT / "NOTES.txt").read_text("utf-8"), "_notes.tpl": parts}


def stale(wanted: Mapping[str, str], chart: Path = CHART) -> list[str]:
    """Return the files of a chart's folder that say something else, are not there, or are there too much."""
    there = {path.relative_to(chart).as_posix() for path in chart.rglob("*") if not path.is_dir()}
    changed = [path for path, text in wanted.items() if path not in there or _text(chart / path) != text]
    return sorted({*changed, *(there - wanted.keys())})


def write(wanted: Mapping[str, str], chart: Path = CHART) -> list[str]:
    """Write the files of a chart's folder, remove those that are no longer generated; return which changed."""
    changed = stale(wanted, chart)
    for path in changed:
        target = chart / path
        if path not in wanted:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(wanted[path].encode())
    for folder in sorted((path for path in chart.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    return changed


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None
