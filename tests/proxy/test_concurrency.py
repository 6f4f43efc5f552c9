import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tidegate_proxy.concurrency import ConcurrencyLimiter, InFlightCount, RoundRobin, room


class Waiting:
    def __init__(self) -> None:
        self.is_admitted = asyncio.Event()

    def admitted(self) -> None:
        self.is_admitted.set()


def test_a_slot_that_a_replica_can_still_use_is_withheld_from_its_caller_only_and_briefly() -> None:
    async def run() -> None:
        limiter, model, caller, other = ConcurrencyLimiter(16, 0.05), InFlightCount(), InFlightCount(), InFlightCount()
        while limiter.try_acquire(model, caller):
            limiter.cut(model, caller)
        assert (limiter.in_flight, model.calls, caller.calls, caller.cut) == (0, 0, 0, 14), "seven eighths"
        assert [limiter.try_acquire(model, other) for _ in range(13)] == [True] * 12 + [False], "as if there were none"
        for _ in range(12):
            limiter.release(model, other)
        waiting = Waiting()
        assert limiter.enqueue(waiting, model, caller)
        async with asyncio.timeout(3):
            await waiting.is_admitted.wait()
        assert (limiter.in_flight, limiter.waiting) == (1, 0)

    asyncio.run(run())


def test_an_owner_of_much_long_work_does_one_step_while_others_do_theirs() -> None:
    done: list[str] = []

    async def run() -> None:
        queue = RoundRobin()
        for number in range(5):
            queue.add("many", partial(done.append, f"many {number}"))
        queue.add("few", partial(queue.add, "few", partial(done.append, "few")))
        while len(done) < 6:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == ["many 0", "many 1", "few", "many 2", "many 3", "many 4"]


def fail() -> None:
    raise ValueError


def test_a_step_that_fails_keeps_no_other_from_its_turn() -> None:
    async def run() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        queue, done = RoundRobin(), list[str]()
        queue.add("one", fail)
        queue.add("other", partial(done.append, "done"))
        await queue.turn("one")
        return done

    assert asyncio.run(run()) == ["done"]


def test_two_loops_read_into_separate_buffers() -> None:
    """Otherwise one could overwrite the other's data, because it reads while Python does something else."""
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(room).result()
    assert theirs is not room()
    assert room() is room()
