import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
from rich.console import Group
from tidegate.cli.top import _LEGEND, _shown
from tidegate.status import PlaneOverview
from tidegate_eviction.simulate.trace import read_trace

from components.dashboards import Dashboard
from lab.demo.__main__ import CANNOT
from lab.demo.playing import Scene
from lab.demo.scenes import SCENES
from lab.local_plane.triton import installed
from tests.components.dashboards import query_of
from tests.pictures import drawn, kept, terminal
from tests.processes import marked
from tests.proxy.http.test_http_pages_script import shown_for
from tests.proxy.rigs.pytest_rigs import not_run

ROOT = Path(__file__).resolve().parents[3]
WALK_SECONDS = 400  # The timeout, on a busy machine.
UP_SECONDS = 120.0
GONE_SECONDS = 40.0
SCRAPED_SECONDS = 1.0
WIDTH, ROWS = 120, 12  # of the picture of `tidegate top`, in characters and models
SHOWN_SECONDS = 90  # of the dashboard
PANELS = {"Models in memory", "Memory of the slice", "Load duration", "Evictions"}


@pytest.fixture(scope="module", autouse=True)
def _triton() -> None:
    with not_run("A REAL TRITON"):
        installed()


def nothing_is_left(tmp_path: Path, pid: int) -> None:
    """Wait until the processes of a demo have ended. Their environment has its temporary directory."""
    end = time.monotonic() + GONE_SECONDS
    while (left := marked(str(tmp_path))) and time.monotonic() < end:
        time.sleep(0.2)
    assert not left
    assert not list(Path("/dev/shm").glob(f"tidegate_{pid}_*"))


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run the demo's command with its output in a file and its temporary directories below `tmp_path`."""
    out = tmp_path / "out.txt"
    environment = os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "120"}
    with out.open("wb") as file:
        running = subprocess.Popen(
            [sys.executable, "-m", "lab.demo", *arguments], cwd=ROOT, env=environment, stdout=file,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield running, out
    finally:
        if running.poll() is None:
            running.terminate()
            running.wait(GONE_SECONDS)


def all_holds(tmp_path: Path, seconds: float, scenes: Sequence[Scene[Any]], *arguments: str) -> str:
    """Run the demo's command to its end, check that all claims hold and nothing is left, and return its output."""
    with demo(tmp_path, *arguments) as (running, out):
        status = running.wait(seconds)
    text = out.read_text()
    if status == CANNOT:
        pytest.skip(f"NOT RUN: {text.strip()}")
    assert status == 0, text
    assert f"All {len(scenes)} claims hold" in text, text
    assert all(f"{number}/{len(scenes)}  {scene.title}" in text for number, scene in enumerate(scenes, 1))
    assert not list(tmp_path.glob("tidegate-demo-*"))
    nothing_is_left(tmp_path, running.pid)
    return text


@contextmanager
def up(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Run `up`, and wait until it has printed all its text."""
    with demo(tmp_path, "up") as (running, out):
        end = time.monotonic() + UP_SECONDS
        while "until you press Ctrl-C." not in (text := out.read_text()):
            if running.poll() == CANNOT:
                pytest.skip(f"NOT RUN: {text.strip()}")
            assert running.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.1)
        yield running, text


@pytest.mark.thorough
def test_all_that_the_walk_claims_holds(tmp_path: Path) -> None:
    assert "Memory never exceeded the capacity" in all_holds(tmp_path, WALK_SECONDS, SCENES, "walk")


@dataclass
class Shown:
    folder: Path
    running: "subprocess.Popen[bytes]"
    text: str  # Its first output.

    def output(self) -> str:
        return (self.folder / "out.txt").read_text()


def commands(text: str) -> list[str]:
    """Return the command of each paragraph, without its sentence."""
    paragraphs = text[text.index("In another terminal") : text.index("The demo runs until")].strip().split("\n\n")
    assert all(paragraph.splitlines()[0].endswith(":") for paragraph in paragraphs)
    return [paragraph.partition("\n")[2] for paragraph in paragraphs]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """One demo for all tests, which run in this order. The last one ends it."""
    folder = tmp_path_factory.mktemp("shown")
    with up(folder) as (running, text):
        yield Shown(folder, running, text)


def test_the_printed_commands_work(shown: Shown) -> None:
    export, fox, canary, unicorn, client, metrics, status, top, why, *recorded = commands(shown.text)

    def paste(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", f"{export}\n{command}"], cwd=shown.folder, capture_output=True, text=True,
            timeout=WALK_SECONDS, check=False, env=os.environ | {"MAKEFLAGS": ""},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    if shutil.which("curl"):
        assert "HTTP/1.1 200" in (response := paste(fox))
        assert '"OUTPUT":[13.0,26.0,39.0,52.0]' in response
        assert len(re.findall(r'^data: .*"NOTE":\d', paste(canary), re.MULTILINE)) == 5
        assert "HTTP/1.1 503" in (response := paste(unicorn))
        assert "retry-after: 1" in response.lower()
        assert "horn.npy" in paste(unicorn)
        assert len(re.findall(r"pool_ready\{.*\} 1\.0|state=\"closed\"\} 1\.0", paste(metrics))) == 4
        assert re.search(r"canary .*resident", paste(status))
        assert re.search(r"canary .*resident", paste(top))
        found = [PlaneOverview.model_validate(each) for each in json.loads(paste(f"{top} --json"))]
        picture = terminal("tidegate top", WIDTH, Group(*_shown(found, WIDTH, ROWS)))
        kept("top", picture, "MODEL", "STATE", "canary", "1 failed to load: unicorn", _LEGEND)
        assert "horn.npy" in paste(why)
    assert "[ 0. 31. 62. 93.]" in paste(client)
    assert re.search(r"moose .*resident", paste(status))
    if shutil.which("curl") and recorded:
        calls, alerts, trace = recorded
        paste(calls)
        time.sleep(2 * SCRAPED_SECONDS)
        assert json.loads(paste(alerts))["status"] == "success"
        printed = paste(trace)
        assert re.search(r"zoo\.csv\.gz: \d+ calls of \d+ models \(", printed), printed
        assert len(read_trace(shown.folder / "zoo.csv.gz")) >= 6
        assert re.search(r"lru-idle", printed), printed
        listed = paste('curl -s "$TIDEGATE_URL/models" -H "Authorization: Bearer $TIDEGATE_API_KEY"')
        states = "1 model failed to load", "● quarantined", "● resident", "● cold"
        kept("overview", drawn("overview", shown_for(listed)), *states)
        panels = list(panels_of(re.findall(r"http://[\d.:]+", alerts)[0]))
        assert all(any(results) for _, results in panels)
        kept("dashboard", drawn("dashboard", "Tidegate: Slice", panels), "resident", "p95")


def panels_of(prometheus: str) -> Iterator[tuple[Any, list[Any]]]:
    """Yield panels of the dashboard Slice, with what this Prometheus returns for their queries."""
    for panel in (each for each in Dashboard("slice").panels if each["title"] in PANELS):
        span = {"start": f"{time.time() - SHOWN_SECONDS:.0f}", "end": f"{time.time():.0f}", "step": "1"}
        queries = [{"query": query_of(each["expr"], rate="10s")} | span for each in panel["targets"]]
        url = f"{prometheus}/api/v1/query_range"
        yield panel, [urllib3.request("GET", url, fields=each).json()["data"]["result"] for each in queries]


def test_ctrl_c_ends_it_and_logs_stay(shown: Shown) -> None:
    assert len(marked(str(shown.folder))) > 5
    os.killpg(shown.running.pid, signal.SIGINT)  # As a terminal does.
    assert shown.running.wait(GONE_SECONDS) == 0
    nothing_is_left(shown.folder, shown.running.pid)
    (folder,) = shown.folder.glob("tidegate-demo-*")
    assert f"The logs are in {folder}" in shown.output()
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "policy" / "policy.log" in left
    assert {path.suffix for path in left} == {".log"}


@pytest.mark.thorough
@pytest.mark.skipif(
    shutil.which("setpriv") is None,
    reason="NOT RUN: THERE IS NO SETPRIV HERE (of util-linux), so the clean-up after a kill was not tested.",
)
def test_nothing_is_left_running_of_one_that_was_killed(tmp_path: Path) -> None:
    with up(tmp_path) as (running, _):
        assert len(marked(str(tmp_path))) > 5
        running.kill()
        running.wait()
        nothing_is_left(tmp_path, running.pid)
