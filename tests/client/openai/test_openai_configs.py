import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.openai import configs
from tidegate.repository import Published


@given(st.integers(1, 10**17), st.sets(st.integers(1, 10**17)), st.dictionaries(st.text(), st.integers(1, 10**17)))
def test_a_written_configuration_is_read_back(owner: int, numbers: set[int], aliases: dict[str, int]) -> None:
    text = configs.published_config("", model="chat", owner=owner, served=numbers, aliases=aliases)
    assert configs.read_published(text) == Published(owner, tuple(sorted(numbers)), aliases)
    assert configs.read_published(configs.withdrawn_config(text)) == Published(owner, (), {})
    assert configs.config_differences(text, text) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"owner": "1", "served": [], "aliases": {}}', '{"owner": 1}'])
def test_a_configuration_of_others_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match=r"tidegate\.json cannot be read"):
        configs.read_published(text)
