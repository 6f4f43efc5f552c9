"""Batches: how large, which sizes are preferred, priorities and queues."""

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelQueuePolicy

from ....findings import Finding, error, warning
from ..entry import Entry

_BATCHING = "dynamic_batching"


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with max_batch_size and dynamic batching."""
    largest = config.max_batch_size
    if largest < 0:
        yield error(f"max_batch_size is {largest}", entry.where("max_batch_size"), do="write 0 for no batches")
    if not config.HasField(_BATCHING):
        return
    batching = config.dynamic_batching
    yield from preferred(entry, f"{_BATCHING}.preferred_batch_size", batching.preferred_batch_size, largest)
    if largest <= 0:
        yield warning(
            "dynamic_batching makes no batches",
            entry.where(_BATCHING),
            f"max_batch_size is {largest}",
            "set max_batch_size, or take dynamic_batching out",
        )
    elif largest == 1:
        yield warning(
            "dynamic_batching makes no batches",
            entry.where(_BATCHING),
            "max_batch_size is 1",
            "raise max_batch_size, or take dynamic_batching out",
        )
    yield from _priorities(entry, batching)
    yield from _order(entry, batching)
    policies = {"default_queue_policy": batching.default_queue_policy} | {
        f'priority_queue_policy["{level}"]': policy for level, policy in batching.priority_queue_policy.items()
    }
    for name, policy in policies.items():
        if policy.timeout_action == ModelQueuePolicy.DELAY and not (
            policy.default_timeout_microseconds or policy.allow_timeout_override
        ):
            yield warning(
                "timeout_action means nothing",
                entry.where(f"{_BATCHING}.{name}.timeout_action"),
                "no request has a timeout",
                "set default_timeout_microseconds",
            )


def preferred(entry: Entry, field: str, sizes: Any, largest: int) -> Iterator[Finding]:
    """Yield which preferred batch sizes cannot be."""
    for number, size in enumerate(sizes):
        where = entry.where(f"{field}[{number}]")
        if size <= 0:
            yield error(f"a preferred batch size is {size}", where, do="write sizes from 1 to max_batch_size")
        elif size > largest:
            yield error(
                f"the preferred batch size {size} is larger than max_batch_size ({max(largest, 0)})",
                where,
                do=f"set max_batch_size to {size} or more, or take the size out",
            )


def _priorities(entry: Entry, batching: Any) -> Iterator[Finding]:
    levels = batching.priority_levels
    if not levels:
        for field in ("default_priority_level", "priority_queue_policy"):
            if getattr(batching, field):
                yield warning(
                    f"{field} means nothing",
                    entry.where(f"{_BATCHING}.{field}"),
                    "priority_levels is not set",
                    "set priority_levels",
                )
        return
    if not 1 <= batching.default_priority_level <= levels:
        yield error(
            f"default_priority_level is {batching.default_priority_level}, and there are levels 1 to {levels}",
            entry.where(f"{_BATCHING}.default_priority_level"), do="write the level of requests that say none",
        )  # fmt: skip
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            yield error(
                f"there is no priority level {level}",
                entry.where(f'{_BATCHING}.priority_queue_policy["{level}"]'),
                f"there are levels 1 to {levels}",
            )


def _order(entry: Entry, batching: Any) -> Iterator[Finding]:
    if not batching.preserve_ordering:
        return
    where = entry.where(f"{_BATCHING}.preserve_ordering")
    if batching.priority_levels > 1:
        yield error("preserve_ordering allows one priority level only", where, do="take one of both out")
    for policy in (batching.default_queue_policy, *batching.priority_queue_policy.values()):
        if policy.default_timeout_microseconds and policy.timeout_action == ModelQueuePolicy.DELAY:
            yield error(
                "preserve_ordering and timeout_action: DELAY exclude each other",
                where,
                "what is delayed is answered after what came later",
                "write timeout_action: REJECT",
            )
