import gzip
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.simulate.trace import SimulationError, Trace, read_trace, write_trace
from tidegate_eviction.simulate.zoo import Workload, generate

from .plain import trace_of

MODELS = "m,a,10,300,100\nm,b,0.5,20.5,20\n"


def read(tmp_path: Path, text: str | bytes) -> Trace:
    file = tmp_path / "t.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(file)


def test_a_trace_has_the_content_of_its_lines(tmp_path: Path) -> None:
    trace = read(tmp_path, f"# models\n\n{MODELS}1793707200000,a\n 1793707201500 , b \n1793707201500,a\n")
    a, b = trace.models
    assert (a.name, a.footprint_bytes, a.load_seconds, a.warm_seconds) == ("a", 10_000_000, 0.2, 0.1)
    assert b.footprint_bytes == 500_000
    assert b.load_seconds == pytest.approx(0.0005)
    assert list(trace.requests()) == [(0.0, 0), (1.5, 1), (1.5, 0)]
    assert trace.total_bytes == 10_500_000


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (MODELS, None, "has no requests"),
        (f"{MODELS}0,c\n", 3, "no line above describes the model 'c'"),
        (f"{MODELS}0,a\nm,c,1,2,1\nhello\n", 5, "neither"),
        (f"{MODELS}0,a,b\n", 3, "neither"),
        (f"{MODELS}5,a\n4,b\n", 4, "time_ms goes back"),
        (f"{MODELS}-1,a\n", 3, "from 0"),
        (f"{MODELS}nan,a\n", 3, "from 0"),
        (f"{MODELS}soon,a\n", 3, "'soon'"),
        (f"{MODELS}m,a,1,2,1\n0,a\n", 3, "described twice"),
        ("m,a,1,2e12,1\n0,a\n", 1, "less than 1e+09"),
        (f"{MODELS}0,a\n1793707200000,a\n", 4, "20,760 days after the first request"),
        ("m,a,0,2,1\n0,a\n", 1, "above 0"),
        ("m,a,10,100,300\n0,a\n", 1, "must include it"),
        ("m,a,10,100\n0,a\n", 1, "is not `m,id"),
        ("m,a,large,100,1\n0,a\n", 1, "footprint_mb is 'large'"),
    ],
)
def test_errors_are_reported_with_file_and_line(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    with pytest.raises(SimulationError) as caught:
        read(tmp_path, text)
    where = f"{tmp_path / 't.csv'}:{line}: " if line else f"{tmp_path / 't.csv'}: "
    assert str(caught.value).startswith(where)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00m", b"\x1f\x8bno gzip", gzip.compress(b"0,a\n" * 99, mtime=0)[:-9]])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SimulationError, match=r"t\.csv: "):
        read(tmp_path, content)


def test_files_that_cannot_be_read_or_written_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(SimulationError, match="cannot be read"):
            read_trace(path)
    (tmp_path / "file").write_text("")
    for folder in ("file", "none"):
        with pytest.raises(SimulationError, match="cannot be written"):
            write_trace(trace_of([(0.0, 0)], (1_000_000, 1.0, 1.0)), tmp_path / folder / "t.csv")
    assert not (tmp_path / "none").exists()


def test_a_trace_is_known_by_its_content_gzipped_or_with_the_mark_that_editors_put_before_it(tmp_path: Path) -> None:
    for content in (gzip.compress(f"{MODELS}0,a\n".encode(), mtime=0), b"\xef\xbb\xbfm,a,1,2,1\r\n5,a\r\n"):
        assert len(read(tmp_path, content)) == 1


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**5)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 4)), min_size=1, max_size=30),
    st.sampled_from(["t.csv", "t.csv.gz"]),
)
def test_written_text_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    models: list[tuple[int, int, int]],
    requests: list[tuple[int, int]],
    name: str,
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    calls = sorted((time / 1e3, which % len(models)) for time, which in [(0, 0), *requests])
    trace = trace_of(calls, *((size * 1000, load / 1e3, warm / 1e3) for size, load, warm in models))
    write_trace(trace, folder / name, "made by a test")
    again = read_trace(folder / name)
    assert list(again.which) == list(trace.which)
    assert list(again.seconds) == pytest.approx(list(trace.seconds))
    for one, other in zip(again.models, trace.models, strict=True):
        assert (one.name, one.footprint_bytes) == (other.name, other.footprint_bytes)
        assert (one.load_seconds, one.warm_seconds) == pytest.approx((other.load_seconds, other.warm_seconds))
    before = (folder / name).read_bytes()
    write_trace(again, folder / name, "made by a test")
    assert (folder / name).read_bytes() == before


STEADY = Workload(bursty=0, nightly=0, diurnal=0)


@pytest.mark.parametrize("seed", range(3))
def test_requests_come_in_time_order_and_about_as_many_as_wanted(seed: int) -> None:
    trace = generate(Workload(seed=seed))
    assert list(trace.seconds) == sorted(trace.seconds)
    assert 0 <= trace.seconds[0] <= trace.seconds[-1] < 24 * 3600
    assert 0.5 * 20_000 < len(trace) < 2 * 20_000


def test_timers_call_at_regular_times_a_moment_late_and_sometimes_more_than_once() -> None:
    trace = generate(replace(STEADY, periodic=1, models=8, requests=4000))
    times: dict[int, list[float]] = {}
    for at, which in trace.requests():
        times.setdefault(which, []).append(at)
    calls = set()
    for each in times.values():
        gaps = [after - before for before, after in itertools.pairwise(each)]
        pauses = [gap for gap in gaps if gap > 1]
        assert max(pauses) - min(pauses) < 4.1
        calls.add(round((len(each) - 1) / len(pauses)))
    assert calls == {1, 2, 3}
