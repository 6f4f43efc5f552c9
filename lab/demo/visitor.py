"""A caller of models through the proxies, over plain HTTP, that obeys `Retry-After`."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import urllib3

from rollout.tools.running import repeating

from . import zoo

NUMBERS = (1.0, 2.0, 3.0, 4.0)
BUSY = 503
MOST_TRIES = 6
_SECONDS = 60.0
_PAUSE = 0.02
_CONNECTIONS = 32


@dataclass(frozen=True)
class Reply:
    """The outcome of a call."""

    status: int
    body: Any  # Parsed JSON, or None.
    retry_after: float | None  # Seconds.
    seconds: float
    tries: int = 1

    @property
    def why(self) -> str:
        """The detail of an error response."""
        return str(self.body.get("detail") or self.body.get("error") or "") if isinstance(self.body, dict) else ""

    def is_right(self, model: str) -> bool:
        return (
            self.status == 200
            and isinstance(self.body, dict)
            and self.body.get("OUTPUT") == [number * zoo.FACTORS[model] for number in NUMBERS]
        )


@dataclass
class Tally:
    """Counts of the outcomes of calls."""

    statuses: Counter[int] = field(default_factory=Counter)  # 0: no response.
    wrong: int = 0  # Responses with status 200 and a wrong output.
    without_retry: int = 0  # Busy responses without Retry-After.

    def add(self, model: str, reply: Reply) -> None:
        self.statuses[reply.status] += 1
        self.wrong += reply.status == 200 and not reply.is_right(model)
        self.without_retry += reply.status == BUSY and reply.retry_after is None

    @property
    def calls(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        return self.calls - self.statuses[200] + self.wrong


class Visitor:
    """Calls the proxies at these addresses (host and port), with an API key."""

    def __init__(self, proxies: Sequence[str], key: str) -> None:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        more = {"timeout": _SECONDS, "retries": False, "maxsize": _CONNECTIONS, "headers": headers}
        self.proxies = [urllib3.connection_from_url(f"http://{each}", **more) for each in proxies]

    def call(self, model: str, proxy: int = 0) -> Reply:
        """Call a model once. The status is 0 if the connection failed."""
        begun = time.monotonic()
        body = json.dumps({"INPUT": NUMBERS})
        try:
            response = self.proxies[proxy].request("POST", f"/v2/models/{model}/generate", body)
        except urllib3.exceptions.HTTPError:
            return Reply(0, None, None, time.monotonic() - begun)
        content = None
        with suppress(ValueError):
            content = json.loads(response.data)
        after = response.headers.get("retry-after")
        return Reply(response.status, content, None if after is None else float(after), time.monotonic() - begun)

    def want(self, model: str, proxy: int = 0) -> Reply:
        """Call a model, and retry as `busy` responses specify, at most MOST_TRIES times."""
        begun = time.monotonic()
        for tries in range(1, MOST_TRIES + 1):
            reply = self.call(model, proxy)
            if reply.status != BUSY or reply.retry_after is None:
                break
            if tries < MOST_TRIES:
                time.sleep(reply.retry_after)
        return replace(reply, seconds=time.monotonic() - begun, tries=tries)

    def at_once(self, model: str, number: int) -> list[Reply]:
        """Call a model `number` times at the same moment over all proxies, and retry as `busy` responses specify."""
        start = threading.Barrier(number)

        def call(place: int) -> Reply:
            start.wait()
            return self.want(model, place % len(self.proxies))

        with ThreadPoolExecutor(number) as threads:
            return list(threads.map(call, range(number)))

    def listen(self, count: int, delay_ms: int, proxy: int = 0) -> list[int]:
        """Return the notes that the singer streams."""
        body = json.dumps({"COUNT": count, "DELAY": delay_ms})
        path = f"/v2/models/{zoo.SINGER}/generate_stream"
        answer = self.proxies[proxy].request("POST", path, body, preload_content=False)
        notes = (line.removeprefix(b"data: ") for line in answer if line.startswith(b"data: "))
        return [int(json.loads(note)["NOTE"]) for note in notes]

    @contextmanager
    def calling(self, *models: str) -> Iterator[dict[str, Tally]]:
        """Call models repeatedly through every proxy until the block ends."""
        tallies = {model: Tally() for model in models}
        lock = threading.Lock()

        def call(model: str, proxy: int) -> None:
            reply = self.call(model, proxy)
            with lock:
                tallies[model].add(model, reply)

        callers = [partial(call, model, proxy) for model in models for proxy in range(len(self.proxies))]
        with repeating(*callers, pause=_PAUSE):
            yield tallies
