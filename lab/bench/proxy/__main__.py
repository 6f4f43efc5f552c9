"""How fast the proxy is against what people put there today: `python -m lab.bench.proxy`.

The proxy has all its checks on: it verifies tokens, holds rules and limits, counts, and tags requests. nginx, HAProxy
and Envoy only forward. The baseline is the same checks as a good programmer writes them with FastAPI and aiohttp.
Whoever is measured has one core; callers, and what answers behind, share another. All have their turns in every run;
the ratios are the medians of those within a run. Last comes a line of JSON.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.table import Table

from lab.bench.report import positive, say, show
from lab.local_plane.process import CannotBeHadError, ProcessError
from lab.local_plane.triton import triton
from tests.proxy.rigs.issuer import Issuer, issuer
from tests.proxy.rigs.peers import nginx_answering
from tests.proxy.rigs.repository import MODELS, write
from tests.proxy.rigs.tables import GROUP

from .contestants import IDIOMATIC, OURS, Contestant, Cores, contestants, cores
from .load import LoadError
from .memory import busy_megabytes, idle_megabytes, reload_ratio
from .rows import ANSWER, MODEL, Found, Result, Row, Turn, measure, rows

BUSY = 0.85
TOKEN_SECONDS = 24 * 3600
RATIOS = {
    "predict_vs_nginx": ("predict", "nginx", "per_second"),
    "v2_vs_nginx": ("v2", "nginx", "per_second"),
    "v2_p99_vs_nginx": ("v2", "nginx", "p99"),
    "predict_varying_vs_nginx": ("predict_varying", "nginx", "per_second"),
    "v2_varying_vs_nginx": ("v2_varying", "nginx", "per_second"),
    "v2_varying_p99_vs_nginx": ("v2_varying", "nginx", "p99"),
    "v2_vs_envoy": ("v2", "envoy", "per_second"),
    "v2_vs_idiomatic": ("v2", IDIOMATIC, "per_second"),
    "triton_http_vs_nginx": ("triton_http", "nginx", "per_second"),
    "tensor_600k_vs_nginx": ("tensor_600k", "nginx", "per_second"),
    "grpc_vs_direct": ("grpc", "direct", "per_second"),
    "stream_first_token_vs_nginx": ("stream_first_token", "nginx", "p50"),
}
"""Of which row, against whom, and what of their results is compared."""
MEMORY = {"rss_mb": idle_megabytes, "rss_mb_10k": busy_megabytes, "reload_p99_vs_before": reload_ratio}


def ratios(found: Mapping[str, Found], megabytes: Mapping[str, float]) -> dict[str, float | None]:
    """Return what the last line says; None for what was not measured."""
    said = {}
    for key, (row, peer, of) in RATIOS.items():
        results = found[row].results if row in found else {}
        pairs = zip(results.get(OURS, ()), results.get(peer, ()), strict=False)
        each = [getattr(ours, of) / getattr(theirs, of) for ours, theirs in pairs]
        said[key] = round(statistics.median(each), 3) if each else None
    return said | {key: round(megabytes[key], 1) if key in megabytes else None for key in MEMORY}


def table(found: Mapping[str, Found]) -> Table:
    """Return everything as a table for people."""
    made = Table(title="The proxy, with all its checks, against others, which forward")
    made.add_column("what")
    made.add_column("who")
    for heading in ("requests/s", "min – max", "p50 ms", "p99 ms", "µs CPU", "of its core", "× first"):
        made.add_column(heading, justify="right", no_wrap=True)
    for each in found.values():
        words, first = each.row.words, None
        for name in each.row.names:
            results = each.results.get(name, [])
            if not results:
                made.add_row(words, name, "NOT MEASURED")
                continue
            first = first or results
            made.add_row(words, name, *_cells(results, first))
            words = ""
        made.add_section()
    return made


def _cells(results: Sequence[Result], first: Sequence[Result]) -> Iterator[str]:
    def median(of: str, form: str, scale: float = 1) -> str:
        value = statistics.median(getattr(result, of) for result in results)
        return format(value * scale, form) if value else ""

    rates = [result.per_second for result in results]
    yield median("per_second", ",.0f")
    yield f"{min(rates):,.0f} – {max(rates):,.0f}" if rates[0] else ""
    yield median("p50", ".2f", 1e3)
    yield median("p99", ".2f", 1e3)
    yield median("processor_microseconds", ".0f")
    yield median("busy", ".0%")
    pairs = list(zip(results, first, strict=False))
    yield f"{statistics.median((a.per_second or a.p50) / (b.per_second or b.p50) for a, b in pairs):.2f}"


def doubts(found: Mapping[str, Found]) -> Iterator[str]:
    """Return what speaks against the ratios: whoever is held against us must have been the limit itself."""
    for each in found.values():
        for name, results in each.results.items():
            if not results or each.row.upstream != "simple":
                continue  # behind the others, the upstream is the limit
            busy = statistics.median(result.busy for result in results)
            if busy < BUSY:
                yield (
                    f"NOTE: {name} used {busy:.0%} of its core in {each.row.name}: callers, or other programs of this "
                    "machine, were the limit."
                )


def measure_all(wanted: Sequence[Row], runs: int, seconds: float, folder: Path, provider: Issuer) -> dict[str, Found]:
    """Measure these rows, those of one upstream after the other."""
    found = {}
    use = cores()
    for upstream in ("simple", "triton"):
        these = [row for row in wanted if row.upstream == upstream]
        if not these:
            continue
        place = folder / upstream
        place.mkdir()
        names = list(dict.fromkeys(name for row in these for name in row.names))
        turn = Turn(seconds, use, place, provider.token("bench", [GROUP], TOKEN_SECONDS))
        try:
            with _running(upstream, names, place, provider, use) as those:
                for row in these:
                    found[row.name] = measure(row, those, turn, runs)
        except CannotBeHadError as error:
            rest = ", ".join(row.name for row in these)
            say(f"NOT MEASURED: {rest}, BECAUSE A PART CANNOT BE HAD HERE ({error}).")
    return found


@contextmanager
def _running(
    upstream: str, names: Sequence[str], folder: Path, provider: Issuer, use: Cores
) -> Iterator[dict[str, Contestant]]:
    """Start an upstream and whoever is measured in front of it."""
    with ExitStack() as stack:
        direct = {}
        if upstream == "triton":
            server = stack.enter_context(triton(folder / "triton", write(folder / "models"), use.rest))
            ports = (server.http_port, server.grpc_port)
            models = [model.name for model in MODELS]
            direct["direct"] = Contestant("direct", server.process, server.http, server.grpc)
        else:
            answering = stack.enter_context(nginx_answering(folder / "upstream", ANSWER, use.rest))
            ports = (answering.port, answering.port)
            models = [MODEL]
        others = [name for name in names if name not in direct]
        started = contestants(others, folder, ports, models, provider, use)
        yield direct | stack.enter_context(started)


def measure_memory(wanted: Sequence[str], folder: Path, provider: Issuer) -> dict[str, float]:
    """Measure the proxy's memory."""
    found: dict[str, float] = {}
    if wanted:
        use = cores()
        try:
            with nginx_answering(folder / "upstream", ANSWER, use.rest) as upstream:
                for key in wanted:
                    say(f"{key} …")
                    found[key] = MEMORY[key](folder / key, upstream.port, provider, use)
        except (CannotBeHadError, LoadError) as error:
            say(f"NOT MEASURED: {', '.join(set(wanted) - set(found))} ({error}).")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and last one line of JSON."""
    known = {row.name: row for row in rows()}
    parser = argparse.ArgumentParser(prog="python -m lab.bench.proxy", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=positive, default=5, help="turns that each has in a row (default: 5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a turn is (default: 4)")
    parser.add_argument("--only", nargs="+", choices=[*known, *MEMORY], help="only these rows (default: all)")
    options = parser.parse_args(arguments)
    wanted = options.only or [*known, *MEMORY]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name, issuer() as provider:
        folder = Path(name)
        try:
            rest = [row for row in known.values() if row.name in wanted]
            found = measure_all(rest, options.runs, options.seconds, folder, provider)
            megabytes = measure_memory([key for key in MEMORY if key in wanted], folder, provider)
        except ProcessError as error:
            raise SystemExit(str(error)) from None
    for doubt in doubts(found):
        say(doubt)
    show(table(found), ratios(found, megabytes))


if __name__ == "__main__":
    main()
