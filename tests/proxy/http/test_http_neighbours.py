"""Whatever one caller does over HTTP, the calls of the others go on."""

from pathlib import Path

import pytest

from .running_proxy import RunningProxy, request, until
from .upstream import hang

pytestmark = pytest.mark.anyio
LINGERING = ("04", "05", "06")  # FIN_WAIT1, FIN_WAIT2, TIME_WAIT.


def lingering(peer: int) -> int:
    """Return how many ports are kept by connections to this one that are over."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{peer:04X}") and row[3] in LINGERING for row in rows)


async def test_callers_who_leave_take_no_ports_that_others_need(here: RunningProxy) -> None:
    here.replica.act = hang
    before = lingering(here.replica.port)  # others may have had this port a minute ago
    for number in range(20):
        async with here.caller() as caller:
            await caller.send(request())
            await until(lambda number=number: len(here.replica.asked) > number)
    await until(lambda: not here.proxy.shared.open_calls)
    assert lingering(here.replica.port) <= before
    here.replica.act = None
    assert (await here.ask()).status == 200
