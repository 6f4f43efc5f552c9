import re
from pathlib import Path

from tidegate_contracts import labels

ROOT = Path(__file__).parents[2]


def test_a_label_by_which_pods_are_found_is_spelled_in_one_place() -> None:
    names = [value for name, value in vars(labels).items() if name.isupper()]
    spelled = re.compile("|".join(f'"{re.escape(name)}"' for name in names))
    rooms = ("charts", "components", "contracts", "lab", "policies", "proxy", "rollout", "stacks")
    found = {file for room in rooms for file in (ROOT / room).rglob("*.py") if spelled.search(file.read_text("utf-8"))}
    assert found == {Path(labels.__file__)}
