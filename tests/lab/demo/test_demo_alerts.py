import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from lab.demo import zoo
from lab.demo.alerts import SOONER, rules
from lab.demo.stage import CALLER, platform
from lab.demo.visitor import Visitor
from lab.local_plane.environment import LocalEnvironment
from lab.local_plane.process import Process
from lab.local_plane.prometheus import Prometheus, prometheus
from lab.local_plane.proxy import write_tables
from rollout.tools.running import repeating
from tests.proxy.rigs.pytest_rigs import not_run

pytestmark = pytest.mark.thorough
LATE_SECONDS = 15.0  # The allowed delay: the proxy's health checks, three scrapes, a busy machine.
ENDS_SECONDS = 90.0
SETTLES_SECONDS = 10.0
QUIET_SECONDS = 12.0


@dataclass
class Watched:
    plane: LocalEnvironment
    visitor: Visitor
    prometheus: Prometheus

    def alerts(self) -> list[Any]:
        return [*self.prometheus.ask("alerts")["alerts"]]

    def firing(self) -> dict[str, str]:
        firing = (each for each in self.alerts() if each["state"] == "firing")
        return {each["labels"]["alertname"]: each["annotations"]["summary"] for each in firing}

    def wait(self, done: Callable[[dict[str, str]], bool], seconds: float) -> dict[str, str]:
        """Wait until the firing alerts are as expected, or the time is up. Return the last ones."""
        end = time.monotonic() + seconds
        while not done(found := self.firing()) and time.monotonic() < end:
            time.sleep(0.25)
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    root = tmp_path_factory.mktemp("alerts")
    with not_run("THE DEMO WITH A PROMETHEUS"), ExitStack() as stack:
        plane = stack.enter_context(platform(root / "plane"))
        seen = stack.enter_context(prometheus(root / "prometheus", plane.pods, rules=rules()))
        visitor = Visitor([each.http for each in plane.proxies], plane.keys[CALLER])
        for model in ("sparrow", "ant", "bee"):
            assert visitor.want(model).is_right(model)
        yield Watched(plane, visitor, seen)


@contextmanager
def stopped(process: Process) -> Iterator[None]:
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGCONT)


@contextmanager
def without_policy(plane: LocalEnvironment) -> Iterator[None]:
    plane.kill("policy")
    try:
        yield
    finally:
        plane.start_policy()


@contextmanager
def edited(plane: LocalEnvironment, name: str, text: str | None = None) -> Iterator[None]:
    file = next(plane.proxies[0].root.rglob(f"{name}.json"))
    file.write_text(f"{file.read_text()}\n" if text is None else text)
    try:
        yield
    finally:
        write_tables(plane.proxies[0].root, plane.routing_table(), plane.plan.access())


@contextmanager
def called(watched: Watched, model: str) -> Iterator[None]:
    watched.visitor.want(model)
    try:
        yield
    finally:
        with without_policy(watched.plane):  # Its counters of the model end with it.
            for file in (watched.plane.root / "policy/state").iterdir():
                file.unlink()


@contextmanager
def starved(visitor: Visitor) -> Iterator[None]:
    """Two models in use leave no memory for a third one with many callers."""
    for model in ("whale", "lynx"):
        assert visitor.want(model).is_right(model)
    called = ("whale", "lynx", *["moose"] * 25)
    calls = [partial(visitor.call, model, proxy) for model in called for proxy in range(len(visitor.proxies))]
    with repeating(*calls, pause=0.5):
        yield


SITUATIONS: dict[str, tuple[Callable[[Watched], Any], dict[str, str], int]] = {
    "the on-demand Triton hangs": (
        lambda it: stopped(it.plane.on_demand.process),
        {"TidegatePoolGone": "Pool on-demand/main has no usable replica"},
        60,
    ),
    "the eviction policy is killed": (
        lambda it: without_policy(it.plane),
        {"TidegatePolicySilent": "of on-demand/main does not answer proxies"},
        120,
    ),
    "a proxy refuses its table": (
        lambda it: edited(it.plane, "access", "nonsense"),
        {"TidegateTableRefused": "proxy-1 refuses its access file"},
        300,
    ),
    "a table is edited by hand": (
        lambda it: edited(it.plane, "routing"),
        {"TidegateDrift": "proxy-1 uses another routing table"},
        300,
    ),
    "a model cannot be loaded, twice": (
        lambda it: called(it, zoo.BROKEN.name),
        {"TidegateModelQuarantined": "Pod on-demand-main-0 has not retried model unicorn"},
        60,
    ),
    "a model finds no room": (
        lambda it: starved(it.visitor),
        {"TidegateModelStarved": "on-demand/moose refused", "TidegateCallsBusy": "most of them for model moose"},
        600,
    ),
}


def test_nothing_fires_while_all_is_well(watched: Watched) -> None:
    end = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < end:
        assert watched.firing() == {}
        time.sleep(0.5)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_right_alert_and_no_other_fires_within_its_time_and_ends(watched: Watched, situation: str) -> None:
    begin, expected, lasting = SITUATIONS[situation]
    with begin(watched):
        found = watched.wait(lambda firing: {*expected} <= {*firing}, lasting / SOONER + LATE_SECONDS)
        assert {*found} == {*expected}
        for name, text in expected.items():
            assert text in found[name]
        end = time.monotonic() + SETTLES_SECONDS
        while (pending := {each["labels"]["alertname"] for each in watched.alerts()}) != {*expected}:
            assert time.monotonic() < end, f"{pending} are about to fire"
            time.sleep(0.25)
        assert {*watched.firing()} == {*expected}
    assert watched.wait(lambda firing: not firing, ENDS_SECONDS) == {}
