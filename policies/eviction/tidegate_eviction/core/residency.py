"""The core's interface: one method for every input."""

import math
from collections.abc import Iterable, Mapping

from tidegate_contracts import lease
from tidegate_contracts.lease import State

from . import leases, reconciler, transitions
from .messages import Answered, ModelSpec, Overrun, PoolSettings, ServerInventory, Step, Ticket
from .planner import plan
from .pool import NO_ROOM, Model, Pool, Waiter
from .victims import VictimSelector

_ROUNDS = 4
"""A busy response frees a place in the queue, which may free another. The rest waits for the next step."""


class Residency:
    """The resident models of one replica, and the leases on them. Time never goes back: an earlier `now` counts as the
    latest one. Nothing is loaded or unloaded before the first `recover`."""

    def __init__(self, settings: PoolSettings, incarnation: str, now: float = 0.0) -> None:
        self._pool = Pool(settings, now)
        self._stepping = _Stepping(self._pool)
        self._start = incarnation
        self._losses = 0
        self._pool.configure(settings, {})

    def configure(self, settings: PoolSettings, specs: Mapping[str, ModelSpec], now: float) -> Step:
        """Use these settings. Also call it before `recover`."""
        pool = self._pool
        with self._stepping.at(now) as step:
            for model in pool.models.values():
                if model.name not in specs:
                    leases.answer_all(pool, model, leases.unknown(model.name))
            reconciler.configure(pool, settings, specs)
            if pool.free < 0:
                pool.report(Overrun(-pool.free, "the settings changed"))
        return step

    def recover(self, found: ServerInventory, now: float) -> Step:
        """Start or continue with the server's models. Every resident model counts as leased for one full period."""
        pool = self._pool
        with self._stepping.at(now) as step:
            reconciler.recover(pool, found)
            for model in list(pool.by_state[State.RESIDENT].values()):
                leases.grant_all(pool, model, self.incarnation)
            if pool.free < 0:
                pool.report(Overrun(-pool.free, "the server has loaded more than the capacity"))
        return step

    def server_lost(self, now: float) -> Step:
        """The server has ended: its models are cold, leases are void, and loads are forgotten. Callers keep waiting."""
        pool = self._pool
        with self._stepping.at(now) as step:
            self._losses += 1
            reconciler.lost(pool)
            for model in list(pool.by_state[State.QUARANTINED].values()):
                leases.answer_all(pool, model, leases.quarantined(model))
        return step

    def leave(self, now: float) -> Step:
        """SIGTERM: grant no new leases, load and unload nothing, refuse waiting callers as busy, and renew leases."""
        with self._stepping.at(now) as step:
            self._pool.leaving = self._pool.dirty = True
        return step

    def acquire(
        self,
        model: str,
        holder: str,
        wait_seconds: float | None,
        now: float,
        room_seconds: float | None = None,
        *,
        spare: bool = False,
    ) -> tuple[Step, lease.Granted | lease.Refusal | Ticket]:
        """Return a lease, a refusal, or a ticket, whose `Answered` follows in a later step. `room_seconds` is the part
        of the wait in which memory must become free. `spare` requests unused memory only."""
        pool = self._pool
        with self._stepping.at(now) as step:
            found = pool.models.get(model)
            answer = self._at_once(found, model, holder)
            if answer is None and found is not None and spare:
                answer = leases.unless_spare(pool, found)
            if answer is None and found is not None:
                ticket = leases.wait(pool, found, holder, wait_seconds, room_seconds)
        if answer is None:
            for event in step.events:
                if isinstance(event, Answered) and event.ticket is ticket:
                    answer = event.answer
                    step.events.remove(event)
                    break
        return step, ticket if answer is None else answer

    def cancel(self, ticket: Ticket, now: float) -> Step:
        """Forget a ticket whose caller has left. A load in progress continues."""
        with self._stepping.at(now) as step:
            model = self._pool.models.get(ticket.model)
            if model is not None and model.waiters.pop(ticket.number, None) is not None:
                self._pool.dirty = True
        return step

    def renew(
        self, holder: str, incarnation: str, uses: Mapping[str, lease.Use], now: float
    ) -> tuple[Step, lease.Renewed]:
        """Renew a holder's leases, and note its uses. INTERNALS.md lists which leases are lost. An expired lease is
        granted again if the model is still resident."""
        pool = self._pool
        with self._stepping.at(now) as step:
            lost = leases.renew(pool, holder, uses, void=incarnation != self.incarnation)
        accepts = pool.accepts
        resident, seconds = tuple(pool.by_state[State.RESIDENT]) if accepts else (), pool.settings.lease_seconds
        return step, lease.Renewed(
            incarnation=self.incarnation, lease_seconds=seconds, lost=lost, resident=resident, accepts=accepts
        )

    def release(
        self, holder: str, incarnation: str, models: Iterable[str], now: float, serials: Mapping[str, int] | None = None
    ) -> Step:
        """Release leases, except those granted again since the grants of these serials."""
        pool = self._pool
        with self._stepping.at(now) as step:
            if incarnation == self.incarnation:
                leases.release(pool, holder, models, serials or {})
        return step

    def load_ended(
        self,
        number: int,
        now: float,
        error: str | None = None,
        measured_bytes: int | None = None,
        versions: tuple[int, ...] = (),
        copied_seconds: float = 0.0,
    ) -> Step:
        """Report the end of a `Load`: its error, or the versions and the growth of memory, used only if nothing else
        ran. The next load saves `copied_seconds`. Unknown numbers are ignored."""
        pool = self._pool
        with self._stepping.at(now) as step:
            model = pool.loads.pop(number, None)
            if model is None:
                return step
            if error is not None:
                transitions.failed(pool, model, error)
                leases.answer_all(pool, model, leases.failed(pool, model))
                return step
            transitions.loaded(pool, model, measured_bytes, versions, copied_seconds)
            if (over := pool.over()) > 0:
                pool.report(Overrun(over, f"{model.name} is larger than expected"))
            if model.spec is None:
                reconciler.drain(pool, model, "removed")
            elif model.identity != model.wanted_identity:
                reconciler.drain(pool, model, "changed")
            elif over <= 0 or reconciler.fit(pool, model, over):
                leases.grant_all(pool, model, self.incarnation)
        return step

    def unload_ended(self, number: int, now: float, error: str | None = None) -> Step:
        """Report that all models of an `Unload` are unloaded, or the error."""
        pool = self._pool
        with self._stepping.at(now) as step:
            model = pool.unloads.pop(number, None)
            if model is not None and error is None:
                transitions.unloaded(pool, model)
            elif model is not None:
                transitions.not_unloaded(pool, model, error or "")
        return step

    def vanished(self, models: Iterable[str], now: float) -> Step:
        """Report models that the server dropped without an order. Models that are not resident, or whose parts are
        loading or unloading, are ignored."""
        pool = self._pool
        with self._stepping.at(now) as step:
            for name in models:
                model = pool.by_state[State.RESIDENT].get(name)
                if model is not None and not pool.leaving and transitions.entangled(pool, model) is None:
                    transitions.vanished(pool, model)
        return step

    @property
    def resident(self) -> frozenset[str]:
        """The models on which a lease would be granted immediately."""
        return frozenset(self._pool.by_state[State.RESIDENT])

    def memory(self, used_bytes: int, now: float) -> Step:
        """Report the bytes in use: every second while `reading_wanted`, else about every ten, and after (un)loads."""
        pool = self._pool
        with self._stepping.at(now) as step:
            if pool.settings.measures and pool.ready:
                pool.memory.read(used_bytes, pool.now)
                transitions.read(pool)
        return step

    @property
    def reading_wanted(self) -> bool:
        """Whether freed memory waits for a reading."""
        return bool(self._pool.ledger.freeing) and self._pool.settings.measures

    def tick(self, now: float) -> Step:
        """Process deadlines. Call it at `next_deadline`, or at any other time."""
        with self._stepping.at(now) as step:
            pass
        return step

    def next_deadline(self) -> float | None:
        """Return when to call `tick` next if nothing else happens, possibly too early. None: never."""
        at = self._pool.next_deadline()
        return None if at == math.inf else at

    def listing(self, now: float, pod: str = "") -> lease.Listing:
        """Return every model by name, with their memory, for a pod of this name."""
        pool, ledger = self._pool, self._pool.ledger
        now = max(now, pool.now)
        loading = sum(
            ledger.size(model.operation.pieces) + ledger.margins.get(model.name, 0) for model in pool.loads.values()
        )
        models = tuple(self._listed(pool.models[name], now) for name in sorted(pool.models))
        return lease.Listing(
            incarnation=self.incarnation, policy=pool.settings.policy.name, capacity_bytes=pool.settings.capacity_bytes,
            resident_bytes=ledger.total - loading - ledger.pending, loading_bytes=loading, freeing_bytes=ledger.pending,
            leaked_bytes=pool.memory.leaked, free_bytes=max(0, pool.free), models=models, pod=pod,
        )  # fmt: skip

    @property
    def incarnation(self) -> str:
        """Identifies one start of the policy with one start of its server."""
        return f"{self._start}.{self._losses}" if self._losses else self._start

    @property
    def load_seconds(self) -> dict[str, float]:
        """The seconds of each model's last load, here or before the start, if known."""
        measured = ((name, self._pool.load_measured(model)) for name, model in self._pool.models.items())
        return {name: seconds for name, seconds in measured if seconds is not None}

    @property
    def leases(self) -> int:
        """The number of live leases, including those of unknown holders after a start."""
        return sum(len(model.leases) for model in self._pool.holding())

    def state(self, model: str) -> State:
        found = self._pool.models.get(model)
        return State.UNKNOWN if found is None else found.state

    @property
    def in_flight(self) -> int:
        """The number of requests in flight at the last renewals. A pod that ends waits for them."""
        return sum(held.in_flight for model in self._pool.holding() for held in model.leases.values())

    def _listed(self, model: Model, now: float) -> lease.Listed:
        pool, resident = self._pool, model.state is State.RESIDENT
        leases = tuple(
            lease.LeaseOf(holder=held.holder, seconds_left=max(0.0, held.ends - now), in_flight=held.in_flight)
            for held in model.leases.values()
        )
        first, last = model.no_room
        starves = (
            model.state in (State.COLD, State.QUEUED)
            and now - last < lease.BUSY_SECONDS
            and VictimSelector(pool).due(pool.needed(model) - pool.free, wanted=model.pieces) > now
        )
        trouble = model.failures.why if model.failures.count else model.spec.problem if model.spec else ""
        why = model.why or trouble or (NO_ROOM if starves else "")
        return lease.Listed(
            model=model.name, state=model.state, state_seconds=now - model.since, why=why,
            no_room_seconds=now - first if starves else None,
            failed_seconds=now - model.failures.last if model.failures.count else None, failed_why=model.failures.why,
            footprint_bytes=pool.ledger.size(model.held) if model.held else pool.whole(model),
            footprint_from=pool.footprints.source(model.name),
            idle_seconds=max(0.0, now - model.candidate.last_use) if resident and model.used_at > -math.inf else None,
            evictable_in=max(0.0, model.evictable_at - now) if resident and model.evictable_at < math.inf else None,
            versions=model.versions if resident or model.state is State.DRAINING else (),
            pinned=model.pinned, leases=leases, waiters=len(model.waiters),
            busy=sum(at > now - lease.BUSY_SECONDS for at in model.busy_at),
        )  # fmt: skip

    def _at_once(self, found: Model | None, name: str, holder: str) -> lease.Granted | lease.Refusal | None:
        pool = self._pool
        if found is None or found.spec is None or not found.spec.callable:
            return leases.unknown(name)
        resident = found.state is State.RESIDENT
        if not pool.accepts and not (resident and holder in found.leases and not pool.recycling):
            return leases.busy(pool, found)
        if resident:
            return leases.grant(pool, found, holder, 0.0, self.incarnation)
        if found.failures.quarantined:
            return leases.quarantined(found)
        if found.state in (State.COLD, State.QUEUED):
            return leases.never(pool, found)
        return None


class _Stepping:
    """Takes steps: first deadlines, then the input, then planning until nothing changes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._late: list[Waiter] = []

    def at(self, now: float) -> "_Stepping":
        """Set the time of the next step."""
        if now > self._pool.now:
            self._pool.now = now
        return self

    def __enter__(self) -> Step:
        pool = self._pool
        step = pool.step = Step()
        self._late = []
        for whom in pool.due():
            if isinstance(whom, Waiter):
                self._late.append(whom)
            else:
                leases.due(pool, whom)
        return step

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        pool, late = self._pool, self._late
        for _round in range(_ROUNDS):
            planned = pool.dirty or min(pool.plan_at, pool.expected_at) <= pool.now
            if planned:
                plan(pool)
            late.extend(whom for whom in pool.due() if isinstance(whom, Waiter))
            while late:
                leases.out_of_time(pool, late.pop(0))
            if not planned:
                break
            leases.hopeless(pool)
