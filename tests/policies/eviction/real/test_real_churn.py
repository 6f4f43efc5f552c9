"""Many models in little memory, called through two proxies, also while the policy and Triton are killed.
`CHURN=<seconds>` prolongs it. `CHURN_SEED=<number>` repeats the kills of a run, which prints its seed."""

import http.client
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import routing
from tidegate_contracts.eviction import Tuning
from tidegate_contracts.triton import RESTRICTED_KEY
from tidegate_proxy.problems import lost

from lab.local_plane.environment import ON_DEMAND, POLICY, POOL, LocalEnvironment, Plan, local_environment
from lab.local_plane.triton import Triton
from tests.proxy.rigs.pytest_rigs import not_run

from ..rigs import zoo
from ..rigs.caller import Holder

SECONDS = float(os.environ.get("CHURN") or 30)
PATIENCE = 300.0  # Additional seconds on a slow machine.
SEED = int(os.environ.get("CHURN_SEED") or random.randrange(1 << 32))
MIB = 1 << 20
MODELS, ROOM, CLIENTS, PROXIES = 24, 6, 8, 2
HELD = 12  # MiB that a model holds. Its process uses about as much again.
EACH = 32  # Declared MiB of each model.
NOISE = 60  # MiB that Triton, its threads and its front ends grow by under load, in addition to the models.
CALLER = "churn"
NAMES = [f"m{number:02}" for number in range(MODELS)]


@dataclass
class Seen:
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    models: set[str] = field(default_factory=set)
    highest_bytes: int = 0
    most: int = 0  # Models in Triton's index at one time, in any state except unloaded.
    overrun: list[str] = field(default_factory=list)


def plan() -> Plan:
    size = EACH * MIB
    models = tuple(routing.Model(name=name, server=ON_DEMAND, pool=POOL, footprint_bytes=size) for name in NAMES)
    tuning = Tuning(tolerance_bytes=16 * MIB, freeing_seconds=5, retry_most_seconds=5)
    return Plan(
        name="churn", models=models, callers=(CALLER,), preloads=False, proxies=PROXIES, capacity_bytes=ROOM * size,
        lease_seconds=3, wait_seconds=10, tuning=tuning,
    )  # fmt: skip


@contextmanager
def plane(root: Path) -> Iterator[LocalEnvironment]:
    made = LocalEnvironment(root, plan())
    for name in NAMES:
        zoo.model(made.repository(ON_DEMAND), name, HELD)
    with ExitStack() as stack:
        with not_run("A REAL TRITON"):
            stack.enter_context(local_environment(made))
        yield made


def call(address: str, key: str, model: str, number: int) -> tuple[int, dict[str, Any], float]:
    tensor = {"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [number]}
    asking = http.client.HTTPConnection(address, timeout=60)
    try:
        asking.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}), {"x-api-key": key})
        answer = asking.getresponse()
        return answer.status, json.loads(answer.read()), float(answer.getheader("retry-after") or 0)
    finally:
        asking.close()


def client(made: LocalEnvironment, seen: Seen, number: int, over: Callable[[], bool], allowed: set[int]) -> None:
    """Call models until the end, some often and others rarely, alternating between the proxies."""
    chance = random.Random(number)
    turn = 0
    while not over():
        turn += 1
        name = NAMES[min(int(chance.paretovariate(0.8)) - 1, MODELS - 1)] if turn % 3 else chance.choice(NAMES)
        for _ in range(chance.randint(1, 5)):
            status, body, after = call(made.proxies[turn % PROXIES].http, made.keys[CALLER], name, turn)
            seen.statuses[status] += 1
            if status == 200:
                seen.models.add(name)
                outputs = {each["name"]: each["data"] for each in body["outputs"]}
                if (outputs["OUTPUT"], outputs["NAME"]) != ([turn], [name]):
                    seen.wrong.append(f"{name}: {outputs} instead of {turn}")
            elif status not in allowed or (allowed == {503} and body.get("detail") == lost(name).detail):
                seen.wrong.append(f"{name}: {status} {body}")
            if status != 200:
                time.sleep(min(max(after, 0.1), 1.0))
                break


def held_bytes(server: Triton) -> int:
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            group = int(stat.read_text().rpartition(")")[2].split()[2])
            resident, shared = map(int, stat.with_name("statm").read_text().split()[1:3])
        except OSError:
            continue  # It has just ended.
        pages += resident - shared if group == server.process.pid else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(made: LocalEnvironment, seen: Seen, base: int, over: Callable[[], bool]) -> None:
    headers = {RESTRICTED_KEY: (made.root / "policy" / "control" / "secret").read_text("utf-8").strip()}
    while not over():
        time.sleep(0.1)
        try:
            listing = Holder(made.policy).listing()
            taken = held_bytes(made.on_demand) - base
            there = in_memory(made.on_demand.http, headers)
        except (OSError, http.client.HTTPException, ValueError):  # It was just killed.
            continue
        seen.highest_bytes = max(seen.highest_bytes, taken)
        # A load may measure a larger model, because Triton itself grew meanwhile, and leaks are found afterwards. Then
        # others are evicted until all fits. One model too many is more than that.
        charged = listing.resident_bytes + listing.loading_bytes + listing.freeing_bytes
        if charged > listing.capacity_bytes + EACH * MIB // 2:
            seen.overrun.append(f"{charged} of {listing.capacity_bytes} bytes are charged")
        seen.most = max(seen.most, len(there))
        if len(there) > ROOM:
            seen.overrun.append(f"in Triton's index at one time: {there}")


def in_memory(address: str, headers: dict[str, str]) -> dict[str, str]:
    asking = http.client.HTTPConnection(address, timeout=5)
    try:
        asking.request("POST", "/v2/repository/index", "{}", headers)
        found = json.loads(asking.getresponse().read())
    finally:
        asking.close()
    return {each["name"]: each["state"] for each in found if each.get("state") in ("READY", "LOADING", "UNLOADING")}


def churn(
    made: LocalEnvironment, seconds: float, allowed: set[int], meanwhile: Callable[[float], None] = time.sleep
) -> Seen:
    """Call for a while, on a slow machine until there are enough calls. Return the outcomes."""
    seen = Seen()
    base = held_bytes(made.on_demand)
    end = time.monotonic() + seconds

    def over() -> bool:
        enough = len(seen.models) > 2 * ROOM or time.monotonic() > end + PATIENCE
        return time.monotonic() > end and enough

    threads = [threading.Thread(target=client, args=(made, seen, each, over, allowed)) for each in range(CLIENTS)]
    threads.append(threading.Thread(target=measure, args=(made, seen, base, over)))
    for thread in threads:
        thread.start()
    meanwhile(seconds)
    for thread in threads:
        thread.join()
    return seen


def test_every_response_is_right_or_busy_and_memory_is_never_exceeded(tmp_path: Path) -> None:
    with plane(tmp_path) as made:
        seen = churn(made, SECONDS / 4, {503})
        log = (tmp_path / "policy" / "policy.log").read_text("utf-8")
    assert seen.wrong == []
    assert seen.overrun == []
    # The number of busy calls depends on how fast this machine loads.
    assert seen.statuses[200] > 3 * ROOM, seen.statuses
    assert len(seen.models) > 1.5 * ROOM, "there was no churn"
    assert log.count('"event":"evicted"') > ROOM
    assert seen.highest_bytes < (ROOM * EACH + NOISE) * MIB
    assert ROOM - 2 < seen.most <= ROOM
    assert '"level":"critical"' not in log
    assert "has a defect" not in log


@pytest.mark.thorough
def test_kills_at_any_time_cost_some_calls_and_no_wrong_answer(tmp_path: Path) -> None:
    print(f"CHURN_SEED={SEED}")
    chance = random.Random(SEED)

    def kills(seconds: float) -> None:
        end = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < end - 12:
            time.sleep(chance.uniform(3, 6))
            turn += 1
            if turn % 3:
                made.kill(POLICY)
                time.sleep(chance.uniform(0, 1.5))
                made.start_policy()
            else:
                made.kill(ON_DEMAND)
                made.start_on_demand()

    with plane(tmp_path) as made:
        # Calls in progress at the killed Triton get no response, and are not retried: 502.
        seen = churn(made, SECONDS, {502, 503, 504}, kills)
        assert seen.wrong == []
        assert seen.overrun == []
        # The number of busy calls depends on how fast this machine restarts the processes. That calls continue does
        # not.
        assert seen.statuses[200] > 3 * ROOM, seen.statuses
        assert len(seen.models) > ROOM
        # After the faults.
        for name in NAMES[:3]:
            end = time.monotonic() + PATIENCE
            while (answer := call(made.proxies[0].http, made.keys[CALLER], name, 7))[0] != 200:
                assert time.monotonic() < end, answer
                time.sleep(min(answer[2] or 0.2, 1.0))
