"""Work that many wait for, given up in the moment in which it was to begin."""

import asyncio
import gc
import warnings

import pytest
from tidegate_proxy.shared_tasks import SharedTasks

pytestmark = pytest.mark.anyio


async def test_work_that_is_given_up_before_it_begins_never_does_and_nobody_hears_of_it() -> None:
    begun = []

    async def work() -> None:
        begun.append(True)

    shared: SharedTasks[str, None] = SharedTasks()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        caller = asyncio.ensure_future(shared.join("a", work))
        asyncio.get_running_loop().call_soon(shared.fail, OSError("gone"))
        with pytest.raises(OSError, match="gone"):
            await caller
        del caller
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
    assert not begun
    assert not [str(each.message) for each in said if "never awaited" in str(each.message)]
    assert not shared.under_way
