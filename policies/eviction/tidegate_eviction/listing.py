"""`list` and `retry`: asks a running policy, and prints its answer for people."""

import http.client
import json
import shlex
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tidegate_contracts import eviction_process, lease
from tidegate_contracts.lease import State

from .units import bytes_text, seconds_text

ADDRESS = f"127.0.0.1:{eviction_process.LEASE_PORT}"
SECONDS = 5.0
_STYLES = {"resident": "green", "loading": "cyan", "queued": "cyan", "quarantined": "red", "cold": "dim"}


class ListingError(Exception):
    """The policy did not answer, or not as one does; the text is for people."""


def fetch(address: str, state: Path) -> lease.Listing:
    """Return what sits in the slice of the policy at `host:port`, whose state folder this is; raises ListingError."""
    body = _call(address, state, lease.MODELS_PATH, "GET", "list")
    try:
        return lease.Listing.model_validate_json(body)
    except ValidationError:
        raise ListingError(f"What answers at {address} is no eviction policy of this version.") from None


def retry(address: str, state: Path, model: str) -> None:
    """Take a model out of quarantine; raises ListingError."""
    path = f"{lease.MODELS_PATH}/{urllib.parse.quote(model, safe='')}/retry"
    _call(address, state, path, "POST", f"retry {shlex.quote(one_line(model))}")


def show(listing: lease.Listing, console: Console) -> None:
    """Print a table of all models, and the sums."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("MODEL", "STATE", "FOOTPRINT", "FROM", "LAST USE", "EVICTABLE IN", "LEASES", "WAITERS", "NOTE"):
        table.add_column(name, justify="left" if name in ("MODEL", "STATE", "FROM", "NOTE") else "right")
    order = {state.value: number for number, state in enumerate(reversed(State))}
    for each in sorted(listing.models, key=lambda each: (each.state != "resident", order[each.state], each.model)):
        since = "" if each.no_room_seconds is None else f"since {seconds_text(each.no_room_seconds)}"
        note = "; ".join(filter(None, ["pinned" if each.pinned else "", one_line(each.why), since]))
        table.add_row(
            # Names may hold anything: they are not read as markup.
            Text(one_line(each.model)), Text(each.state, style=_STYLES.get(each.state, "yellow")),
            bytes_text(each.footprint_bytes), each.footprint_from, seconds_text(each.idle_seconds),
            seconds_text(each.evictable_in), str(len(each.leases)), str(each.waiters), Text(note),
        )  # fmt: skip
    console.print(table)
    sums = [f"{kind} {bytes_text(getattr(listing, f'{kind}_bytes'))}" for kind in ("resident", "loading", "freeing")]
    sums += [f"leaked {bytes_text(listing.leaked_bytes)}", f"free {bytes_text(listing.free_bytes)}"]
    said = f"{' · '.join(sums)} of {bytes_text(listing.capacity_bytes)} · policy {listing.policy}"
    console.print(f"\n{said}", highlight=False)


def one_line(text: object) -> str:
    """Return a text in one line, without control characters, which could be commands to a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())


def _call(address: str, state: Path, path: str, method: str, command: str) -> bytes:
    in_cluster = f"In a cluster: kubectl exec <pod> -c eviction-policy -- python -m tidegate_eviction {command}"
    try:
        token = (state / eviction_process.ADMIN_TOKEN_FILE).read_text("ascii")
    except (OSError, ValueError) as error:
        raise ListingError(f"{one_line(error)}. Name the policy's state folder with --state. {in_cluster}") from None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://{address}{path}", method=method, data=b"" if method == "POST" else None)
    request.add_unredirected_header("authorization", f"Bearer {token}")
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        try:
            why = one_line(json.loads(error.read())["why"])
        except (ValueError, KeyError, TypeError):
            port = f"the port of leases ({eviction_process.LEASE_PORT}) of an eviction policy"
            why = f"What answers at {one_line(address)} says {error.code} to {method} {path}: is that {port}?"
        raise ListingError(why) from None
    except TimeoutError:
        raise ListingError(
            f"The eviction policy at {one_line(address)} accepts connections, but gives no answer in {SECONDS:.0f} s: "
            "it hangs. Read its log, and delete the pod if it does not recover."
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = one_line(str(getattr(error, "reason", error)))
        why = f"No eviction policy answers at {one_line(address)}: {reason}."
        raise ListingError(f"{why} Set --address to HOST:PORT. {in_cluster}") from None
