import os
import re
import subprocess
from pathlib import Path

import pytest
from tidegate_contracts import log_fields
from tidegate_contracts.metrics import ENGINE, EVICTION, LABELS, PROXY

from lab.local_plane.prometheus import installed
from tests.components.alerts import series_read

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = [*PROXY.values(), *EVICTION.values(), *ENGINE.values()]
SERIES = {
    f"{each.series_name}{end}": each
    for each in FAMILIES
    for end in (("", "_bucket", "_sum", "_count") if each.kind == "histogram" else ("",))
}
NAME = re.compile(r"\btidegate_(?:proxy|eviction|engine)_[a-z_]+[a-z]\b")
PACKAGES = {"tidegate_proxy", "tidegate_eviction"}
READERS = ("components", "capacity", "stacks", "rollout", "lab", "docs", "README.md", "proxy/README.md",
           "policies/eviction/README.md")  # fmt: skip


def files() -> list[Path]:
    places = [ROOT / each for each in READERS]
    found = [each for place in places for each in (place.rglob("*") if place.is_dir() else [place])]
    return [each for each in found if each.suffix in (".py", ".md", ".yaml") and "expected" not in each.parts]


def test_every_named_metric_exists() -> None:
    named = {(name, str(file.relative_to(ROOT))) for file in files() for name in NAME.findall(file.read_text("utf-8"))}
    assert len({name for name, _ in named}) > 50
    strange = {(name, file) for name, file in named if name not in SERIES and name not in PACKAGES}
    assert not {(name, file) for name, file in strange if not any(each.startswith(name) for each in SERIES)}


@pytest.mark.parametrize("prefix", ["tidegate_proxy_", "tidegate_eviction_", "tidegate_engine_"])
def test_alerts_use_only_labels_of_the_metric(prefix: str) -> None:
    found = series_read(prefix)
    assert found
    for name, labels in found:
        assert {*labels} <= {*SERIES[name].labels, "le", "pod"}, name


def test_each_label_is_explained() -> None:
    assert {*LABELS} == {label for family in FAMILIES for label in family.labels}


def test_prometheus_accepts_names_and_texts() -> None:
    text = "".join(
        f"# HELP {each.series_name} {each.text}\n# TYPE {each.series_name} {each.kind}\n"
        + "".join(f"{each.series_name}{end} 1\n" for end in (
            ('_bucket{le="+Inf"}', "_sum", "_count") if each.kind == "histogram" else ("",)))
        for each in FAMILIES
    )  # fmt: skip
    package = installed()
    command, environment = [str(package.path("promtool")), "check", "metrics"], os.environ | package.environment()
    done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_field_of_the_logs_has_one_meaning() -> None:
    assert not log_fields.ALWAYS.keys() & log_fields.FIELDS.keys()
    fields = re.compile(r'"data": \{([^}]*)\}')
    for folder in ("proxy", "policies", "service"):
        for file in (ROOT / folder).rglob("*.py"):
            for words in fields.findall(file.read_text("utf-8")):
                assert {*re.findall(r'"(\w+)":', words)} <= log_fields.FIELDS.keys(), file
