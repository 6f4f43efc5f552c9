"""Long work is done by turns of those whose work it is."""

import asyncio
from functools import partial

from tidegate_proxy.concurrency import TurnQueue


def test_who_has_much_long_work_does_one_step_while_others_do_theirs() -> None:
    done: list[str] = []

    async def run() -> None:
        queue = TurnQueue()
        for number in range(5):
            queue.add("many", partial(done.append, f"many {number}"))
        queue.add("few", partial(queue.add, "few", partial(done.append, "few")))
        while len(done) < 6:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == ["many 0", "many 1", "few", "many 2", "many 3", "many 4"]


def test_of_short_steps_several_are_done_in_one_turn_of_the_loop() -> None:
    async def run() -> list[list[int]]:
        queue, done, turns = TurnQueue(3), list[int](), list[list[int]]()
        for number in range(5):
            queue.add(number % 2, partial(done.append, number))
        while len(done) < 5:
            await asyncio.sleep(0)
            turns.append(done[:])
        return turns

    assert asyncio.run(run()) == [[0, 1, 2], [0, 1, 2, 3, 4]]


def fail() -> None:
    raise ValueError


def test_a_step_that_fails_keeps_no_other_from_its_turn() -> None:
    async def run() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        queue, done = TurnQueue(), list[str]()
        queue.add("one", fail)
        queue.add("other", partial(done.append, "done"))
        await queue.turn("one")
        return done

    assert asyncio.run(run()) == ["done"]
