"""What a Prometheus, or what speaks its API, is asked: https://prometheus.io/docs/prometheus/latest/querying/api/."""

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
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import escaped, shortened

AUTHORIZATION_FILE = "PROMETHEUS_AUTHORIZATION_FILE"
_SECONDS = 150.0  # A Prometheus gives a query up after two minutes, where nobody says otherwise.
_LONGEST = 300  # Characters of a reason.
_TOO_MUCH = ("execution", "timeout", "canceled")
"""Kinds of errors of a query that asks for more samples, or time, than the server grants."""


class TooMuchError(CommandError):
    """A query wanted more than the server grants: less may be had."""


@dataclass(frozen=True)
class Series:
    """What was asked for, of one set of labels: Unix times, and values."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[float, float]]


def copy_labels(proxies: Iterable[Series]) -> frozenset[str]:
    """Return the labels by which copies of the same process's series differ, such as `prometheus_replica`.

    Copies come from two Prometheus servers behind one Thanos, or from two scrape jobs. `proxies` are series that each
    proxy has once. Its pod tells a proxy, or its address where there are no pods.
    """
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


class _NoRedirects(HTTPRedirectHandler):
    """An answer that points elsewhere is none, and credentials must not follow it."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass
class Prometheus:
    """Asks one server; `match` are further matchers of PromQL, such as `cluster="east"`, which hold in each query."""

    url: str
    match: str = ""
    _opener: OpenerDirector = field(default_factory=lambda: build_opener(_NoRedirects()), repr=False)
    _headers: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Read the credential, if there is one. Raises CommandError."""
        self.url = self.url.rstrip("/")
        if not _is_address(self.url):
            why = "is no address of a Prometheus, such as http://prometheus.monitoring:9090 (without name and password)"
            raise CommandError(f"PROMETHEUS {why}.", WRONG_INPUT)
        if file := os.environ.get(AUTHORIZATION_FILE):
            self._headers["Authorization"] = _credential(Path(file))

    def ask(self, query: str, at: float) -> list[Series]:
        """Return what a query gives at a Unix time; `$match` in it stands for the matchers. Raises CommandError."""
        said = urlencode({"query": query.replace("$match", self.match), "time": f"{at:.3f}"})
        request = Request(f"{self.url}/api/v1/query?{said}", headers=self._headers)
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                told = json.load(answer)
        except HTTPError as error:
            raise self._refused(error) from None
        except (URLError, OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise CommandError(f"{self.url} does not answer: {_short(why)}. Is that where Prometheus is?") from None
        except (ValueError, RecursionError):
            raise self._not_understood("what is no JSON") from None
        try:
            return [_series(each) for each in told["data"]["result"]]
        except (TypeError, KeyError, ValueError, AttributeError):
            raise self._not_understood(json.dumps(told)) from None

    def _refused(self, error: HTTPError) -> CommandError:
        with error:
            try:
                body = error.read(2**16).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):
                body = ""
        if error.code in (401, 403):
            how = f"name a file that holds the header Authorization, such as `Bearer …`, in {AUTHORIZATION_FILE}"
            return CommandError(f"{self.url} wants to know who asks, and that they may ({error.code}): {how}.")
        try:
            told = json.loads(body)
            kind, why = str(told["errorType"]), _short(told["error"])
        except (ValueError, TypeError, KeyError, RecursionError):
            if 300 <= error.code < 400:
                return self._not_understood(f"{error.code}, and points elsewhere (a page to log in at?)")
            return self._not_understood(f"{error.code}")
        if kind in _TOO_MUCH:
            return TooMuchError(f"{self.url} does not go through with a query: {why}.")
        hint = f" Is it for --match {escaped(self.match)}?" if self.match else ""
        return CommandError(f"{self.url} refuses a query: {why}.{hint}", WRONG_INPUT)

    def _not_understood(self, what: str) -> CommandError:
        return CommandError(f"{self.url}/api/v1/query answers {_short(what)}: is that a Prometheus?")


def _series(told: Any) -> Series:
    samples = told["values"] if "values" in told else [told["value"]]
    return Series({**told["metric"]}, [(float(at), float(value)) for at, value in samples])


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
        why = getattr(error, "strerror", None) or "it is no plain text"
        raise CommandError(f"{AUTHORIZATION_FILE}={escaped(str(file))} cannot be read: {why}.", WRONG_INPUT) from None
    if not value or not value.isprintable():
        raise CommandError(f"{AUTHORIZATION_FILE}={escaped(str(file))} is not one line of text.", WRONG_INPUT)
    return value


def _short(why: object) -> str:
    return escaped(shortened(str(why).strip(), _LONGEST)).rstrip(".")
