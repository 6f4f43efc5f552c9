import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tritonclient.grpc as grpc
from tidegate.findings import Finding, errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.text import CONFIG as CONFIG_NAME

from lab.local_plane.triton import Triton, triton
from tests.proxy.rigs.pytest_rigs import not_run

from .corpus_entries import (
    BAD,
    CONFIG,
    ELSEWHERE,
    EXPECTED,
    GOOD,
    IGNORED,
    configs,
    described,
    entry,
    found,
    names,
    write,
)

Verdicts = dict[str, str]
Found = dict[str, list[Finding]]
LOAD_SECONDS = 120.0
HANGS_SECONDS = 12.0  # A load takes one to five seconds here. A longer one never ends.
DEADLY = re.compile("initial_state|model_warmup")
"""Triton 2.51 refuses these only after it has created the model's instances, and sometimes crashes then or seconds
later (SIGSEGV). So each of them gets a separate Triton."""
NO_BACKEND = "unable to find backend library"
HERE = {"python"}  # the backends of the test's Triton
OPTIONS = ("--model-control-mode=explicit", "--strict-readiness=false")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write(folder)
    return folder


@pytest.fixture(scope="module")
def findings(repository: Path) -> Found:
    models = configs(repository)
    return {folder.name: found(repository, folder.name, models) for folder in repository.iterdir()}


@pytest.fixture(scope="module")
def verdicts(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Triton's error for each entry, empty if it loads. Triton gets a copy, because it writes compiled programs."""
    folder = tmp_path_factory.mktemp("triton")
    copy = shutil.copytree(repository, folder / "models")
    deadly = [name for name in names(BAD) if DEADLY.search((repository / name / CONFIG_NAME).read_text("utf-8"))]
    harmless = sorted({entry.name for entry in repository.iterdir()} - set(deadly))

    def alone(name: str) -> str:
        with triton(folder / name, copy, options=OPTIONS) as server, grpc.InferenceServerClient(server.grpc) as client:
            return load(client, name)

    with not_run("A REAL TRITON"), ThreadPoolExecutor(3) as loading:
        with (
            triton(folder / "triton", copy, options=OPTIONS) as server,
            grpc.InferenceServerClient(server.grpc) as client,
        ):
            output = dict(zip(harmless, loading.map(lambda name: load(client, name), harmless), strict=True))
            server.process.check()
        return output | dict(zip(deadly, loading.map(alone, deadly), strict=True))


def load(client: grpc.InferenceServerClient, name: str, seconds: float = LOAD_SECONDS) -> str:
    try:
        client.load_model(name, client_timeout=seconds)
    except grpc.InferenceServerException as refusal:
        return str(refusal.message() or refusal)
    return ""


def test_an_entry_has_the_expected_findings(repository: Path) -> None:
    assert described(repository) == EXPECTED.read_text("utf-8")


def test_findings_match_the_kind_of_the_entry(findings: Found) -> None:
    assert [name for name in names(GOOD) if findings[name]] == []
    assert [name for name in names(IGNORED) if not findings[name] or errors(findings[name])] == []
    assert [name for name in names(ELSEWHERE) if errors(findings[name])] == []


@pytest.mark.thorough
def test_triton_and_a_check_agree_about_every_entry(verdicts: Verdicts, findings: Found, repository: Path) -> None:
    """One test for all of them, so that they are loaded once, however many workers there are."""
    for name in [*names(GOOD), *names(IGNORED)]:
        assert (name, verdicts[name]) == (name, "")
    for name in names(BAD):
        assert verdicts[name], name
        assert (NO_BACKEND in verdicts[name]) == (name == "library_that_is_not_there"), (name, verdicts[name])
        assert errors(check_entry(repository / name, backends=HERE) + findings[name]), (name, verdicts[name])
    for name in names(ELSEWHERE):
        assert NO_BACKEND in verdicts[name], (name, verdicts[name])
        (missing,) = errors(check_entry(repository / name, backends=HERE))
        assert "has no backend" in missing.what, name


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Triton]:
    """A separate Triton, which the test breaks. Its repository is `models`."""
    (tmp_path / "models").mkdir()
    with not_run("A REAL TRITON"), triton(tmp_path / "triton", tmp_path / "models", options=OPTIONS) as own:
        yield own


@pytest.mark.thorough
def test_an_entry_on_which_triton_hangs_is_an_error(tmp_path: Path, server: Triton) -> None:
    """A version without its model, and a directory that starts with a number."""
    models = tmp_path / "models"
    folders = [entry(models, CONFIG, {}, "nothing_in_it"), entry(models, CONFIG, name="dated")]
    (folders[0] / "1").mkdir()
    (folders[1] / "2024-11-21").mkdir()
    with grpc.InferenceServerClient(server.grpc) as client, ThreadPoolExecutor(2) as loading:
        output = list(loading.map(lambda folder: load(client, folder.name, HANGS_SECONDS), folders))
        assert not any(client.is_model_ready(folder.name) for folder in folders)
    assert all(output)
    for folder in folders:
        assert errors(check_entry(folder))
    shutil.rmtree(models / "dated" / "2024-11-21")
    assert check_entry(models / "dated") == []


@pytest.mark.thorough
def test_a_directory_whose_number_crashes_triton_is_an_error(tmp_path: Path, server: Triton) -> None:
    """Triton does not check whether the number of a version is too large, and crashes, for all models."""
    folder = entry(tmp_path / "models", CONFIG, name="too_large")
    (folder / ("9" * 20)).mkdir()
    with grpc.InferenceServerClient(server.grpc) as client:
        assert load(client, folder.name)
    server.process.popen.wait(60)
    assert server.process.popen.returncode < 0
    (finding,) = errors(check_entry(folder))
    assert re.search("as a version", finding.what)
