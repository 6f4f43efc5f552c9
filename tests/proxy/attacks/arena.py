"""A proxy in a separate process, attackers and a bystander: measures memory and the effects on other callers."""

import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from prometheus_client.parser import text_string_to_metric_families
from tidegate_contracts import metrics, routing
from tidegate_proxy.access.api_keys import new_key
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from lab.local_cluster.certificates import Authority
from lab.local_plane.process import HOST, Process, python_variables, running
from lab.local_plane.proxy import Proxy, proxy, write_tables

from ..rigs.tables import MANY, access_table, write_key
from .attacking import ATTACKS
from .behind import MODELS
from .engines import BROKEN, LYING
from .over_grpc import ISSUER
from .over_http import COLD, WARM
from .over_openai import WORDS

MEGABYTE = 1 << 20
LIMIT = 512 * MEGABYTE  # The container's memory limit, the definition's default.
SECONDS = 5.0  # Duration of an attack.
ATTACKERS = 40  # Attackers with keys.
PAUSE_SECONDS = 0.02  # Between two calls of the bystander.
GONE_SECONDS = 30.0  # Time for the attackers' work to end everywhere after they have disconnected.
COUNTS = "in_flight", "waiting", "replica_in_flight", "lease_waiting", "held_bytes"
UNDER_WAY = {metrics.PROXY[name].name for name in COUNTS}  # All of these are 0 without callers.


@dataclass(frozen=True)
class Row:
    """The result of an attack.

    It has the proxy's memory in megabytes (before, peak, after), the bystander's calls, and what the attackers did.
    `left` is their work that is still in progress after they have disconnected.
    """

    attack: str
    attackers: int
    seconds: float
    before: float
    peak: float
    after: float
    calls: int
    worst: float  # Seconds.
    failures: tuple[str, ...]
    did: Mapping[str, int]
    left: Mapping[str, float]
    error: str  # An attacker's error, except a closed connection.

    @property
    def is_one(self) -> bool:
        """Whether the attackers together did at least as much as one attacker must do."""
        did, least = self.did.get, ATTACKS[self.attack].least.items()
        enough = all(did(what, 0) * SECONDS >= most * self.seconds for what, most in least)
        return not self.error and enough and did("connections", 0) >= self.attackers // 4

    @property
    def fills_and_fails_nothing(self) -> bool:
        return self.is_one and self.peak < LIMIT / 2 / MEGABYTE and not (self.failures or self.left)

    @property
    def is_harmless(self) -> bool:
        return self.fills_and_fails_nothing and self.worst < 1

    def __str__(self) -> str:
        start = f"{self.attack:88} {self.attackers:3} {self.before:5.0f} {self.peak:5.0f} {self.after:5.0f} "
        did = ", ".join(f"{number:,} {what}" for what, number in self.did.items())
        idle = "" if self.is_one else "IDLE "
        left = (f"STILL {number:,} {what}" for what, number in self.left.items())
        wrong = " ".join([*self.failures[:1], *left]) + self.error
        return f"{start}{self.calls:5} {self.worst * 1000:5.0f} {len(self.failures):5}  {idle}{did} {wrong}".rstrip()


HEAD = f"{'attack':88} {'at':>3} {'MB':>5} {'peak':>5} {'after':>5} {'calls':>5} {'ms':>5} {'fail':>5}  what was done"


class Bystander:
    """Calls over HTTP, over new HTTP connections, and over gRPC, in turn."""

    def __init__(self, place: Proxy, key: str, authority: bytes | None) -> None:
        self._place = place
        self._key = key
        self._tls = None
        self._channel = grpc.insecure_channel(place.grpc)
        if authority is not None:
            self._tls = ssl.create_default_context(cadata=authority.decode())
            self._channel = grpc.secure_channel(place.grpc, grpc.ssl_channel_credentials(authority))
        self._kept = self._connect()
        self._over = threading.Event()
        self.calls = 0
        self.worst = 0.0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            for call in (self._http, self._http_new, self._grpc):
                began = time.monotonic()
                try:
                    call()
                except Exception as error:
                    self.failures.append(f"{call.__name__}: {error!r}"[:300])
                    self._kept.close()
                self.calls += 1
                self.worst = max(self.worst, time.monotonic() - began)

    def stop(self) -> None:
        self._over.set()

    def close(self) -> None:
        self._kept.close()
        self._channel.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._place.http, timeout=10)
        return http.client.HTTPSConnection(self._place.http, timeout=10, context=self._tls)

    def _http(self) -> None:
        self._send(self._kept)

    def _http_new(self) -> None:
        made = self._connect()
        try:
            self._send(made)
        finally:
            made.close()

    def _send(self, link: http.client.HTTPConnection) -> None:
        link.request("POST", "/v2/models/echo/infer", b'{"inputs":[]}', {"X-API-Key": self._key})
        answer = link.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise AssertionError(body)

    def _grpc(self) -> None:
        call = GRPCInferenceServiceStub(self._channel).ModelInfer
        call(pb.ModelInferRequest(model_name="echo"), metadata=(("x-api-key", self._key),), timeout=10)


@dataclass
class Arena:
    place: Proxy
    key: str  # The bystander's.
    attackers: "subprocess.Popen[str]"
    replica: int  # The port of the replica with the bystander's model.
    engine: int  # The port of the engine.
    authority: bytes | None  # The proxy's CA certificate, with TLS.

    def try_out(self, attack: str, number: int, seconds: float = SECONDS, settled_seconds: float = 1.5) -> Row:
        bystander, process = Bystander(self.place, self.key, self.authority), self.place.process
        for warm in (bystander._http, bystander._http_new, bystander._grpc):
            warm()
        before: float = process.resident_bytes()
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # resets the peak
        begun = self._begun()
        calling = threading.Thread(target=bystander.run, daemon=True)
        calling.start()
        assert self.attackers.stdin is not None
        assert self.attackers.stdout is not None
        self.attackers.stdin.write(f"{attack}\t{number}\t{seconds}\n")
        self.attackers.stdin.flush()
        result = json.loads(self.attackers.stdout.readline())
        bystander.stop()
        calling.join()
        result["did"]["at a replica"] = self._begun() - begun - bystander.calls
        time.sleep(settled_seconds)  # received data is still being processed
        peak: float = _peak(process)
        bystander.close()
        process.check()
        left, end = self._left(), time.monotonic() + GONE_SECONDS
        while left and time.monotonic() < end:
            time.sleep(PAUSE_SECONDS)
            left = self._left()
        before, peak, after = (size / MEGABYTE for size in (before, peak, process.resident_bytes()))
        noticed = bystander.calls, bystander.worst, tuple(bystander.failures)
        return Row(attack, number, seconds, before, peak, after, *noticed, result["did"], left, result["error"])

    def _begun(self) -> int:
        return int(_get(self.replica, "/begun")) + int(json.loads(_get(self.engine, "/words"))["begun"])

    def _left(self) -> dict[str, float]:
        """Return the non-zero counts of calls in progress at the proxy, and of streams at the engine."""
        found: dict[str, float] = {"streams": json.loads(_get(self.engine, "/words"))["under_way"]}
        for family in text_string_to_metric_families(_get(self.place.admin_port, "/metrics").decode()):
            if family.name in UNDER_WAY:
                found[family.name] = sum(sample.value for sample in family.samples)
        return {what: number for what, number in found.items() if number}


def _get(port: int, path: str) -> bytes:
    link = http.client.HTTPConnection(HOST, port, timeout=10)
    link.request("GET", path)
    body = link.getresponse().read()
    link.close()
    return body


def _peak(process: Process) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@contextmanager
def arena(root: Path, over_tls: bool) -> Iterator[Arena]:
    environment = os.environ | python_variables("proxy", "contracts", "service", "policies/eviction", "client")
    with ExitStack() as stack:
        pools = []
        for name in ("good", "bad"):  # separate, so that attackers' calls cannot block the bystander's replica
            command = [sys.executable, "-m", "tests.proxy.attacks.behind"]
            replica = stack.enter_context(running("the replica", command, root / f"{name}.log", environment))
            ports = replica.announced_ports()
            http_port, grpc_port = ports["http"], ports["grpc"]
            pools.append(
                routing.Pool(name=name, host=HOST, http_port=http_port, grpc_port=grpc_port, loading="preload")
            )
        loaded = {"name": "loaded", "loading": "on-demand", "http_port": ports["pool"], "lease_port": ports["lease"]}
        on_demand = routing.Pool.model_validate(pools[-1].model_dump() | loaded)
        servers = [
            routing.Server(name="triton", kind="triton", pools=(*pools, on_demand)),
            routing.Server(name="engine", kind="openai", pools=(pools[-1],)),
        ]
        models = [routing.Model(name=name, server="triton", pool="good") for name in ("echo", "slow")]
        many = ("hang", "large", "stream", *MODELS)
        models += [routing.Model(name=name, server="triton", pool="bad") for name in many]
        # For a model with several versions the proxy must find each request's sequence.
        shares = tuple(routing.VersionShare(version=version, weight=50) for version in (1, 2))
        models.append(routing.Model(name="sequence", server="triton", pool="bad", versions=shares))
        models += [routing.Model(name=name, server="engine", pool="bad") for name in (WORDS, *LYING, *BROKEN)]
        models += [routing.Model(name=name, server="triton", pool="loaded") for name in (COLD, WARM)]
        table = routing.RoutingTable(environment="test", servers=tuple(servers), models=tuple(models))
        access = access_table()
        limit = access.rate_limit.model_copy(update={"tokens_per_minute": MANY})
        attacking = [f"attacker-{number}" for number in range(ATTACKERS)]
        rule = access.rules[0].model_copy(update={"principals": ("bystander", *attacking)})
        keys_url = f"http://{HOST}:{pools[-1].http_port}/hang/keys"
        hanging = routing.OidcIssuer(issuer=ISSUER, audiences=("a",), jwks_url=keys_url, groups_claim="groups")
        update = {"rules": (rule,), "rate_limit": limit, "issuers": (hanging,)}
        write_tables(root, table, access.model_copy(update=update))
        keys = {name: new_key() for name in rule.principals}
        for name, key in keys.items():
            write_key(root, key, name)
        authority = Authority() if over_tls else None
        if authority is not None:
            authority.write(root / "tls", "proxy")
        own = {"api_keys": "true", "memory_bytes": str(LIMIT), "tls": str(over_tls).lower()}
        with proxy(root, settings=own, module="tests.proxy.attacks.attacked") as place:
            command = [sys.executable, "-m", "tests.proxy.attacks.attacking"]
            at = [str(place.http_port), str(place.grpc_port)]
            attackers = subprocess.Popen(
                ["nice", "-n", "10", *command, *at, *(keys[name] for name in attacking)],
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            try:
                pem = None if authority is None else authority.pem
                yield Arena(place, keys["bystander"], attackers, pools[0].http_port, pools[1].http_port, pem)
            finally:
                attackers.kill()
                attackers.wait()
