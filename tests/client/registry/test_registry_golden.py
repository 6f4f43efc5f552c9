import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.registry.golden import Golden, read_golden

REQUEST = {"inputs": [{"name": "IN", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
NUMBERS = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=8)


def answer(**outputs: list[Any]) -> dict[str, Any]:
    return {"model_name": "m", "outputs": [{"name": name, "data": data} for name, data in outputs.items()]}


@given(NUMBERS)
def test_an_answer_is_as_it_must_be_when_it_is_the_same_flat_or_nested(data: list[float]) -> None:
    assert Golden(request=REQUEST, outputs={"OUT": data}).differences(answer(OUT=data, MORE=[1])) == []
    assert Golden(request=REQUEST, outputs={"OUT": [data]}).differences(answer(OUT=data)) == []


@given(NUMBERS, st.data())
def test_one_element_that_is_off_is_found_and_named(data: list[float], draw: st.DataObject) -> None:
    index = draw.draw(st.integers(0, len(data) - 1))
    other = [*data]
    other[index] = 7.5 if data[index] != 7.5 else 8.5
    (line,) = Golden(request=REQUEST, outputs={"OUT": data}).differences(answer(OUT=other))
    assert f"The first is [{index}]" in line


@pytest.mark.parametrize(
    ("wanted", "found", "tolerance", "same"),
    [
        ([100.0], [100.009], 1e-4, True),
        ([100.0], [100.02], 1e-4, False),
        ([0.0], [0.00009], 1e-4, True),
        ([1], [1.0], 0, True),
        ([1], [True], 0, False),
        (["cat"], ["cat"], 0, True),
        (["cat"], ["dog"], 0, False),
        ([1.0, 2.0], [1.0], 0, False),
        ([True], [False], 0, False),
    ],
)
def test_numbers_may_be_off_a_little_and_nothing_else_may(
    wanted: list[Any], found: list[Any], tolerance: float, same: bool
) -> None:
    golden = Golden(request=REQUEST, outputs={"OUT": wanted}, tolerance=tolerance)
    assert (golden.differences(answer(OUT=found)) == []) == same


def test_a_missing_output_is_named_and_without_outputs_any_response_passes() -> None:
    golden = Golden(request=REQUEST, outputs={"OUT": [1]})
    assert golden.differences(answer(OTHER=[1])) == ["output OUT is not in the answer"]
    assert Golden(request=REQUEST).differences({}) == []


def test_a_file_holds_the_request_alone_or_with_its_outputs() -> None:
    whole = Golden(request=REQUEST, outputs={"OUT": [1.0]}, tolerance=0.5)
    assert read_golden(whole.canonical(), "g.json") == whole
    assert read_golden(json.dumps(REQUEST), "g.json") == Golden(request=REQUEST)
    assert whole.digest() != Golden(request=REQUEST).digest()
    with_outputs = REQUEST | {"outputs": [{"name": "OUT"}]}
    assert read_golden(json.dumps(with_outputs), "g.json").request == with_outputs


def test_a_request_without_inputs_is_refused_before_it_is_sent() -> None:
    with pytest.raises(UsageError, match="no list `inputs`"):
        Golden(request={}).check({}, [], "g.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON\n  why: line 1, column 2: "),
        ("[" * 100_000, "not valid JSON\n  why: nested too deeply"),
        ("[]", "not a golden request"),
        ('{"request": {"inputs": []}, "output": {}}', "output: Extra"),
        ('{"request": {"inputs": []}, "tolerance": -1}', "tolerance"),
        (json.dumps(REQUEST | {"outputs": [{"name": "OUT", "data": [2, 4]}]}), "would not be compared"),
    ],
)
def test_an_invalid_file_is_reported_with_its_place(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_golden(text, "g.json")
    assert caught.value.where == "g.json"
