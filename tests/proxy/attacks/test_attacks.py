"""No attack makes the proxy hold half of its memory, or fails another's call: a sample here, all in `make test-all`."""

from pathlib import Path

import pytest

from . import arena as arenas
from .arena import ATTACKERS, Arena, Row, arena
from .attacking import ATTACKS

SECONDS = 1.0
SAMPLE = (
    "streams whose headers unfold from one entry, no key",
    "messages for a model that hangs, each with its own key",
    "where thousands of models are, with a key",
    "bodies for a model that hangs, over TLS, with a key",
)


def test_a_sample_of_attacks_exhausts_nothing_and_fails_no_other_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arenas, "SETTLED_SECONDS", 0.0)
    for over_tls in (False, True):
        (root := tmp_path / str(over_tls)).mkdir()
        with arena(root, over_tls) as place:
            for attack in SAMPLE:
                if ATTACKS[attack].over_tls is over_tls:
                    for seconds in (SECONDS, 5 * SECONDS, 25 * SECONDS):  # on a machine that has other work
                        row = place.try_out(attack, ATTACKERS, seconds)
                        print(row)
                        if row.is_one:
                            break
                    assert row.fills_and_fails_nothing, row


@pytest.mark.thorough
@pytest.mark.parametrize("over_tls", [False, True])
def test_no_attack_fills_the_memory_or_fails_anybody(tmp_path: Path, over_tls: bool) -> None:
    with arena(tmp_path, over_tls) as place:
        attacks = [name for name, each in ATTACKS.items() if each.over_tls is over_tls]
        rows = [_tried(place, attack, number) for attack in attacks for number in (1, ATTACKERS)]
    # That a call of others takes less than a second, `make attack` asks: other tests are at work beside this one.
    harmful = [str(row) for row in rows if not row.fills_and_fails_nothing]
    assert not harmful, "\n".join(harmful)


def _tried(place: Arena, attack: str, number: int) -> Row:
    row = place.try_out(attack, number)
    print(row)
    return row
