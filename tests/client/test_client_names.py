"""One rule for names: what can be made can be registered, published and called."""

from pathlib import Path

import pytest
from tidegate.calling.address import model_path
from tidegate.errors import UsageError
from tidegate.registry.manifest import checked_name
from tidegate.triton.entries.write import new_entry
from tidegate.triton.publishing.repository import checked_model

from tests.client.triton.entries.files import FILES


@pytest.mark.parametrize("name", ["a" * 128, ".a", "-a", "a/b", "a b", "ä", "", "a\n"])
def test_a_name_that_is_none_is_refused_everywhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not more than 127"):
        new_entry(name, [FILES / "double.py"], tmp_path)
    with pytest.raises(UsageError, match="not more than 127"):
        checked_name(name)
    with pytest.raises(UsageError, match="not more than 127"):
        checked_model(name)
    with pytest.raises(UsageError, match="not more than 127"):
        model_path(None, name, None)


@pytest.mark.parametrize("name", ["a" * 127, "_a", "9", "a.b-c_d"])
def test_a_name_is_taken_everywhere(name: str) -> None:
    assert checked_name(name) == checked_model(name) == name
    assert name in model_path(None, name, None)
