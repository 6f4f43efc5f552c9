"""Publishers in processes of their own, which die, really, by SIGKILL, where a test wants it."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from functools import wraps
from multiprocessing.synchronize import Barrier
from typing import Any

from tidegate import environments
from tidegate.calling.proxy import ProxyClient
from tidegate.errors import TidegateError
from tidegate.life.context import Context
from tidegate.life.deploy import deploy
from tidegate.registry import Registry
from tidegate.triton.publishing import steps
from tidegate.triton.publishing.folder import FolderRepository

CLASSES = {each.__name__: each for each in (FolderRepository, ProxyClient, Registry)}
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


def killed(model: str, version: int, point: str) -> bool:
    """Deploy to dev in a process that dies at a point; tell whether it came there.

    A point is `before` or `after`, and a method such as `Registry.fetch` or a step of `publishing.steps`; with `#2` at
    its end, the second time that it comes there.
    """
    process = _processes.Process(target=_run, args=(dict(os.environ), model, version, point))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"the process failed at or before {point}"
    return process.exitcode != 0


def racing(model: str, versions: list[int]) -> list[str]:
    """Deploy versions to dev, each in a process of its own, all at once; return how each ended."""
    barrier, said = _processes.Barrier(len(versions)), _processes.Queue()
    each = [
        _processes.Process(target=_race, args=(dict(os.environ), model, version, barrier, said)) for version in versions
    ]
    for process in each:
        process.start()
    ended = dict(said.get(timeout=120) for _ in each)
    for process in each:
        process.join()
    return [ended[version] for version in versions]


def _context(variables: Mapping[str, str]) -> Context:
    os.environ.clear()
    os.environ.update(variables)
    return Context(environments.load(), Registry(), wait_seconds=60)


def _run(variables: Mapping[str, str], model: str, version: int, point: str) -> None:
    context = _context(variables)
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
    deploy(context, f"{model}@{version}", "dev")


def _watched(method: Callable[..., Any], name: str, come: Callable[[str, str], None]) -> Callable[..., Any]:
    @wraps(method)
    def watched(*given: Any, **named: Any) -> Any:
        come("before", name)
        result = method(*given, **named)
        come("after", name)
        return result

    return watched


def _race(variables: Mapping[str, str], model: str, version: int, barrier: Barrier, said: Any) -> None:
    context = _context(variables)
    barrier.wait(60)
    try:
        deploy(context, f"{model}@{version}", "dev")
        said.put((version, "done"))
    except TidegateError as error:
        said.put((version, f"{type(error).__name__}: {error}"))
