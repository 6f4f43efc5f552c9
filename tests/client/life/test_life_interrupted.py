"""After SIGKILL at any point the old version is still served, and the next run completes."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tidegate import environments
from tidegate.calling.proxy import ProxyClient
from tidegate.life.context import Context
from tidegate.life.deploy import deploy
from tidegate.life.rules import history
from tidegate.publishing import Repository, steps
from tidegate.registry import Registry
from tidegate.triton.publishing.config import read_published

from tests.client.triton.publishing.killing import expire

from .calling import Caller
from .conftest import World

pytestmark = pytest.mark.thorough

POINTS = (
    "before Repository.staging",
    "before Registry.fetch",
    "after Registry.fetch",
    "before Repository.publish",
    "after Repository.publish",
    "before ProxyClient.ready#2",
    "after ProxyClient.infer_json",
    "before rename to config.pbtxt#2",
    "after rename to config.pbtxt#2",
    "after ProxyClient.config",
    "before Registry.set_alias",
    "after Registry.set_alias",
    "after Registry.tag",
    "before Registry.append_record#2",
    "after Registry.append_record#2",
)
CUT_OVER = POINTS.index("after rename to config.pbtxt#2")
FIRST = 2


CLASSES = {each.__name__: each for each in (Repository, ProxyClient, Registry)}
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


def killed(model: str, version: int, point: str) -> bool:
    """Deploy to dev in a process that dies at a point. Return whether it reached that point. A point is `before` or
    `after`, and a method such as `Registry.fetch` or a step of `publishing.steps`. `#2` means the second time."""
    process = _processes.Process(target=_run, args=(dict(os.environ), model, version, point))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"the process failed at or before {point}"
    return process.exitcode != 0


def _run(variables: Mapping[str, str], model: str, version: int, point: str) -> None:
    os.environ.clear()
    os.environ.update(variables)
    when, _, rest = point.partition(" ")
    name, _, nth = rest.partition("#")
    left = int(nth or 1)

    def come(now: str, what: str) -> None:
        nonlocal left
        if (now, what) == (when, name):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.watch(come)
    kind, _, method = name.partition(".")
    if kind in CLASSES:
        setattr(CLASSES[kind], method, _watched(getattr(CLASSES[kind], method), name, come))
    deploy(Context(environments.load(), Registry(), wait_seconds=60), f"{model}@{version}", "dev")


def _watched(method: Callable[..., Any], name: str, come: Callable[[str, str], None]) -> Callable[..., Any]:
    @wraps(method)
    def watched(*given: Any, **named: Any) -> Any:
        come("before", name)
        result = method(*given, **named)
        come("after", name)
        return result

    return watched


@pytest.fixture(scope="module")
def caller(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Calls while the module's tests run. No call may be refused."""
    world.register("killed", FIRST, tmp_path_factory.mktemp("first"))
    deploy(world.context(), "killed", "dev")
    with Caller(world.client(world.dev), "killed") as calling:
        calling.of_next(1)
        yield calling
    assert calling.failures == []


@pytest.mark.parametrize("point", POINTS)
def test_the_next_run_completes(world: World, caller: Caller, tmp_path: Path, point: str) -> None:
    factor = 10 + POINTS.index(point)
    number = world.register("killed", factor, tmp_path)
    context = world.context()
    serving = context.registry.alias("killed", "dev")
    assert killed("killed", number, point), f"nothing came to {point}"
    expire(world.dev.repository("preload").parent)
    if POINTS.index(point) < CUT_OVER:
        assert factor not in caller.of_next(20)
        assert context.registry.alias("killed", "dev") == serving
    outcome = deploy(context, f"killed@{number}", "dev")
    assert (outcome.version, outcome.previous) == (number, serving)
    assert outcome.changed == (point != POINTS[-1])
    assert context.registry.alias("killed", "dev") == number
    ends = [each.ended for each in history(context, "killed", "dev") if each.version == number]
    assert sorted(ends) == (["done"] if point == POINTS[-1] else ["done", "interrupted"])
    published = read_published((world.dev.repository("preload") / "killed" / "config.pbtxt").read_text())
    assert (published.served, published.aliases) == ((serving, number), {"champion": number})
    assert caller.failures == []
