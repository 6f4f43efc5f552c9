from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tidegate.calling.inputs import Inputs, Signature, TensorSpec, requests, signature_of, take
from tidegate.errors import UsageError

FEATURES = Signature((TensorSpec("input__0", "FP32", (3,)),), (TensorSpec("output__0", "FP32", (1,)),), 8, False)
PAIR = Signature((TensorSpec("A", "INT32", (1,)), TensorSpec("B", "FP32", (2,))), (), 4, False)
WHOLE = Signature((TensorSpec("X", "INT32", (16,)),), (), 0, False)
WORDS = Signature((TensorSpec("TEXT", "BYTES", (1,)),), (), 4, False)
ANY = Signature((TensorSpec("X", "FP32", (-1,)), TensorSpec("OPTIONAL", "INT32", (1,), True)), (), 0, False)


def table(rows: Any, columns: list[str] | None = None) -> Callable[[], Any]:
    """Return the constructor of tables. pandas takes long to import, so it is not imported at collection."""

    def make() -> Any:
        import pandas

        return pandas.DataFrame(rows, columns=columns)

    return make


def made(value: Any) -> Any:
    return value() if callable(value) else value


def shapes(found: Inputs) -> dict[str, list[int]]:
    return {name: list(array.shape) for name, array in found.inputs.items()}


def test_a_signature_is_read_from_tritons_configuration() -> None:
    config = {
        "max_batch_size": 8,
        "input": [{"name": "T", "data_type": "TYPE_STRING", "dims": ["-1", 2], "optional": True}],
        "output": [{"name": "Y", "data_type": "TYPE_FP16", "dims": [1]}],
        "model_transaction_policy": {"decoupled": True},
    }
    found = signature_of(config)
    assert found == Signature((TensorSpec("T", "BYTES", (-1, 2), True),), (TensorSpec("Y", "FP16", (1,)),), 8, True)
    assert str(found) == "T BYTES[any, 2] (optional), up to 8 rows per request"
    assert found.required == ()


def test_columns_of_a_table_are_the_features_of_the_only_input() -> None:
    frame = table({"age": [1, 2], "sum": [0.5, 1.5], "days": [3, 4]})
    found = take(frame(), FEATURES)
    assert found.inputs["input__0"].dtype == numpy.float32
    assert found.inputs["input__0"].tolist() == [[1, 0.5, 3], [2, 1.5, 4]]
    assert (found.rows, found.batched) == (2, True)
    lacking = table({"a": [1, None], "b": [1, 2], "c": [1, 2]})
    assert numpy.isnan(take(lacking(), FEATURES).inputs["input__0"][1, 0])


@pytest.mark.parametrize(
    ("value", "signature", "inputs"),
    [
        (
            table({"A": [1, 2, 3], "B": [[1, 2], (3, 4), numpy.array([5, 6])]}),
            PAIR,
            {"A": [[1], [2], [3]], "B": [[1, 2], [3, 4], [5, 6]]},
        ),
        ([{"A": 1, "B": [1, 2]}, {"A": 2, "B": [3, 4]}], PAIR, {"A": [[1], [2]], "B": [[1, 2], [3, 4]]}),
        ({"A": [7], "B": [1, 2]}, PAIR, {"A": [[7]], "B": [[1, 2]]}),
        *(
            ({"A": value, "B": [1, 2]}, PAIR, {"A": [[number]], "B": [[1, 2]]})
            for value, number in ((7, 7), ([1.0], 1), ([True], 1), ([2**31 - 1], 2**31 - 1))
        ),
        (lambda: table({"": ["a", "b"]})()[""], WORDS, {"TEXT": [[b"a"], [b"b"]]}),
        (["a", "b", "c"], WORDS, {"TEXT": [[b"a"], [b"b"], [b"c"]]}),
        ({"TEXT": [["ä"], [b"\x00\xff\x00"]]}, WORDS, {"TEXT": [["ä".encode()], [b"\x00\xff\x00"]]}),
        ({"TEXT": "hello"}, WORDS, {"TEXT": [[b"hello"]]}),
        (numpy.zeros((2, 3)), FEATURES, {"input__0": [[0, 0, 0], [0, 0, 0]]}),
        ([1.0, 2.0, 3.0], FEATURES, {"input__0": [[1, 2, 3]]}),
        (table({"X": [1, 2, 3]}), ANY, {"X": [1, 2, 3]}),
        ({"X": 7}, Signature((TensorSpec("X", "INT32", (1,)),), (), 0, False), {"X": [7]}),
    ],
)
def test_python_values_become_tensors(value: Any, signature: Signature, inputs: dict[str, Any]) -> None:
    assert {name: array.tolist() for name, array in take(made(value), signature).inputs.items()} == inputs


@given(st.integers(1, 30))
def test_batches_are_no_longer_than_the_model_takes_and_lose_no_row(rows: int) -> None:
    given_ = take(numpy.arange(rows * 3).reshape(rows, 3), FEATURES)
    parts = [each["input__0"] for each in requests(given_, FEATURES)]
    assert all(1 <= len(part) <= 8 for part in parts)
    assert numpy.concatenate(parts).tolist() == numpy.arange(rows * 3).reshape(rows, 3).tolist()


def test_a_model_without_batches_gets_each_row_as_a_request() -> None:
    whole = take(numpy.arange(16), WHOLE)
    assert (shapes(whole), whole.rows) == ({"X": [16]}, None)
    rows = take(table({"X": [list(range(16)), list(range(16, 32))]})(), WHOLE)
    assert [each["X"].tolist() for each in requests(rows, WHOLE)] == [list(range(16)), list(range(16, 32))]


def test_a_number_too_large_for_a_float_does_not_become_infinite() -> None:
    assert take([1e38, float("inf"), 0], FEATURES).inputs["input__0"].tolist() == [[pytest.approx(1e38), numpy.inf, 0]]
    with pytest.raises(UsageError, match="cannot hold"):
        take([1e300, 0, 0], FEATURES)


@pytest.mark.parametrize(("number", "stays"), [(2**24, True), (2**25, True), (2**24 + 1, False), (2**63 - 1, False)])
def test_whole_numbers_that_a_float_cannot_hold_exactly_are_refused(number: int, stays: bool) -> None:
    if stays:
        assert take([number, -number, 0], FEATURES).inputs["input__0"].tolist() == [[number, -number, 0]]
    else:
        with pytest.raises(UsageError, match=rf"whole number {number}, which FP32 cannot hold exactly"):
            take([number, 1, 0], FEATURES)
    assert take([float(number), 0.1, 0], FEATURES).inputs["input__0"].shape == (1, 3)


WRONG: dict[str, tuple[Any, Signature, str]] = {
    "a-name": ({"A": [1], "C": [1, 2]}, PAIR, r"no input 'C'"),
    "a-near-name": ({"TEXTS": ["a"]}, WORDS, r"did you mean TEXT\?"),
    "one-missing": ({"A": [1]}, PAIR, r"B is missing(.|\n)*B FP32\[2\]"),
    "no-names": ([1, 2], PAIR, "you must name them"),
    "a-shape": ({"A": [1], "B": [1, 2, 3]}, PAIR, r"input B has the shape \[3\]"),
    "rows": ({"A": [[1], [2]], "B": [[1, 2]]}, PAIR, "different numbers of rows"),
    "columns": (table({"x": [1], "y": [2]}), FEATURES, "no column of the table is an input: x, y"),
    "twice": (table([[1, 2]], columns=["A", "A"]), PAIR, "two columns of the same name"),
    "cells": (table({"A": [1, 2], "B": [[1, 2], [3]]}), PAIR, "differ in shape"),
    "ragged": ({"A": [[1], [2, 3]], "B": [1, 2]}, PAIR, "input A"),
    "uneven": ([{"A": 1, "B": [1, 2]}, {"A": 1}], PAIR, "different inputs"),
    "whole": (numpy.zeros((2, 2, 16)), WHOLE, r"\[2, 2, 16\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_inputs_that_do_not_fit_are_refused_with_the_signature(name: str) -> None:
    value, signature, words = WRONG[name]
    with pytest.raises(UsageError, match=words):
        take(made(value), signature)


whatever = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.dates()
    | st.complex_numbers()
    | st.decimals()
    | st.builds(object),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(st.sampled_from("ABXTEXT"), inner),
    max_leaves=10,
)
arrays_of_any = arrays.arrays(
    arrays.scalar_dtypes() | arrays.byte_string_dtypes(max_len=3),
    arrays.array_shapes(min_dims=0, min_side=0, max_side=4),
)
tables = st.dictionaries(st.sampled_from(["A", "B", "X", "TEXT", "y"]), st.lists(whatever, min_size=2, max_size=2)).map(
    lambda rows: table(rows)()
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(whatever | arrays_of_any | tables | st.fixed_dictionaries({"A": whatever | arrays_of_any, "B": whatever}))
def test_any_value_fits_or_is_refused(value: Any) -> None:
    for signature in (FEATURES, PAIR, WHOLE, WORDS, ANY):
        try:
            found = list(requests(take(value, signature), signature))
        except UsageError:
            continue
        for inputs in found:
            known = {each.name: each for each in signature.inputs}
            for name, array in inputs.items():
                rows = array.shape[1:] if signature.max_batch else array.shape
                assert known[name].fits(rows), (name, array.shape)


@pytest.mark.parametrize(
    ("given", "value", "row"),
    [
        ({"age": [1, 2, 1.5], "who": ["a"] * 3}, "1.5", 2),
        ({"age": [1, float("nan")], "who": ["a"] * 2}, "nan", 1),
        ({"age": [1, None], "who": ["a"] * 2}, "None", 1),
        ({"age": "NA", "who": ["a"] * 2}, "<NA> (a missing value)", 1),
        ({"age": ["x", 1], "who": ["a"] * 2}, "'x'", 0),
        ({"age": [2**70], "who": ["a"]}, "11805916207174", 0),
        ({"age": [float(2**63)], "who": ["a"]}, "9.22", 0),
        ({"age": [1, 2], "who": ["a", 5]}, "5", 1),
        ({"age": [1, 2], "who": [None, "b"]}, "None", 0),
    ],
)
def test_a_refusal_names_input_value_row_and_accepted_type(given: dict[str, Any], value: str, row: int) -> None:
    inputs = [
        {"name": "age", "data_type": "TYPE_INT64", "dims": [1]},
        {"name": "who", "data_type": "TYPE_STRING", "dims": [1]},
    ]
    if given["age"] == "NA":
        import pandas

        given = given | {"age": pandas.array([1, pandas.NA], dtype=object)}
    with pytest.raises(UsageError) as refused:
        take(given, signature_of({"max_batch_size": 8, "input": inputs, "output": []}))
    wrong = "who" if (value, row) in (("5", 1), ("None", 0)) else "age"
    assert refused.value.what.startswith(f"input {wrong} contains {value}")
    assert f"row {row}" in refused.value.what
    assert f"{wrong} {'BYTES' if wrong == 'who' else 'INT64'}[1]" in refused.value.do
