"""A policy of somebody else's in the service: whatever it does, what is leased stays, and others load."""

import asyncio
from pathlib import Path

import pytest
from tidegate_contracts import lease

from ..policies import hostile
from ..rigs.running_policy import MIB, live
from ..rigs.stand_in import StandIn

pytestmark = pytest.mark.anyio
TOLD = ("names", "endless", "leaves")


@pytest.mark.parametrize("how", ["none", "spoils", *TOLD])
async def test_no_leased_model_goes_the_next_one_is_loaded_and_renewals_are_answered(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.install(tmp_path / "package", monkeypatch, hostile="policy")
    stand_in = StandIn({how: 40 * MIB, "leased": 40 * MIB, "wanted": 40 * MIB})
    use = lease.Use(in_flight=1, idle_seconds=0)
    async with live(tmp_path, stand_in, policy="hostile", lease_seconds=20) as policy:
        for model in (how, "leased"):
            assert (await policy.acquire(model)).outcome == "granted"
        policy.release(how)
        renew = lease.Renew(holder="p", incarnation=policy.service.residency.incarnation, models={"leased": use})
        wanted = asyncio.create_task(policy.acquire("wanted"))
        while not wanted.done():
            assert policy.service.renew(renew).lost == ()
            await asyncio.sleep(0.01)
        assert (await wanted).outcome == "granted"
        assert stand_in.did("unload") == [how]
        assert policy.state("leased") == "resident"
        assert policy.counted("policy_failures_total") == (how in TOLD)
