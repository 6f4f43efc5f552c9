"""The speed of the proxy against common alternatives: `python -m lab.bench.proxy`.

The proxy runs with all its checks: it verifies tokens, applies rules and limits, counts, and tags requests. nginx and
Envoy only forward. The contestant has one core. Callers and the upstream share another one. All contestants take turns
in every run. The ratios are medians of the ratios within a run. The last line is JSON.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from lab.bench import report
from lab.bench.report import Figures, Goal
from lab.local_plane.process import Server
from lab.local_plane.triton import triton
from tests.proxy.rigs.issuer import Issuer, issuer
from tests.proxy.rigs.peers import nginx_answering
from tests.proxy.rigs.repository import MODELS, write
from tests.proxy.rigs.tables import GROUP

from .contestants import DIRECT, Cores, contestants, cores
from .memory import busy_megabytes, idle_megabytes, reload_ratio
from .rows import ANSWER, MODEL, Row, Turn, measure, rows

TOKEN_SECONDS = 24 * 3600
ROWS = {row.name: row for row in rows()}
MEMORY: dict[str, Callable[[Path, int, Issuer, Cores], float]] = {
    "rss_mb": idle_megabytes,
    "rss_mb_10k": busy_megabytes,
    "reload_p99_vs_before": reload_ratio,
    "reload_all_p99_vs_before": partial(reload_ratio, all_changed=True),
}
GOALS = {key: goal for row in ROWS.values() for key, goal in row.goals().items()} | {
    "rss_mb": Goal("MiB that the proxy takes, idle", "report"),
    "rss_mb_10k": Goal("MiB with 10,000 models and callers", "report"),
    "reload_p99_vs_before": Goal("p99 while tables of 10,000 models are taken over, against before", "≤ 1.5"),
    "reload_all_p99_vs_before": Goal("the same where all of them have changed each time", "≤ 1.5"),
}


def measure_rows(wanted: Sequence[Row], runs: int, seconds: float, folder: Path, provider: Issuer) -> Figures:
    """Measure rows of one upstream."""
    use = cores()
    folder.mkdir()
    names = list(dict.fromkeys(name for row in wanted for name in row.names))
    turn = Turn(seconds, use, folder, provider.token("bench", [GROUP], TOKEN_SECONDS))
    found = Figures()
    with _running(wanted[0].upstream, names, folder, provider, use) as those:
        for row in wanted:
            of_row = measure(row, those, turn, runs)
            found.figures |= of_row.figures
            found.lines += of_row.lines
    return found


@contextmanager
def _running(
    upstream: str, names: Sequence[str], folder: Path, provider: Issuer, use: Cores
) -> Iterator[dict[str, Server]]:
    """Start an upstream and the contestants in front of it."""
    with ExitStack() as stack:
        direct: dict[str, Server] = {}
        server: Server
        if upstream == "triton":
            server = stack.enter_context(triton(folder / "triton", write(folder / "models"), use.rest))
            direct[DIRECT], models = server, [model.name for model in MODELS]
        else:
            server = stack.enter_context(nginx_answering(folder / "upstream", ANSWER, use.rest))
            models = [MODEL]
        others = [name for name in names if name not in direct]
        ports = (server.http_port, server.grpc_port)
        yield direct | stack.enter_context(contestants(others, folder, ports, models, provider, use.measured))


def measure_memory(key: str, folder: Path, provider: Issuer) -> Figures:
    """Measure the proxy's memory, or the cost of a new table."""
    use = cores()
    with nginx_answering(folder / f"{key}-upstream", ANSWER, use.rest) as upstream:
        return Figures({key: MEMORY[key](folder / key, upstream.http_port, provider, use)})


def main() -> None:
    """Measure, and print the table and one line of JSON."""
    parser = report.arguments("lab.bench.proxy", __doc__)
    parser.add_argument("--runs", type=int, default=5, help="turns that each has in a row (default: 5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a turn is (default: 4)")
    parser.add_argument("--only", nargs="+", choices=[*ROWS, *MEMORY], help="only these rows (default: all)")
    options = parser.parse_args()
    wanted = options.only or [*ROWS, *MEMORY]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name, issuer() as provider:
        folder = Path(name)
        parts = {}
        for upstream in ("simple", "triton"):
            if these := [row for row in ROWS.values() if row.name in wanted and row.upstream == upstream]:
                place = folder / upstream
                parts[upstream] = partial(measure_rows, these, options.runs, options.seconds, place, provider)
        parts |= {key: partial(measure_memory, key, folder, provider) for key in MEMORY if key in wanted}
        found = report.measure(GOALS, parts)
    about = "medians of runs in turns. Each has one core. Its callers and the upstream share another"
    report.print_all("The proxy, with all its checks, against others, which forward", about, GOALS, found)


if __name__ == "__main__":
    main()
