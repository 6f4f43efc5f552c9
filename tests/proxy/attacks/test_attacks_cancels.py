"""A caller who cancels thousands of calls a second, over the links that others use, too."""

from pathlib import Path

import pytest

from . import arena

CALLS, SECONDS = 10_000, 10.0
GRPC = "calls that are cancelled at the server, which others use, with a key"
HTTP = "requests whose caller leaves, of a server that others use, with a key"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("attack", "attackers", "a_second"),
    # Over HTTP each takes a connection, of which one machine makes no more beside those that it serves.
    [pytest.param(GRPC, 2, 10_000, id="gRPC"), pytest.param(HTTP, 1, 200, id="HTTP")],
)
def test_none_of_ten_thousand_calls_of_others_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str, attackers: int, a_second: int
) -> None:
    monkeypatch.setattr(arena, "PAUSE_SECONDS", 0.0)
    calls, begun, failures = 0, 0, list[str]()
    with arena.arena(tmp_path) as place:
        while calls < CALLS:
            row = place.try_out(attack, attackers, SECONDS)
            print(f"{row}; {row.did['cancels'] / SECONDS:,.0f} cancels a second")
            assert row.is_one, row
            assert row.did["cancels"] >= a_second * SECONDS, row
            begun += row.did["at the replica"]
            calls += row.calls
            failures += row.failures
    assert begun >= 200, "some have begun there when they are cancelled"
    assert failures == []
