"""The simulator once more, with every request told of by itself, and renewals as the messages that proxies send."""

from functools import partial

import pytest
from tidegate_contracts import lease
from tidegate_eviction.simulate import engine
from tidegate_eviction.simulate.engine import Simulation
from tidegate_eviction.simulate.held import HeldLease
from tidegate_eviction.simulate.replica import SimulatedReplica
from tidegate_eviction.simulate.setting import FOR_EVER, SimulationSetting
from tidegate_eviction.simulate.trace import Outcome, Trace


class OneByOneReplica(SimulatedReplica):
    """Follows each lease from request to request: when it ends, when it is looked at, what is said of it."""

    _may_be_quiet = property(lambda _: False, lambda *_: None)

    def work(self, which: int, holder: str) -> None:
        model, now = self._models[which], self._clock.now
        held = self._leases[holder].setdefault(model.name, HeldLease(which, model.warm_seconds, self, FOR_EVER))
        held.lost = False
        held.requests += 1
        held.until = max(held.until, now + model.warm_seconds)
        self._clock.at(held.until, partial(self._ended, holder, held, held.until), now)

    def _ended(self, holder: str, held: HeldLease, until: float) -> None:
        if held.until == until and self._leases[holder].get(self._models[held.which].name) is held:
            looks = self._looked_at(holder, held, self._clock.now)
            self._clock.at(looks, partial(self._looked, holder, held, until), self._clock.now)

    def _looked(self, holder: str, held: HeldLease, until: float) -> None:
        mine = self._leases[holder]
        if held.until == until and mine.get(self._models[held.which].name) is held:
            now = self._clock.now
            idle = [each for each in mine.values() if each.lost or self._looked_at(holder, each, now) <= now]
            self._release(holder, [each for each in idle if each.until <= now])

    def _renew(self) -> None:
        self._clock.later(self._lease_seconds / lease.RENEWALS_PER_LEASE, self._renew)
        now = self._clock.now
        for holder, leases in self._leases.items():
            uses = {
                name: lease.Use(
                    in_flight=int(held.until > now), idle_seconds=max(0.0, now - held.until), requests=held.requests
                )
                for name, held in leases.items()
            }
            step, renewed = self._core.renew(holder, self._core.incarnation, uses, now)
            self._resident[holder] = frozenset(renewed.resident)
            self._do(step)
            for name, held in leases.items():
                held.requests = 0
                if name in renewed.lost:
                    held.lost = True
                    self._ended(holder, held, held.until)


class OneByOne(Simulation):
    """Has each request begin at the first of its replicas where its proxy holds a lease, or else ask around."""

    def run(self) -> Outcome:
        for position, (seconds, which) in enumerate(self._trace.requests()):
            self._until(seconds)
            self.now, holder = seconds, self.holders[position % len(self.holders)]
            for replica in self._ranks[which]:
                if replica.held(which, holder) is not None:
                    self._outcome.requests += 1
                    self._outcome.started(position, seconds, 0.0, hit=True)
                    replica.work(which, holder)
                    break
            else:
                self._ask(position, which)
        self._until(FOR_EVER)
        return self._outcome


def one_by_one(trace: Trace, setting: SimulationSetting) -> Outcome:
    """Simulate a setting whose leases are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SimulatedReplica", OneByOneReplica)
        return OneByOne(trace, setting).run()
