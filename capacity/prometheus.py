"""Queries a Prometheus, or a server with its API: https://prometheus.io/docs/prometheus/latest/querying/api/."""

import http.client
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import OpenerDirector, Request, build_opener

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import escaped, shortened
from stacks.redirects import NoRedirects

AUTHORIZATION_FILE = "PROMETHEUS_AUTHORIZATION_FILE"
_SECONDS = 150.0  # By default, Prometheus cancels a query after two minutes.
_LONGEST = 300  # Characters of a reason.
_TOO_MUCH = ("execution", "timeout", "canceled")
"""Kinds of errors of a query that needs more samples or time than the server allows."""


class TooMuchError(CommandError):
    """A query exceeded a limit of the server. A smaller one may succeed."""


@dataclass(frozen=True)
class Series:
    """The samples of one set of labels: Unix times and values."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[float, float]]


def copy_labels(proxies: Iterable[Series]) -> frozenset[str]:
    """Return the labels in which copies of a process's series differ, such as `prometheus_replica`, if servers or
    scrape jobs overlap. `proxies` are series that each proxy has once. A pod identifies a proxy, or else its
    address."""
    processes = defaultdict(list)
    for each in proxies:
        pod = each.labels.get("pod") or each.labels.get("instance")
        processes[each.labels.get("cluster"), each.labels.get("namespace"), pod].append(each.labels)
    return frozenset(
        name
        for (*_, pod), copies in processes.items()
        for name in frozenset().union(*copies)
        if pod and len({labels.get(name) for labels in copies}) > 1
    )


def without_copies(found: Iterable[Series], differing: frozenset[str]) -> list[Series]:
    """Return one of several series that differ only in these labels: the one with the most samples."""
    best: dict[frozenset[tuple[str, str]], Series] = {}
    for each in found:
        labels = {name: value for name, value in each.labels.items() if name not in differing}
        known = best.get(key := frozenset(labels.items()))
        if known is None or len(each.samples) > len(known.samples):
            best[key] = Series(labels, each.samples)
    return list(best.values())


@dataclass
class Prometheus:
    """Queries one server. `match` are PromQL matchers for every query, such as `cluster="east"`."""

    url: str
    match: str = ""
    _opener: OpenerDirector = field(default_factory=lambda: build_opener(NoRedirects()), repr=False)
    _headers: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Read the credential, if there is one. Raises CommandError."""
        self.url = self.url.rstrip("/")
        if not _is_address(self.url):
            why = "is not the address of a Prometheus, such as http://prometheus.monitoring:9090 (without credentials)"
            raise CommandError(f"--prometheus {why}.", WRONG_INPUT)
        if file := os.environ.get(AUTHORIZATION_FILE):
            self._headers["Authorization"] = _credential(Path(file))

    def query(self, query: str, at: float) -> list[Series]:
        """Return the result of a query at a Unix time, with the matchers in place of `$match`. Raises CommandError."""
        parameters = urlencode({"query": query.replace("$match", self.match), "time": f"{at:.3f}"})
        request = Request(f"{self.url}/api/v1/query?{parameters}", headers=self._headers)
        try:
            with self._opener.open(request, timeout=_SECONDS) as response:
                tree = json.load(response)
        except HTTPError as error:
            raise self._refused(error) from None
        except (URLError, OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise CommandError(f"{self.url} does not respond: {_short(why)}. Check the address.") from None
        except (ValueError, RecursionError):
            raise self._not_understood("a text that is not JSON") from None
        try:
            return [_series(each) for each in tree["data"]["result"]]
        except (TypeError, KeyError, ValueError, AttributeError):
            raise self._not_understood(json.dumps(tree)) from None

    def _refused(self, error: HTTPError) -> CommandError:
        with error:
            try:
                body = error.read(2**16).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):
                body = ""
        if error.code in (401, 403):
            how = f"write the header's value, such as `Bearer …`, to a file, and set {AUTHORIZATION_FILE} to its name"
            return CommandError(f"{self.url} needs the header Authorization ({error.code}): {how}.")
        try:
            tree = json.loads(body)
            kind, why = str(tree["errorType"]), _short(tree["error"])
        except (ValueError, TypeError, KeyError, RecursionError):
            if 300 <= error.code < 400:
                return self._not_understood(f"{error.code}, a redirect (perhaps to a login page)")
            return self._not_understood(f"{error.code}")
        if kind in _TOO_MUCH:
            return TooMuchError(f"{self.url} did not complete a query: {why}.")
        hint = f" Check --match {escaped(self.match)}." if self.match else ""
        return CommandError(f"{self.url} refuses a query: {why}.{hint}", WRONG_INPUT)

    def _not_understood(self, what: str) -> CommandError:
        return CommandError(f"{self.url}/api/v1/query returned {_short(what)}. Check that it is a Prometheus.")


def _series(tree: Any) -> Series:
    samples = tree["values"] if "values" in tree else [tree["value"]]
    return Series({**tree["metric"]}, [(float(at), float(value)) for at, value in samples])


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        plain = url.isascii() and url.isprintable() and not {*" @?#"} & {*url}
        return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _credential(file: Path) -> str:
    try:
        value = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not plain text"
        raise CommandError(f"{AUTHORIZATION_FILE}={escaped(str(file))} cannot be read: {why}.", WRONG_INPUT) from None
    if not value or not value.isprintable():
        raise CommandError(f"{AUTHORIZATION_FILE}={escaped(str(file))} is not one line of text.", WRONG_INPUT)
    return value


def _short(why: object) -> str:
    return escaped(shortened(str(why).strip(), _LONGEST)).rstrip(".")
