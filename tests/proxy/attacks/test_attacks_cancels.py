"""A caller who cancels thousands of calls a second, over the links that others use, too."""

from pathlib import Path

import pytest

from . import arena

CALLS, SECONDS = 10_000, 10.0
MOST = 1_100
"""Frames that move nothing, in 5 s, for which the proxy ends a link here: more than a caller cancels over a connection,
and fewer than the replica sends, which resets each cancelled call, too: some 2,000 a second where little else runs, so
that a busy machine might never reach the 10,000 that it is always."""
GRPC = "calls that are cancelled at the server, which others use, with a key"
HTTP = "requests whose caller leaves, of a server that others use, with a key"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("attack", "attackers", "a_second", "begun_in_5_s"),
    # Over HTTP each takes a connection: a busy machine makes some 2,000 a second beside those that it serves, and most
    # are left before their call reaches the replica.
    [pytest.param(GRPC, 2, 10_000, MOST + 1, id="gRPC"), pytest.param(HTTP, 1, 500, 20, id="HTTP")],
)
def test_none_of_ten_thousand_calls_of_others_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str, attackers: int, a_second: int, begun_in_5_s: int
) -> None:
    monkeypatch.setattr(arena, "PAUSE_SECONDS", 0.0)
    calls, begun, seconds, failures = 0, 0, 0.0, list[str]()
    with arena.arena(tmp_path, most_control_frames=MOST) as place:
        while calls < CALLS:
            row = place.try_out(attack, attackers, SECONDS)
            print(f"{row}; {row.did['cancels'] / SECONDS:,.0f} cancels a second")
            assert row.is_one, row
            assert row.did["cancels"] >= a_second * SECONDS, row
            calls, seconds = calls + row.calls, seconds + SECONDS
            begun += row.did["at a replica"]
            failures += row.failures
    # In all: how many get there in a single turn, a busy machine decides.
    assert begun >= begun_in_5_s * seconds / 5, "they have begun there when they are cancelled"
    assert failures == []
