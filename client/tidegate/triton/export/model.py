"""Loads a scikit-learn model from MLflow's format, converts it to ONNX with skl2onnx, and calls both."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy

from ...calling.inputs import is_frame
from ...calling.tensors import Array
from ...errors import UsageError, install
from ...registry.server import quiet

_LIBRARIES: Final = {"joblib", "onnxruntime", "pandas", "skl2onnx", "sklearn", "skops"}
_ELSEWHERE: Final = {
    "xgboost": "save it with Booster.save_model('model.json'), then run `tidegate model new`",
    "lightgbm": "save it with Booster.save_model('model.txt'), then run `tidegate model new`",
    "pytorch": "export it with torch.onnx.export, then run `tidegate model new`",
}
"""Remedies for models of MLflow's other flavors. The first match counts, because wrappers also have scikit-learn's."""
_OPSET: Final = {"": 17, "ai.onnx.ml": 3}  # supported by ONNX Runtime since 2022
_LOCALE: Final = "C.UTF-8"  # For lower case. Linux images have it, but seldom ONNX Runtime's default, en_US.UTF-8.
_ROWS: Final = "N"  # the first dimension of every tensor, of any size
OTHERWISE: Final = (
    "leave unknown steps to the callers, or serve the model with Triton's Python backend: tidegate model new --help"
)
_INPUTS: Final = (
    "pass rows of numbers (.npy), or columns by name with equal numbers of rows (.csv, .json, .npz). Encode texts if "
    "the model takes numbers, and convert sparse matrices (matrix.toarray())"
)


@dataclass(frozen=True)
class Source:
    """A model as an object of its library."""

    model: Any
    example: Any = None  # the inputs that MLflow saved with it, if any


@dataclass(frozen=True)
class Sample:
    """The same rows in the formats of the original and of the exported model."""

    given: Any
    tensors: dict[str, Array]
    rows: int

    def resized(self, rows: int) -> "Sample":
        """Return tensors with this number of rows, repeated if there are fewer."""
        return replace(self, tensors={name: resized(each, rows) for name, each in self.tensors.items()}, rows=rows)


def resized(array: Array, rows: int) -> Array:
    """Return the first rows of an array, repeated if it has fewer."""
    return numpy.resize(array, (rows, *array.shape[1:]))


@contextmanager
def failing(what: str, where: str, do: str = "") -> Iterator[None]:
    """Turn exceptions of a library or a loaded model into UsageError, which names a missing package."""
    try:
        with quiet():
            yield
    except UsageError:
        raise
    except Exception as error:
        missing = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if missing in _LIBRARIES:
            do = install("sklearn")
            raise UsageError(f"exporting this needs {missing}", where=where, why=str(error), do=do) from None
        text = " ".join(str(error).split()).partition(" Stack trace:")[0][:400]
        if "Failed to construct locale" in text:
            do = f"install the locale {_LOCALE}, here and where the model is served"
        raise UsageError(what, where=where, why=f"{type(error).__name__}: {text or 'no reason given'}", do=do) from None


def load(folder: Path, *, trusted: bool) -> Source:
    """Load a model from MLflow's format. Raises TidegateError. Loads pickles, which run code, only if `trusted`."""
    source = str(folder)
    if not (folder / "MLmodel").is_file():
        do = "fetch one with `mlflow artifacts download`, or write one with mlflow.<library>.save_model"
        raise UsageError("not a directory of MLflow", where=source, why="it has no file MLmodel", do=do)
    from mlflow.models import Model

    with failing("MLflow cannot read the file MLmodel", source):
        described = Model.load(str(folder))
        example = described.load_input_example(str(folder)) if described.saved_input_example_info else None
    flavor = next((each for each in (*_ELSEWHERE, "sklearn") if each in described.flavors), None)
    if flavor != "sklearn":
        do = _ELSEWHERE.get(flavor or "", "use `tidegate model new`: only sklearn models can be exported")
        raise UsageError(f"it has the flavors {', '.join(described.flavors)}", where=source, do=do)
    file = folder / str(described.flavors[flavor].get("pickled_model", ""))
    do = "install the versions of the libraries that saved it, and add the directory of your modules to PYTHONPATH"
    with failing("sklearn cannot load it", source, do):
        if file.suffix == ".skops":
            return Source(_skops(file, source, trusted), example)
        _check_trusted(source, trusted)
        import mlflow.sklearn

        return Source(mlflow.sklearn.load_model(str(folder)), example)


def _check_trusted(where: str, trusted: bool, what: str = "it is a pickle") -> None:
    if not trusted:
        what = f"{what}, and loading it runs any code in it with all your permissions"
        raise UsageError(what, where=where, do="if you know and trust its author, pass --trusted")


def _skops(file: Path, where: str, trusted: bool) -> Any:
    import skops.io

    if types := skops.io.get_untrusted_types(file=file):
        _check_trusted(where, trusted, f"it has types that skops does not trust ({', '.join(types)})")
    return skops.io.load(file, trusted=types)


def columns_of(source: Source) -> list[str]:
    """Return the column names that a model was trained with, in order. Empty if it has none."""
    return [str(each) for each in getattr(source.model, "feature_names_in_", ())]


def sample_of(given: Any, where: str, columns: Sequence[str] = ()) -> Sample:
    """Convert inputs to a sample. Raises UsageError. Columns of a table are matched by name, in the order of `columns`,
    and are one input each. The exported model gets fractions as FP32. The original gets the inputs unchanged."""
    with failing("these inputs cannot be converted to tensors", where, _INPUTS):
        has_columns = isinstance(given, Mapping) and len(given) > 1
        if has_columns or (isinstance(given, list) and given and isinstance(given[0], Mapping)):
            import pandas

            given = pandas.DataFrame(given)
        if is_frame(given):
            given = _chosen(given, columns, where) if columns else given
            named = {str(column): given[column].to_numpy().reshape(-1, 1) for column in given}
        else:
            by_name = given if isinstance(given, Mapping) else {"X": given}
            named = {str(each): numpy.asarray(value) for each, value in by_name.items()}
            given = next(iter(named.values()))
            if given.dtype.kind in "iub":
                named = {each: array.astype(numpy.float32) for each, array in named.items()}
        tensors = {each: _cast(array) for each, array in named.items()}
    rows = {array.shape[0] if array.ndim else 0 for array in tensors.values()}
    if len(rows) != 1 or 0 in rows:
        shapes = ", ".join(f"{each} has {list(array.shape)}" for each, array in tensors.items())
        raise UsageError("the inputs must have the same number of rows, at least one", where=where, why=shapes)
    return Sample(given, tensors, rows.pop())


def _chosen(table: Any, columns: Sequence[str], where: str) -> Any:
    """Return a table's columns of these names, in order. Raises UsageError if one is missing."""
    there = [str(each) for each in table]
    if missing := [each for each in columns if each not in there]:
        why = f"it was trained with {', '.join(columns)[:400]}, but they have {', '.join(there)[:400]}"
        what = f"the inputs lack columns of the model: {', '.join(missing)[:400]}"
        raise UsageError(what, where=where, why=why, do="use the names with which the model was trained")
    return table.iloc[:, [there.index(each) for each in columns]]


def _cast(array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        return array.astype(str).astype(object)
    return array.astype(numpy.float32) if array.dtype == numpy.float64 else array


def ask_original(source: Source, sample: Sample, where: str) -> list[Array]:
    """Return the original's outputs, in the order of its exporter. Raises UsageError."""
    do = "pass rows as its own predict takes them. The model must be fitted, and its library's version installed"
    with failing("the model does not answer these inputs", where, do):
        found = _call_sklearn(source.model, sample)
        return [numpy.asarray(each.toarray() if hasattr(each, "toarray") else each) for each in found]


def _call_sklearn(model: Any, sample: Sample) -> list[Any]:
    from sklearn import base

    if base.is_classifier(model):
        methods = ["predict", "predict_proba" if hasattr(model, "predict_proba") else "decision_function"]
    elif base.is_outlier_detector(model):
        methods = ["predict", "decision_function"]
    else:  # clusterings have both: their labels, and the distances to them
        methods = [each for each in ("predict", "transform") if hasattr(model, each)]
    return [getattr(model, each)(sample.given) for each in methods]


def ask_exported(file: Path, sample: Sample, where: str) -> list[Array]:
    """Return the outputs of an ONNX file. Raises UsageError."""
    with failing("the exported model does not answer these inputs", where):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # failures are raised anyway
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        return [numpy.asarray(each) for each in session.run(None, sample.tensors)]


def convert(source: Source, sample: Sample, file: Path, where: str) -> Sample:
    """Write a model as ONNX, and return the inputs under its tensor names. Raises UsageError."""
    with failing("this model of sklearn cannot be exported", where, OTHERWISE):
        made, sample = _from_sklearn(source.model, sample)
        names = [each.name for each in made.graph.input]  # skl2onnx replaces special characters by _.
        made.graph.name = "sklearn"  # Not a random name: the same model must have the same digest.
        for each in made.graph.output:
            each.type.tensor_type.shape.dim[0].dim_param = _ROWS
        file.write_bytes(made.SerializeToString())
        return replace(sample, tensors=dict(zip(names, sample.tensors.values(), strict=True)))


def _from_sklearn(model: Any, sample: Sample) -> tuple[Any, Sample]:
    """Return the model as ONNX with its inputs, which become FP32 if the exporter needs one type."""
    from sklearn import pipeline, preprocessing

    def number(array: Array) -> Array:
        return array.astype(numpy.float32) if array.dtype.kind in "biu" else array

    # Some steps, such as imputers, do not support mixed types, and most models do not support several inputs.
    same = replace(sample, tensors={name: number(array) for name, array in sample.tensors.items()})
    steps = [each for _, each in getattr(model, "steps", [("", model)])]
    joined = pipeline.make_pipeline(preprocessing.FunctionTransformer(), *steps)
    for one, inputs in ((model, sample), (joined, same)):
        with suppress(Exception):
            return _to_onnx(one, inputs), inputs
    return _to_onnx(model, same), same


def _to_onnx(model: Any, sample: Sample) -> Any:
    import skl2onnx
    from onnx import helper
    from skl2onnx.common.data_types import guess_data_type
    from sklearn import base

    types = []
    for name, array in sample.tensors.items():
        ((_, kind),) = guess_data_type(array)
        kind.shape = [None, *array.shape[1:]]
        types.append((name, kind))
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    has_zipmap = base.is_classifier(model) and not type(last).__name__.startswith("LinearSV")
    options = {id(model): {"zipmap": False}} if has_zipmap else None
    made = skl2onnx.to_onnx(model, initial_types=types, options=options, target_opset=_OPSET)
    for each in made.graph.node:
        if each.op_type == "StringNormalizer" and not any(one.name == "locale" for one in each.attribute):
            each.attribute.append(helper.make_attribute("locale", _LOCALE))
    return made
