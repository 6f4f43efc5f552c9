"""Long work is done by turns of those whose work it is."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tidegate_proxy.concurrency import RoundRobin, room


def test_who_has_much_long_work_does_one_step_while_others_do_theirs() -> None:
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


def test_two_loops_read_into_rooms_of_their_own() -> None:
    """What one reads would be overwritten by the other, which reads while Python does something else."""
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(room).result()
    assert theirs is not room()
    assert room() is room()
