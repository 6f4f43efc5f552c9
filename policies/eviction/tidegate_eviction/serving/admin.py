"""The admin port: probes, metrics, and a page that shows what sits in the slice now, as a bar of blocks."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from html import escape
from time import monotonic

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from tidegate_contracts import eviction_process, lease
from tidegate_contracts.lease import IN_MEMORY, Listed, Listing

from ..units import bytes_text, seconds_text
from . import metrics
from .metrics import Snapshot

REFRESH_SECONDS = 2
SHOWN_MODELS = 500  # Rows of the table at most: those that take room first.
HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'", "cache-control": "no-store"}
_ORDER = [*IN_MEMORY, "queued", "quarantined", "cold", "unknown"]

_STYLE = """\
:root { color-scheme: light dark; --line: #8886; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } p { margin: .5rem 0; }
.bar { display: flex; height: 3.2rem; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
.bar div { min-width: 2px; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; padding: .3rem .4rem;
  box-sizing: border-box; border-right: 1px solid #0003; font-size: .8rem; color: #111; }
.resident { background: #8fce9f; } .leased { background: #4caf6d; } .draining { background: #d7c96a; }
.loading { background: #7fb6e6; } .unloading, .freeing { background: #e2a867; } .leaked { background: #d9716b; }
.free { flex: 1; background: transparent; } .bar .free { color: inherit; }
.legend span { display: inline-block; width: .9rem; height: .9rem; margin: 0 .3rem 0 .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 1rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.warning { color: #c0392b; }"""
_MEANINGS = {
    "leased": "held by a proxy", "resident": "free to go once it is idle", "loading": "being loaded",
    "draining": "goes with its last lease", "freeing": "being unloaded", "leaked": "did not come back",
}  # fmt: skip
_BOXES = (f'<span class="{kind}"></span>{text}' for kind, text in _MEANINGS.items())
_LEGEND = f'<p class="legend">{"".join(_BOXES)}</p>'


def page(snapshot: Snapshot) -> str:
    """Return the policy's overview as HTML: its models and their states, memory and leases."""
    listing = snapshot.listing
    models = sorted(
        listing.models, key=lambda each: (_ORDER.index(each.state), -(each.footprint_bytes or 0), each.model)
    )
    more = len(models) - SHOWN_MODELS
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>Tidegate: what is resident</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>",
            "<h1>What sits in the slice now</h1>",
            *_warnings(snapshot),
            f"<p>{_sums(listing)} · policy {escape(listing.policy)} · {snapshot.leases} leases</p>",
            f'<div class="bar" role="img" aria-label="{_sums(listing)}">{"".join(_blocks(listing, models))}</div>',
            _LEGEND,
            '<div class="wide"><table>\n<tr><th>model</th><th>state</th><th class=number>footprint</th>'
            "<th>known from</th><th class=number>last use</th><th class=number>evictable in</th>"
            "<th>leases</th><th></th></tr>",
            *(_row(each) for each in models[:SHOWN_MODELS]),
            "</table></div>",
            f"<p>and {more} more</p>" if more > 0 else "",
            "</body>\n</html>\n",
        ]
    )


def _warnings(snapshot: Snapshot) -> list[str]:
    found = []
    if not snapshot.server_is_up:
        found.append("There is no connection to the server: nothing is loaded or unloaded.")
    if snapshot.settings_error:
        found.append(f"The settings file is not in use, the last good one is: {snapshot.settings_error}")
    if snapshot.reading.used_bytes is None:
        found.append("Memory cannot be read: an unload counts as soon as the server says so.")
    return [f'<p class="warning">{escape(each)}</p>' for each in found]


def _sums(listing: Listing) -> str:
    kinds = ("resident", "loading", "freeing", "leaked", "free")
    said = [f"{kind} {bytes_text(size)}" for kind in kinds if (size := getattr(listing, f"{kind}_bytes"))]
    return f"{' · '.join(said)} of {bytes_text(listing.capacity_bytes)}"


def _blocks(listing: Listing, models: Iterable[Listed]) -> Iterator[str]:
    for each in models:
        if each.state in IN_MEMORY and each.footprint_bytes:
            kind = "leased" if each.state == "resident" and each.leases else each.state
            text = f"{each.model}: {each.state}, {bytes_text(each.footprint_bytes)}, {len(each.leases)} leases"
            yield _block(kind, each.footprint_bytes / listing.capacity_bytes, text, each.model)
    if listing.leaked_bytes:
        text = f"leaked: {bytes_text(listing.leaked_bytes)}"
        yield _block("leaked", listing.leaked_bytes / listing.capacity_bytes, text, "leaked")
    if listing.free_bytes:
        yield f'<div class="free">{escape(bytes_text(listing.free_bytes))} free</div>'


def _block(kind: str, share: float, text: str, name: str) -> str:
    return f'<div class="{kind}" style="flex:0 1 {100 * share:.3f}%" title="{escape(text)}">{escape(name)}</div>'


def _row(each: Listed) -> str:
    leases = ", ".join(
        f"{escape(held.holder)} ({seconds_text(held.seconds_left)} left, {held.in_flight} in flight)"
        for held in each.leases
    )
    notes = [*(["pinned"] if each.pinned else []), *([f"{each.waiters} wait"] if each.waiters else []), each.why]
    notes += [f"since {seconds_text(each.no_room_seconds)}"] if each.no_room_seconds is not None else []
    return (
        f"<tr><td>{escape(each.model)}</td><td>{escape(each.state)}</td>"
        f"<td class=number>{escape(bytes_text(each.footprint_bytes))}</td><td>{escape(each.footprint_from)}</td>"
        f"<td class=number>{escape(seconds_text(each.idle_seconds))}</td>"
        f"<td class=number>{escape(seconds_text(each.evictable_in))}</td><td>{leases}</td>"
        f"<td>{escape('; '.join(filter(None, notes)))}</td></tr>"
    )


STALLED_SECONDS = 20.0
"""After so many seconds without a beat the policy's own thread hangs, and the process is to be restarted."""
SNAPSHOT_SECONDS = 5.0


class Heartbeat:
    """Shows that the policy's own thread, which beats every second, runs."""

    def __init__(self) -> None:
        self._last = monotonic()

    def beat(self) -> None:
        """Note that the policy's thread runs now."""
        self._last = monotonic()

    def why_stalled(self) -> str:
        """Return why the process is not alive, or nothing."""
        seconds = monotonic() - self._last
        return f"the policy has done nothing for {seconds:.0f} s" if seconds > STALLED_SECONDS else ""


def make_admin(snapshot: Callable[[], "Future[Snapshot]"], stalled: Callable[[], str]) -> FastAPI:
    """Return the application; `stalled` says why the policy's own thread, which takes snapshots, hangs, or nothing."""
    app = FastAPI(title="Tidegate eviction policy: probes, metrics, page", openapi_url=None)

    async def shown(answer: Callable[[Snapshot], Response]) -> Response:
        try:
            async with asyncio.timeout(SNAPSHOT_SECONDS):
                return answer(await asyncio.wrap_future(snapshot()))
        except TimeoutError:
            return PlainTextResponse("the policy does not answer\n", 503)

    @app.get(eviction_process.STARTED_PATH)
    async def started() -> Response:
        return PlainTextResponse("started\n")  # the control secret was there before this port

    @app.get(eviction_process.LIVE_PATH)
    async def live() -> Response:
        why = stalled()
        return PlainTextResponse(f"{why or 'ok'}\n", 503 if why else 200)

    @app.get(eviction_process.METRICS_PATH)
    async def scrape() -> Response:
        return await shown(lambda seen: Response(metrics.render(seen), media_type=CONTENT_TYPE_LATEST))

    @app.get(lease.MODELS_PATH)
    async def models() -> Response:
        return await shown(
            lambda seen: Response(seen.listing.model_dump_json(by_alias=True), media_type="application/json")
        )

    @app.get("/")
    async def overview() -> Response:
        return await shown(lambda seen: HTMLResponse(page(seen), headers=HEADERS))

    return app
