from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from rollout.render import yaml_text
from stacks.load import parse

KEYS = st.text("abcXYZ.-/09", min_size=1, max_size=8).filter(lambda key: key != "<<")
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=30),
    st.text(" \n#:-'\"ab{}[]&*!|>%@`\\", max_size=20),
    st.sampled_from(["y", "no", "1e3", "12e4567", "0o17", "0x1f", "1_000", "1.", ".5", "null", "~", "1:30", "=", "<<"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=15,
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_written_text_is_read_back_by_parsers_of_both_yaml_versions(item: dict[str, Any]) -> None:
    text = yaml_text(item)
    assert yaml.safe_load(text) == item
    if item:
        assert parse(text, "f.yaml").tree == item


def test_texts_that_other_parsers_read_as_numbers_or_booleans_are_quoted() -> None:
    for text in ("y", "N", "1e3", "12e4567", "0o17", "1.5e3"):
        assert yaml_text({"a": text}) == f"a: '{text}'\n"
    same = {"x": [1]}
    assert "&" not in yaml_text({"a": same, "b": same}), "a value that stands twice is written twice"
