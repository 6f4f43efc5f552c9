"""`list` and `retry`: a table for people, and one clear sentence when there is no policy."""

import io

import pytest
from rich.console import Console
from tidegate_contracts.lease import LeaseOf
from tidegate_eviction.__main__ import app
from tidegate_eviction.listing import ListingError, fetch, show
from tidegate_eviction.units import bytes_text, seconds_text
from typer.testing import CliRunner

from lab.local_plane.process import HOST, free_ports

from .serving.views import MIB, listed, view


def table(*models: object) -> str:
    output = io.StringIO()
    show(view(*models).listing, Console(file=output, width=160))  # type: ignore[arg-type]
    return output.getvalue()


def test_every_model_has_a_line_and_those_in_memory_come_first() -> None:
    lease = LeaseOf(holder="p", seconds_left=9, in_flight=1)
    text = table(
        listed("cold-one", "cold"),
        listed("a", footprint_bytes=70 * MIB, footprint_from="measured", idle_seconds=3, leases=(lease,), pinned=True),
        listed("b", "queued", waiters=4, why="waits for room"),
    )
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["MODEL", "STATE", "FOOTPRINT"]
    assert [line.split()[0] for line in lines[1:4]] == ["a", "b", "cold-one"]
    assert lines[1].split() == ["a", "resident", "70.0", "MiB", "measured", "3.0", "s", "–", "1", "0", "pinned"]
    assert lines[2].rstrip().endswith("4  waits for room")
    assert lines[-1] == (
        "resident 70.0 MiB · loading 0 B · freeing 0 B · leaked 0 B · free 930 MiB of 1000 MiB · policy lru-idle"
    )


def test_a_name_is_no_markup() -> None:
    assert "[red]x[/red]" in table(listed("[red]x[/red]", why="[/]"))


def test_what_others_said_is_one_line_and_no_order_to_a_terminal() -> None:
    text = table(listed("a", "quarantined", why="it failed:\n\nAt:\n  model.py(11)\x1b[2J\x1b]0;title\x07\x9b2J\n;\n"))
    assert text.splitlines()[1].rstrip().endswith("it failed: At: model.py(11) [2J ]0;title 2J ;")
    assert not set(text) & set("\x1b\x07\x9b")


def test_where_no_policy_is_it_says_what_to_do() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ListingError, match=f"No eviction policy answers at {HOST}:{port}: .*refused.*Say --address"):
        fetch(f"{HOST}:{port}")
    with pytest.raises(ListingError, match="No eviction policy answers at no address"):
        fetch("no address")


@pytest.mark.parametrize(
    ("command", "advice"), [(["list"], "list"), (["retry", "a"], "retry a"), (["retry", "a b"], "retry 'a b'")]
)
def test_a_command_without_a_policy_ends_with_one_sentence(command: list[str], advice: str) -> None:
    (port,) = free_ports(1)
    done = CliRunner().invoke(app, [*command, "--address", f"{HOST}:{port}"])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(f" -- python -m tidegate_eviction {advice}\n")


@pytest.mark.parametrize(
    ("size", "said"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (10**9, "954 MiB"), (2**50, "1024 TiB")],
)
def test_sizes_are_said_in_the_unit_that_fits(size: int | None, said: str) -> None:
    assert bytes_text(size) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "–"), (0.04, "0.0 s"), (9.96, "10.0 s"), (119, "119 s"), (300, "5 min"), (9000, "2.5 h")],
)
def test_times_are_said_in_the_unit_that_fits(seconds: float | None, said: str) -> None:
    assert seconds_text(seconds) == said
