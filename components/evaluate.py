"""Runs a Pulumi program in process, by Pulumi's own SDK and without its engine, into a list of Kubernetes objects."""

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
    """Stands where the engine would: takes every resource that the program declares."""

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

    The program is any function that makes Pulumi resources. It is run once, as `pulumi up` would run it, but the
    engine's place is taken: nothing is read, written or contacted. What the program raises is raised.
    """
    return sorted((item for _, _, item in declared(program)), key=apply_key)


def declared(program: Callable[[], object], *, with_outputs: bool = True) -> list[tuple[str, str, KubernetesObject]]:
    """Return the Kubernetes objects that a program declares, each behind its Pulumi type and name, in no order.

    Without outputs, resources do not say again what they were told, and it need not be of the types of the SDK.
    """
    recorder = _Recorder(with_outputs=with_outputs)
    with _event_loops(), _few_collections(), _no_places():
        set_mocks(recorder, preview=False)
        pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]
    return recorder.objects


@contextmanager
def _event_loops() -> Iterator[None]:
    """Give Pulumi's SDK its event loops: it never closes those that it makes, one in every thread it works in."""
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
    """Collect garbage once, at the end: the SDK makes so much that full collections took a quarter of the time."""
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
    """Spare the SDK to extract the stack for each resource: only the engine is told, and it took up to a third."""
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
    """Return a value as Kubernetes knows it: the SDK hands integers over as floats, and missing fields as null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
