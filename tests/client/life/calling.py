import threading
import time
from collections import Counter
from typing import Any, Self

from tidegate.calling.proxy import ProxyClient
from tidegate.errors import TidegateError

from .entries import REQUEST

PAUSE_SECONDS = 0.02


class Caller:
    def __init__(
        self, client: ProxyClient, model: str, request: dict[str, Any] = REQUEST, *, comes_later: bool = False
    ) -> None:
        """Call a model. If it `comes_later`, failures before the first response do not count."""
        self._client, self._model, self._request, self._comes_later = client, model, request, comes_later
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._call)
        self.answers: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def factor(self) -> float:
        answer = self._client.infer_json(self._model, self._request, deadline=20)
        return float(answer["outputs"][0]["data"][0])

    def of_next(self, number: int) -> Counter[float]:
        """Wait for so many further responses. Return how many each factor gave."""
        begin, end = len(self.answers), time.monotonic() + 60
        while len(self.answers) < begin + number:
            assert time.monotonic() < end, f"no {number} answers within 60 s: {self.failures[-3:]}"
            time.sleep(PAUSE_SECONDS)
        return Counter(self.answers[begin:])

    def until(self, factor: float, seconds: float = 60) -> None:
        """Wait until this factor answers: a proxy reads an alias every five seconds."""
        end = time.monotonic() + seconds
        while self.answers[-1:] != [factor]:
            assert time.monotonic() < end, f"{self.answers[-1:]} answers after {seconds} s: {self.failures[-3:]}"
            time.sleep(PAUSE_SECONDS)

    def _call(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                self.answers.append(self.factor())
            except TidegateError as error:
                if self.answers or not self._comes_later:
                    self.failures.append(str(error))
