"""Where the scenes play: the platform, a visitor, and what can be seen from outside of both."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tidegate_contracts.lease import Listing
from tidegate_eviction.listing import ListingError, fetch

from lab.local_plane.environment import LocalEnvironment
from lab.local_plane.process import repeating

from .playing import claim, until
from .show import Show
from .visitor import Visitor

SAMPLE_SECONDS = 0.2
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Samples:
    """What the policy said of its slice, again and again."""

    taken: int = 0
    most_bytes: int = 0
    """The most that was resident, loading, freeing and leaked at one time."""


@dataclass
class Stage:
    """What every scene has at hand."""

    platform: LocalEnvironment
    visitor: Visitor
    show: Show
    samples: Samples = field(default_factory=Samples)

    def listing(self) -> Listing:
        """Return what sits in the on-demand Triton's slice."""
        return fetch(self.platform.policy.leases)

    def state(self, model: str) -> str:
        """Return the state of a model there."""
        return next(each.state for each in self.listing().models if each.model == model)

    def slice(self, word: str) -> None:
        """Print what sits there."""
        self.show.slice(self.listing(), word)

    def wanted(self, *models: str) -> None:
        """Have models called one after the other, and obey `busy`."""
        for model in models:
            self._call(model)

    def leased(self, model: str) -> None:
        """Have every proxy get a lease on a model."""
        for proxy in range(len(self.visitor.proxies)):
            self._call(model, proxy)

    def _call(self, model: str, proxy: int = 0) -> None:
        reply = self.visitor.want(model, proxy)
        claim(reply.is_right(model), f"a call of {model} was answered {reply.status}: {reply.why}")

    def idle(self, model: str) -> None:
        """Wait until a model may be evicted."""
        until(
            f"{model} may be evicted",
            lambda: any(
                each.model == model and not each.leases and each.evictable_in == 0 for each in self.listing().models
            ),
        )

    @property
    def _log(self) -> Path:
        return self.platform.policy.process.log

    def mark(self) -> int:
        """Return where the policy's log ends now."""
        return self._log.stat().st_size

    def events(self, kind: str, since: int = 0) -> list[dict[str, Any]]:
        """Return the policy's events of a kind, from a mark on."""
        with self._log.open("rb") as log:
            log.seek(since)
            lines = log.read().splitlines()
        found = []
        for line in lines:
            with suppress(ValueError):  # what is no JSON is no event; the last one may be half written
                found.append(json.loads(line))
        return [event for event in found if event.get("event") == kind]

    def acquires(self) -> float:
        """Return how often the proxies have asked for a lease."""
        total = 0.0
        for proxy in self.platform.proxies:
            with _OPENER.open(f"http://{proxy.admin}/metrics", timeout=10) as answer:
                for family in text_string_to_metric_families(answer.read().decode()):
                    if family.name == "tidegate_proxy_lease_acquires":
                        total += sum(sample.value for sample in family.samples if sample.name.endswith("_total"))
        return total

    @contextmanager
    def sampling(self) -> Iterator[Samples]:
        """Look at the slice again and again, as long as the block lasts."""

        def look() -> None:
            try:
                found = self.listing()
            except ListingError:
                return  # the policy was just killed
            used = found.resident_bytes + found.loading_bytes + found.freeing_bytes + found.leaked_bytes
            self.samples.taken += 1
            self.samples.most_bytes = max(self.samples.most_bytes, used)

        with repeating(look, pause=SAMPLE_SECONDS):
            yield self.samples
