"""Run a Pulumi program in process, without Pulumi's engine, and return its Kubernetes objects."""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks, set_mocks

from .apply_order import apply_key

KubernetesObject = dict[str, Any]


class _Recorder(Mocks):
    """Replaces the engine, and records every resource that the program declares."""

    def __init__(self, *, with_outputs: bool) -> None:
        self.objects: list[tuple[str, str, KubernetesObject]] = []
        self.with_outputs = with_outputs

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.typ.startswith("kubernetes:"):
            self.objects.append((args.typ, args.name, _plain(args.inputs)))
        return args.name, args.inputs if self.with_outputs else {}

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        return {}, None


def evaluate(program: Callable[[], object]) -> list[KubernetesObject]:
    """Return the Kubernetes objects that a program declares, in the order in which they can be applied.

    The program is any function that declares Pulumi resources. It runs once, without an engine, so nothing is read,
    written or contacted. Its exceptions pass through.
    """
    return sorted((item for _, _, item in declared(program)), key=apply_key)


def declared(program: Callable[[], object], *, with_outputs: bool = True) -> list[tuple[str, str, KubernetesObject]]:
    """Return the Pulumi type, the name and the object of each Kubernetes resource that a program declares, unordered.
    Without outputs, resources do not return their inputs as outputs, and the inputs need not have the SDK's types."""
    recorder = _Recorder(with_outputs=with_outputs)
    with _event_loops(), _few_collections(), _no_places():
        set_mocks(recorder, preview=False)
        pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]
    return recorder.objects


@contextmanager
def _event_loops() -> Iterator[None]:
    """Give Pulumi's SDK event loops, because it never closes those that it makes, one in each thread."""
    loops = [asyncio.new_event_loop()]

    def begin_thread() -> None:
        loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loops[-1])

    try:
        with ThreadPoolExecutor(1, initializer=begin_thread) as worker:
            loops[0].set_default_executor(worker)
            asyncio.set_event_loop(loops[0])
            yield
    finally:
        asyncio.set_event_loop(None)
        for loop in loops:
            loop.close()


@contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage once, at the end: full collections took a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(1)
        if enabled:
            gc.enable()


@contextmanager
def _no_places() -> Iterator[None]:
    """Shorten the stack trace that the SDK takes for each resource. Only the engine uses it, and it took a third."""
    before = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = 1
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before


def _plain(value: Any) -> Any:
    """Return a value in the form of Kubernetes. The SDK has floats for integers, and null for missing fields."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
