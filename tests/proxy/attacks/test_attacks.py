"""No attack uses half of the proxy's memory or fails another caller's call. `make test-all` runs all attacks."""

from pathlib import Path

import pytest

from .arena import ATTACKERS, Arena, Row, arena
from .attacking import ATTACKS

SECONDS = 1.0
SAMPLE = (
    "streams whose headers expand from one table entry, no key",
    "messages for a model that hangs, each with its own key",
    "lists of thousands of models, with a key",
    "bodies for a model that hangs, over TLS, with a key",
)


def test_a_sample_of_attacks_exhausts_nothing_and_fails_no_other_call(tmp_path: Path) -> None:
    for over_tls in (False, True):
        (root := tmp_path / str(over_tls)).mkdir()
        with arena(root, over_tls) as place:
            for attack in SAMPLE:
                if ATTACKS[attack].over_tls is over_tls:
                    for seconds in (SECONDS, 5 * SECONDS, 25 * SECONDS):  # longer on a busy machine
                        row = place.try_out(attack, ATTACKERS, seconds, 0.0)
                        print(row)
                        if row.is_one:
                            break
                    assert row.fills_and_fails_nothing, row


@pytest.mark.thorough
@pytest.mark.parametrize("over_tls", [False, True])
def test_no_attack_exhausts_the_memory_or_fails_another_call(tmp_path: Path, over_tls: bool) -> None:
    with arena(tmp_path, over_tls) as place:
        attacks = [name for name, each in ATTACKS.items() if each.over_tls is over_tls]
        rows = [_tried(place, attack, number) for attack in attacks for number in (1, ATTACKERS)]
    # `make attack` checks that other calls take less than a second. Here other tests run at the same time.
    harmful = [str(row) for row in rows if not row.fills_and_fails_nothing]
    assert not harmful, "\n".join(harmful)


def _tried(place: Arena, attack: str, number: int) -> Row:
    row = place.try_out(attack, number)
    print(row)
    return row
