import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_proxy import memory
from tidegate_proxy.guests import AccountedConnection
from tidegate_proxy.memory import Budget, Memory, Reservation, process_memory
from tidegate_proxy.problems import Problem


@dataclass(eq=False)
class Caller:
    held: int = 0


def guest() -> AccountedConnection:
    made = AccountedConnection()
    made.transport = Mock(spec=asyncio.Transport)
    return made


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2000)), max_size=60))
def test_held_memory_never_exceeds_the_limit_and_is_released_completely(changes: list[tuple[int, int]]) -> None:
    budget, callers = Budget(5000), [Caller() for _ in range(3)]
    bookings = [Reservation(budget, callers[number % 3]) for number in range(6)]
    for number, size in changes:
        with suppress(Problem):
            bookings[number].set(size)
        assert budget.held == sum(booking.size for booking in bookings) <= budget.limit
    for booking in bookings:
        booking.end()
        booking.set(99)  # later data no longer counts
    assert budget.held == sum(caller.held for caller in callers) == 0


def test_one_alone_gets_most_of_it_and_leaves_some_for_the_next() -> None:
    budget, greedy, other = Budget(8000), Caller(), Caller()
    while budget.take(greedy, 10):
        pass
    assert greedy.held == budget.most == 6000
    assert budget.take(other, 500)
    assert not budget.take(greedy, 1), "who has much waits until others have given back"


def test_a_caller_with_little_gets_memory_however_many_have_much() -> None:
    budget, greedy = Budget(96 << 20), [Caller() for _ in range(40)]
    for each in greedy:
        while budget.take(each, 1 << 20) or budget.take(each, 10_000):
            pass
    assert budget.take(Caller(), 292 << 10)


def test_the_longest_unauthenticated_connection_is_closed_for_the_next() -> None:
    memory, guests = Memory(1 << 24), [guest() for _ in range(100)]
    for each in guests:
        assert each.arrive(memory)
        assert each.holds(20_000)
    *gone, last = guests
    assert memory.strangers.held <= memory.strangers.limit
    assert list(memory.strangers.connections) == guests[-len(memory.strangers.connections) :]
    assert gone[0].held == 0
    assert not last.holds(memory.strangers.most), "one alone has an eighth"
    caller = Caller()
    last.set_principal(caller)
    assert caller.held == last.base_bytes + 20_000
    for _ in range(100):
        assert guest().arrive(memory)
    assert caller.held == last.base_bytes + 20_000, "who is known stays"


@pytest.mark.parametrize(("text", "expected"), [("536870912\n", 1 << 29), ("max\n", None), (None, None)])
def test_the_memory_is_the_containers_limit_or_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: int | None
) -> None:
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(memory, "_LIMITS", (tmp_path / "none", file))
    found = process_memory()
    assert found == expected if expected else found > 1 << 30
