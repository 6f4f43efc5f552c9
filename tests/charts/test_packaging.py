"""The package of the chart is one file, the same bytes each time, and every part of Helm takes it."""

import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from charts import CHART
from charts.packaging import changes, files, package, packaged, version
from lab import tools

from .rendering import helm as run_helm

SECONDS = 60


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return package(CHART, tmp_path)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A real OCI registry on this machine; its address."""
    log = tmp_path / "registry.log"
    with log.open("wb") as stream:
        server = subprocess.Popen(
            [tools.path("crane"), "registry", "serve", "--address", "127.0.0.1:0"], stdout=stream, stderr=stream
        )
    try:
        end = time.monotonic() + SECONDS
        while not (port := re.search(r"serving on port (\d+)", log.read_text("utf-8"))):
            assert server.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < end, "the registry does not start"
            time.sleep(0.05)
        yield f"127.0.0.1:{port[1]}"
    finally:
        server.kill()
        server.wait(SECONDS)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helm's folders are the test's own."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def helm(*arguments: str | Path) -> str:
    """Run Helm; it must succeed."""
    done = run_helm(arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: stream.read() for member in tar if (stream := tar.extractfile(member)) is not None}


def test_packaging_twice_gives_the_same_bytes_whenever_and_wherever_the_files_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "checked out" / "again"
    shutil.copytree(CHART, elsewhere, copy_function=shutil.copyfile)
    for number, path in enumerate(sorted(elsewhere.rglob("*"))):
        os.utime(path, (10**9 + number, 10**9 + number))
        path.chmod(0o700)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    first, second = package(CHART, tmp_path / "a"), package(elsewhere, tmp_path / "b")
    assert first.name == second.name == f"tidegate-{version()}.tgz"
    assert first.read_bytes() == second.read_bytes()


def test_the_package_holds_what_helm_itself_would_pack(archive: Path, tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path / "helm")
    ours, theirs = members(archive), members(tmp_path / "helm" / archive.name)
    assert ours.keys() == theirs.keys()
    assert {"tidegate/Chart.yaml", "tidegate/templates/NOTES.txt", "tidegate/LICENSE"} <= ours.keys()
    # Helm writes Chart.yaml anew; it must say the same.
    assert yaml.safe_load(ours.pop("tidegate/Chart.yaml")) == yaml.safe_load(theirs.pop("tidegate/Chart.yaml"))
    assert ours == theirs


def test_scenarios_and_what_editors_leave_stay_out_of_the_package(tmp_path: Path) -> None:
    chart = tmp_path / "tidegate"
    shutil.copytree(CHART, chart)
    (chart / "ci" / "more-values.yaml").write_text("{}")
    (chart / "templates" / "proxy.yaml.orig").write_text("")
    (chart / "templates" / ".proxy.yaml.swp").write_text("")
    assert packaged(chart) == packaged(CHART)
    helm("package", chart, "--destination", tmp_path / "helm")
    assert members(package(chart, tmp_path)).keys() == members(next((tmp_path / "helm").iterdir())).keys()
    assert not [path for path in files(CHART) if path.parts[0] == "ci"]


def test_a_registry_gives_back_the_bytes_that_were_pushed_and_helm_renders_them(
    archive: Path, registry: str, tmp_path: Path
) -> None:
    (tmp_path / "pulled").mkdir()
    address = f"oci://{registry}/charts"
    helm("push", archive, address, "--plain-http")
    source = (f"{address}/tidegate", "--version", version(), "--plain-http")
    helm("pull", *source, "--destination", tmp_path / "pulled")
    assert (tmp_path / "pulled" / archive.name).read_bytes() == archive.read_bytes()
    straight = helm("template", "x", *source)
    # Helm says first what it pulled.
    assert straight.partition("---\n")[2] == helm("template", "x", CHART).partition("---\n")[2]
    shown = yaml.safe_load(helm("show", "chart", archive))
    assert (shown["name"], shown["version"]) == ("tidegate", version())


def test_a_killed_run_leaves_no_half_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = package(CHART, tmp_path).read_bytes()

    def killed(*_: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        package(CHART, tmp_path)
    assert (tmp_path / f"tidegate-{version()}.tgz").read_bytes() == before


CHANGELOG = """# Changelog

## Unreleased

### Added

- Something
  new.

### Security

- A hole.

### Development

- A new target of make.

## [0.2.0] - 2026-01-01

### Fixed

- A fault.
"""


def test_artifact_hub_is_told_the_changes_of_the_version_that_is_packaged() -> None:
    assert changes(CHANGELOG, "0.3.0") == (False, [("added", "Something new."), ("security", "A hole.")])
    assert changes(CHANGELOG, "0.2.0") == (True, [("fixed", "A fault.")])
