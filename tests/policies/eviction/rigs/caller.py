"""A simple holder of leases and caller of models."""

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import tritonclient.http
from tidegate_contracts import lease

from lab.local_plane.credentials import lease_token
from lab.local_plane.policy import Policy


@dataclass
class Holder:
    policy: Policy
    name: str = "tests"  # Of its pod.
    incarnation: str = ""  # As in the last grant.
    serials: dict[str, int] = field(default_factory=dict)  # Of the last grants.

    @property
    def holder(self) -> str:
        return lease.holder_name(self.name, "1")

    def ask(self, method: str, path: str, message: Any = None, address: str = "") -> tuple[int, str]:
        asking = http.client.HTTPConnection(address or self.policy.leases, timeout=60)
        try:
            headers = {"authorization": f"Bearer {lease_token(self.name)}"}
            asking.request(method, path, None if message is None else json.dumps(message), headers)
            answer = asking.getresponse()
            return answer.status, answer.read().decode()
        finally:
            asking.close()

    def acquire(self, model: str, wait_seconds: float | None = None) -> Any:
        message = {"holder": self.holder, "model": model, "waitSeconds": wait_seconds}
        answer = json.loads(self.ask("POST", lease.ACQUIRE_PATH, message)[1])
        self.incarnation = answer.get("incarnation", self.incarnation)
        self.serials[model] = answer.get("serial", 0)
        return answer

    def release(self, *models: str) -> None:
        serials = {model: self.serials.get(model, 10**9) for model in models}
        message = {
            "holder": self.holder,
            "incarnation": self.incarnation,
            "models": models,
            "serials": serials,
        }
        self.ask("POST", lease.RELEASE_PATH, message)

    def renew(self, incarnation: str, *models: str) -> lease.Renewed:
        uses = {model: {"inFlight": 1, "idleSeconds": 0} for model in models}
        message = {"holder": self.holder, "incarnation": incarnation, "models": uses}
        return lease.Renewed.model_validate_json(self.ask("POST", lease.RENEW_PATH, message)[1])

    def listing(self) -> lease.Listing:
        return lease.Listing.model_validate_json(self.ask("GET", lease.MODELS_PATH)[1])

    def listed(self, model: str) -> lease.Listed:
        (found,) = [each for each in self.listing().models if each.model == model]
        return found

    def until(self, model: str, *states: str, seconds: float = 30) -> float:
        return until(lambda: self.listed(model).state in states, seconds)


def until(true: Callable[[], bool], seconds: float = 30) -> float:
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, "it did not become true"
        time.sleep(0.02)
    return time.monotonic() - begun


def infer(address: str, model: str, number: int = 7, version: str = "") -> int:
    with tritonclient.http.InferenceServerClient(address) as client:
        given = tritonclient.http.InferInput("INPUT", [1], "INT32")
        given.set_data_from_numpy(numpy.array([number], numpy.int32))
        return int(client.infer(model, [given], version).as_numpy("OUTPUT")[0])
