import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tidegate_contracts import metrics
from tidegate_proxy.access.api_keys import new_key
from tidegate_proxy.grpc.response import CANCELLED
from tidegate_proxy.telemetry.records import CLIENT_LEFT
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from lab.local_plane.process import python_variables
from lab.local_plane.proxy import Proxy, proxy, write_tables
from lab.local_plane.triton import Triton

from ..attacks.over_grpc import CANCELS_AT_ONCE
from ..grpc.harness import until
from ..rigs.tables import access_table, routing_table, write_key

ATTACKS = (
    "calls that are cancelled within their message at a server in use by others, with a key",
    "streams that are cancelled at a server in use by others, with a key",
    "calls that are cancelled at a server in use by others, with a key",
    "requests to a server in use by others whose caller disconnects, with a key",
)
ATTACKERS = ("attacker-0", "attacker-1", "attacker-2", "attacker-3")
CANCELS = {str(CANCELLED), str(CLIENT_LEFT)}
NAME = metrics.PROXY["requests"].name
BYSTANDERS, SECONDS, SAMPLE, BAR = 4, 3600, 200, 10_000


@contextmanager
def attacking(place: Proxy, keys: list[str], attack: str) -> Iterator[None]:
    variables = os.environ | python_variables("proxy", "contracts", "service", "policies/eviction", "client")
    command = [sys.executable, "-m", "tests.proxy.attacks.attacking", str(place.http_port), str(place.grpc_port)]
    processes = [
        subprocess.Popen([*command, key], env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for key in keys
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{attack}\t1\t{SECONDS}\n")
            process.stdin.flush()
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cancelled(place: Proxy) -> float:
    with urllib.request.urlopen(f"http://{place.admin}/metrics") as answer:
        families = [*text_string_to_metric_families(answer.read().decode())]
    samples = [sample for family in families if family.name == NAME for sample in family.samples]
    return sum(sample.value for sample in samples if sample.labels.get("status") in CANCELS)


def calls_beside(place: Proxy, key: str, number: int) -> list[str]:
    """Make `number` calls over separate connections. Return the errors of those that failed."""
    request = pb.ModelInferRequest(model_name="echo", raw_input_contents=[bytes(4)])
    request.inputs.add(name="INPUT", datatype="FP32", shape=[1])
    failures = list[str]()

    def call() -> None:
        with grpc.insecure_channel(place.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            infer = GRPCInferenceServiceStub(channel).ModelInfer
            for _ in range(number // BYSTANDERS):
                try:
                    infer(request, metadata=(("x-api-key", key),), timeout=60)
                except grpc.RpcError as error:
                    failures.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(BYSTANDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    ("attackers", "calls"),
    [(2, SAMPLE), *(pytest.param(number, BAR, marks=pytest.mark.thorough) for number in (1, 2, 4))],
)
def test_cancelling_callers_fail_no_other_calls(
    tmp_path: Path, real_triton: Triton, attackers: int, calls: int, attack: str
) -> None:
    table, access = routing_table(real_triton.http_port, real_triton.grpc_port, ["echo", "slow"]), access_table()
    keys = {name: new_key() for name in ("bystander", *ATTACKERS[:attackers])}
    rule = access.rules[0].model_copy(update={"principals": tuple(keys)})
    write_tables(tmp_path, table, access.model_copy(update={"rules": (rule,)}))
    for name, key in keys.items():
        write_key(tmp_path, key, name)
    with proxy(tmp_path, settings={"api_keys": "true"}) as place:
        bystander, *others = keys.values()
        with attacking(place, others, attack):
            until(lambda: cancelled(place) >= CANCELS_AT_ONCE, 300)
            failures = calls_beside(place, bystander, calls)
        assert not failures, failures[0]
        real_triton.process.check()
