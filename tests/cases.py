"""Cases in YAML files next to their tests: a change of a valid input, and the expected message."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml


class _Gone:
    def __repr__(self) -> str:
        return "(gone)"


GONE: Final = _Gone()
"""The value of a change that removes a key or item. Files contain it as `(gone)`."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # ten times as fast
    pass


_Loader.add_implicit_resolver("!gone", re.compile(r"\(gone\)$"), ["("])
_Loader.add_constructor("!gone", lambda *_: GONE)


def read_cases(file: Path) -> Any:
    """Read a file of cases. It removes each §, which hides test credentials from scanners."""
    return yaml.load(file.read_text("utf-8").replace("§", ""), _Loader)


def each(kind: str, cases: dict[str, dict[str, list[Any]]]) -> list[Any]:
    """Parameters for a test: the name of a rule, and one of its cases of a kind such as `refused` or `accepted`."""
    named = [(name, case) for name, kinds in cases.items() for case in kinds.get(kind, ())]
    return [pytest.param(name, case, id=f"{name}-{' '.join(case.get('change', case))[:40]}") for name, case in named]
