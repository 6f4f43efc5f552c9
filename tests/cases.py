"""Cases that stand in YAML beside the tests that ask them: a change of something sound, and what is said then."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml


class _Gone:
    def __repr__(self) -> str:
        return "(gone)"


GONE: Final = _Gone()
"""As the value of a change: the key or item is taken away. In a file it is written `(gone)`."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # ten times as fast
    pass


_Loader.add_implicit_resolver("!gone", re.compile(r"\(gone\)$"), ["("])
_Loader.add_constructor("!gone", lambda *_: GONE)


def read_cases(file: Path) -> Any:
    """What stands in a file of cases. A § breaks up what looks like a credential, for scanners, and is left out."""
    return yaml.load(file.read_text("utf-8").replace("§", ""), _Loader)


def each(kind: str, cases: dict[str, dict[str, list[Any]]]) -> list[Any]:
    """Parameters for a test: the name of what is asked, and one of its cases of a kind: `refused` or `accepted`."""
    named = [(name, case) for name, kinds in cases.items() for case in kinds.get(kind, ())]
    return [pytest.param(name, case, id=f"{name}-{' '.join(case.get('change', case))[:40]}") for name, case in named]
