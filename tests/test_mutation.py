"""What the mutation check breaks in a program, and what it leaves as it is written."""

import pytest

from .mutation import mutants


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("if one < two: pass  # type: ignore", ["if ((one) <= (two)): pass  # type: ignore"]),
        ("while here: pass", ["while (not (here)): pass"]),
        ("if TYPE_CHECKING: import x", []),
        ("é = one + 'é'", []),
        ("é = one + two  # 'é'", ["é = ((one) - (two))  # 'é'"]),
        ("def f(): return None", []),
        ("def f(): return (one,  # type: ignore\n two)", ["def f(): return None"]),
        ("here(\n one)  # noqa", ["None  # noqa"]),
        ("x = True", ["x = False"]),
        ("x = 1 or y", ["x = ((1) and (y))", "x = 2 or y"]),
    ],
)
def test_a_mutant_differs_from_the_program_in_one_place_alone(line: str, broken: list[str]) -> None:
    before, after = "é = x  # type: ignore[é]\n", "\ny: int  # noqa\n"
    found = sorted(mutant for _, _, mutant in mutants(before + line + after))
    assert found == [before + each + after for each in broken]
