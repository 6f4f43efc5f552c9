"""A pool in trouble on a real data plane: `tidegate advise` says what is to be done, and then it is well.

Each situation is what `tidegate advise` may meet: memory, computing or the volume is short, one model is greedy, all is
well. What is advised is pasted into the definition as it is printed, and the data plane is started anew from that.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from capacity.prometheus import Prometheus as Asked
from cli.app import app
from lab.demo.visitor import Visitor
from lab.local_plane.prometheus import installed as prometheus_installed
from lab.local_plane.prometheus import prometheus
from lab.local_plane.slow_volume import slow_volume
from lab.local_plane.triton import installed as triton_installed
from stacks.validate import read_definition
from tests.proxy.rigs.pytest_rigs import not_run

from .situations import POOL, definition
from .staged import Worker, staged

MB = 10**6
CALLERS = 60  # At one time.
SHORT = re.compile(r"^  (memory|compute|loads) +short ", re.MULTILINE)
ADVICE = re.compile(r"^  advice   ([^:]+):", re.MULTILINE)
PRINTED = re.compile(r"^    (environments:\n(?:    .*\n)+)", re.MULTILINE)
Calls = Callable[[Visitor], float]
"""Makes calls; returns the Unix time from when on they are looked at."""


def pool(capacity: str, wait: int = 20) -> str:
    """Return an on-demand pool whose models may soon go for others."""
    loading = f"{{mode: on-demand, capacity: {capacity}, idleSeconds: 2, leaseSeconds: 2, waitSeconds: {wait}}}"
    return f"{{name: {POOL}, loading: {loading}, resources: {{memory: 2Gi}}, sharedMemory: 256Mi}}"


def in_turn(*names: str, turns: int) -> Calls:
    """Return calls to models one after the other, over and over."""

    def call(visitor: Visitor) -> float:
        begun = time.time()
        for name in names * turns:
            assert visitor.want(name).status == 200
        return begun

    return call


def crowd(name: str, *, at_first: int, a_second: float, number: int, looked_at: int) -> Calls:
    """Return calls to a model, some at the same time and then so many a second; the last ones are looked at."""

    def call(visitor: Visitor) -> float:
        assert visitor.want(name).status == 200
        begun, futures = time.time(), []
        with ThreadPoolExecutor(CALLERS) as callers:
            for each in range(number):
                time.sleep(max(0.0, begun + max(0, each - at_first) / a_second - time.time()))
                futures.append(callers.submit(visitor.call, name, each % len(visitor.proxies)))
        assert {each.result().status for each in futures} == {200}
        return begun + (number - at_first - looked_at) / a_second

    return call


def in_bursts(*names: str) -> Calls:
    """Return calls of several people to one model, who have all been answered before they go on to the next one."""

    def call(visitor: Visitor) -> float:
        begun = time.time()
        with ThreadPoolExecutor(CALLERS) as callers:
            for name in names:
                futures = []
                for _ in range(14):
                    futures.append(callers.submit(visitor.call, name))
                    time.sleep(0.5)
                assert {each.result().status for each in futures} == {200}
                time.sleep(3.5)  # until it may go
        return begun

    return call


@dataclass(frozen=True)
class Situation:
    """A pool, what is called, and what is to be said of it."""

    pool: str
    workers: Sequence[Worker]
    calls: Calls
    short: frozenset[str]
    advice: str
    afterwards: Sequence[Calls] = ()  # Calls once it is mended, if others; of the last ones is told.
    speed: int = 0  # Of its volume, in MB/s; 0: as fast as this machine's disk.
    target: str = "99%"


SITUATIONS: Mapping[str, Situation] = {
    "memory short": Situation(
        pool("130Mi"),
        [Worker(name, 60) for name in ("ant", "bee", "cat")],
        in_turn("ant", "bee", "cat", turns=2),
        frozenset({"memory"}),
        "a larger slice",
    ),
    "compute short": Situation(
        pool("200Mi"),
        [Worker("ant", 60, seconds=0.05)],
        crowd("ant", at_first=30, a_second=24, number=450, looked_at=120),
        frozenset({"compute"}),
        "more replicas",
    ),
    "slow volume": Situation(
        pool("95Mi", wait=50),
        [Worker("ant", 45, file=20), Worker("bee", 65, file=40), Worker("cat", 85, file=60)],
        in_bursts("ant", "bee", "cat", "ant"),
        frozenset({"memory", "loads"}),
        "files near the GPU",
        afterwards=(in_turn("ant", "bee", "cat", turns=1), in_bursts("ant", "bee", "cat")),
        speed=5,
        target="25%",
    ),
    "one greedy model": Situation(
        pool("200Mi"),
        [*(Worker(name, 60) for name in ("ant", "bee", "cat")), Worker("whale", 130)],
        in_turn("ant", "bee", "cat", "whale", turns=3),
        frozenset({"memory"}),
        "another pool for whale",
    ),
    "all well": Situation(
        pool("200Mi"),
        [Worker(name, 60) for name in ("ant", "bee", "cat")],
        in_turn("ant", "bee", "cat", turns=30),
        frozenset(),
        "nothing",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _parts() -> None:
    with not_run("A REAL TRITON"):
        triton_installed()
    with not_run("A REAL PROMETHEUS"):
        prometheus_installed()


def advised(root: Path, file: Path, situation: Situation, calls: Sequence[Calls]) -> str:
    """Return what is said of a pool after its calls; the data plane of the definition as it is lives no longer."""
    found = read_definition(file)
    with ExitStack() as running:
        volume = None
        root.mkdir()
        if situation.speed:
            with not_run("A VOLUME THAT IS SLOW"):
                volume = running.enter_context(slow_volume(root, 10**9, situation.speed * MB))
        plane = running.enter_context(staged(root, found, situation.workers, volume))
        memory = running.enter_context(prometheus(root / "prometheus", plane.pods, plane.namespace))
        asked = Asked(memory.url)

        def scraped(since: float) -> None:
            query = f"up == 1 and timestamp(up) > {since}"
            memory.process.wait_until(lambda: len(asked.ask(query, time.time())) == len(plane.pods))

        scraped(0)
        begun = [each(plane.visitor) for each in calls][-1]
        scraped(time.time() + 0.5)
        time.sleep(1)  # what is asked for has steps of a second
        hours = (time.time() + 1 - begun) / 3600
        options = ["--target", situation.target, "--prometheus", memory.url, "--hours", f"{hours:.6f}"]
        told = CliRunner().invoke(app, ["advise", str(file), *options])
    print(told.output)
    assert told.exit_code == 0
    return told.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "memory short" else pytest.mark.thorough) for name in SITUATIONS]
)
def test_the_right_thing_is_advised_and_after_it_the_pressure_is_gone(tmp_path: Path, name: str) -> None:
    situation = SITUATIONS[name]
    footprints = {each.name: f"footprint: {each.mebibytes}Mi" for each in situation.workers}
    definition(tmp_path, situation.pool, footprints)
    file = tmp_path / "inference.yaml"
    told = advised(tmp_path / "before", file, situation, [situation.calls])
    short = {*SHORT.findall(told)}
    assert situation.short <= short
    assert ADVICE.findall(told) == [situation.advice]
    if not situation.short:
        assert not short
        return
    (printed,) = PRINTED.findall(told)
    text = file.read_text("utf-8")
    file.write_text(text.replace("environments: [{name: demo}]\n", printed.replace("\n    ", "\n")), "utf-8")
    told = advised(tmp_path / "after", file, situation, situation.afterwards or [situation.calls])
    assert not situation.short & {*SHORT.findall(told)}
    assert {*ADVICE.findall(told)} == {"nothing"}
