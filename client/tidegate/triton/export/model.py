"""A model of MLflow's: loaded by its own library, converted to ONNX by that library's exporter, and called."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy

from ...calling.inputs import is_frame
from ...calling.tensors import Array
from ...errors import UsageError, install
from ...registry.fetching import ADDRESS, fetched
from ...registry.server import quiet
from ..entries.detect import is_pickle

_FLAVORS: Final = {"xgboost": "xgboost", "lightgbm": "lightgbm", "pytorch": "torch", "sklearn": "sklearn"}
"""Libraries by MLflow's names. The first one of a model counts: wrappers may have that of scikit-learn, too."""
_LIBRARIES: Final = {
    *_FLAVORS.values(), "joblib", "onnxmltools", "onnxruntime", "onnxscript", "pandas", "skl2onnx", "skops"
}  # fmt: skip
_OPSET: Final = {"": 17, "ai.onnx.ml": 3}  # ONNX Runtime has known them since 2022.
_LOCALE: Final = "C.UTF-8"  # To lower letters: Linux images have it, and seldom ONNX Runtime's default, en_US.UTF-8.
_ROWS: Final = "N"  # The first dimension of every tensor, of any size.
OTHERWISE: Final = (
    "leave unknown steps to the callers, or serve the model by Triton's Python backend, or trees by its FIL backend: "
    "tidegate model new --help"
)
_INPUTS: Final = (
    "give rows of numbers (.npy), or columns by name, each with as many rows (.csv, .json, .npz); encode texts where "
    "the model takes numbers, and write sparse matrices densely (matrix.toarray())"
)


@dataclass(frozen=True)
class Source:
    """A model as its library has it."""

    model: Any
    library: str  # The library's module.
    example: Any = None  # The inputs that MLflow keeps with it, if any.


@dataclass(frozen=True)
class Sample:
    """The same rows as the original takes them, and as the exported model does."""

    given: Any
    tensors: dict[str, Array]
    rows: int

    def resized(self, rows: int) -> "Sample":
        """Return tensors with another number of rows: the first ones, repeated if there are fewer."""
        return replace(self, tensors={name: resized(each, rows) for name, each in self.tensors.items()}, rows=rows)


def resized(array: Array, rows: int) -> Array:
    """Return the first rows of an array, repeated if it has fewer."""
    return numpy.resize(array, (rows, *array.shape[1:]))


@contextmanager
def failing(what: str, where: str, library: str = "", do: str = "") -> Iterator[None]:
    """Turn what a library or a loaded model raises into a UsageError, which names the extra of a missing package."""
    try:
        with quiet():
            yield
    except UsageError:
        raise
    except Exception as error:
        missing = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if missing in _LIBRARIES:
            do = install(library or "sklearn")
            raise UsageError(f"exporting this needs {missing}", where=where, why=str(error), do=do) from None
        text = " ".join(str(error).split()).partition(" Stack trace:")[0][:400]
        if "Failed to construct locale" in text:
            do = f"the system must have the locale {_LOCALE}, here and where the model is served"
        raise UsageError(what, where=where, why=f"{type(error).__name__}: {text or 'no reason given'}", do=do) from None


def load(source: str, scratch: Path, *, trusted: bool) -> Source:
    """Load a model from MLflow's `models:/…`, `runs:/…`, or folder; raises TidegateError.

    It is fetched into the folder `scratch`. Pickles and TorchScript, whose code runs, are loaded only if `trusted`.
    """
    folder = fetched(source, scratch) if ADDRESS.match(source) else Path(source)
    if not (folder / "MLmodel").is_file():
        do = "name models:/NAME/VERSION, runs:/ID/PATH or a folder; mlflow.<library>.save_model makes one of a model"
        raise UsageError("this is no model of MLflow's", where=source, why="it has no file MLmodel", do=do)
    from mlflow.models import Model

    with failing("MLflow cannot read the file MLmodel", source):
        described = Model.load(str(folder))
        example = described.load_input_example(str(folder)) if described.saved_input_example_info else None
    flavor = next((each for each in _FLAVORS if each in described.flavors), None)
    if flavor is None:
        do = f"there are exporters for the flavors {', '.join(_FLAVORS)}; `tidegate model new` takes other models"
        raise UsageError(f"it has the flavors {', '.join(described.flavors)}", where=source, do=do)
    library, settings = _FLAVORS[flavor], described.flavors[flavor]
    file = folder / str(settings.get("data", settings.get("pickled_model", "")))
    do = "install the versions of the libraries that saved it, and name the folder of your own modules in PYTHONPATH"
    with failing(f"{library} cannot load it", source, library, do):
        if file.suffix == ".skops":
            return Source(_skops(file, source, trusted), library, example)
        if library in ("xgboost", "lightgbm") and file.is_file() and not is_pickle(file):
            return Source(_xgboost(file) if library == "xgboost" else _lightgbm(file), library, example)
        _check_trusted(source, trusted)
        import mlflow

        return Source(getattr(mlflow, flavor).load_model(str(folder)), library, example)


def _check_trusted(where: str, trusted: bool, what: str = "it is a pickle or TorchScript") -> None:
    if not trusted:
        what = f"{what}, and loading it runs whatever code is in it, with all your rights"
        raise UsageError(what, where=where, do="if you know who wrote it, and trust them, pass --trusted")


def _skops(file: Path, where: str, trusted: bool) -> Any:
    import skops.io

    if types := skops.io.get_untrusted_types(file=file):
        _check_trusted(where, trusted, f"it has types that skops does not trust ({', '.join(types)})")
    return skops.io.load(file, trusted=types)


def _lightgbm(file: Path) -> Any:
    import lightgbm

    return lightgbm.Booster(model_file=str(file))


def _xgboost(file: Path) -> Any:
    """Return the model as one of scikit-learn's interface, which tells classes from probabilities."""
    import xgboost

    booster = xgboost.Booster(model_file=str(file))
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    is_classifier = objective.startswith(("binary:", "multi:"))
    model = xgboost.XGBClassifier() if is_classifier else xgboost.XGBRegressor()
    model.load_model(booster.save_raw())
    return model


def columns_of(source: Source) -> list[str]:
    """Return the columns that a model was trained with, in their order; none if it keeps no names."""
    model = getattr(source.model, "booster_", source.model)
    kept = model.feature_name() if hasattr(model, "feature_name") else getattr(model, "feature_names_in_", ())
    names = [str(each) for each in kept]
    return [] if names == [f"Column_{at}" for at in range(len(names))] else names  # LightGBM's own names


def sample_of(library: str, given: Any, where: str, columns: Sequence[str] = ()) -> Sample:
    """Return inputs for a library's models; raises UsageError.

    A table's columns are taken by name, in the order of `columns`. They are one input each for scikit-learn, and one
    matrix for others. The exported model takes fractions as FP32; the original takes what was given.
    """
    only = "INPUT__0" if library == "torch" else "X"
    with failing("these inputs are no tensors", where, library, _INPUTS):
        is_trees = library in ("xgboost", "lightgbm")
        has_columns = isinstance(given, Mapping) and len(given) > 1 and (is_trees or library == "sklearn")
        if has_columns or (isinstance(given, list) and given and isinstance(given[0], Mapping)):
            import pandas

            given = pandas.DataFrame(given)
        if is_frame(given) and columns:
            given = _chosen(given, columns, library, where)
        if is_frame(given) and library == "sklearn":
            named = {str(column): given[column].to_numpy().reshape(-1, 1) for column in given}
        else:
            given = given.to_numpy(float if is_trees else None) if is_frame(given) else given
            by_name = given if isinstance(given, Mapping) else {only: given}
            named = {str(each): numpy.asarray(value) for each, value in by_name.items()}
            given = next(iter(named.values()))
            if is_trees or (library == "sklearn" and given.dtype.kind in "iub"):
                named = {each: array.astype(numpy.float32) for each, array in named.items()}
        tensors = {each: _cast(array) for each, array in named.items()}
    rows = {array.shape[0] if array.ndim else 0 for array in tensors.values()}
    if len(rows) != 1 or 0 in rows:
        shapes = ", ".join(f"{each} has {list(array.shape)}" for each, array in tensors.items())
        raise UsageError("the inputs do not all have the same rows, at least one", where=where, why=shapes)
    return Sample(given, tensors, rows.pop())


def _chosen(table: Any, columns: Sequence[str], library: str, where: str) -> Any:
    """Return a table's columns of these names, in their order; raises UsageError if one is missing."""
    # LightGBM writes blanks in names as underscores.
    there = [str(each).replace(" ", "_") if library == "lightgbm" else str(each) for each in table]
    if missing := [each for each in columns if each not in there]:
        why = f"it was trained with {', '.join(columns)[:400]}; they have {', '.join(there)[:400]}"
        what = f"the inputs lack columns of the model: {', '.join(missing)[:400]}"
        raise UsageError(what, where=where, why=why, do="name them as they were when the model was trained")
    return table.iloc[:, [there.index(each) for each in columns]]


def _cast(array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        return array.astype(str).astype(object)
    return array.astype(numpy.float32) if array.dtype == numpy.float64 else array


def ask_original(source: Source, sample: Sample, where: str) -> list[Array]:
    """Return the original's answers, output by output as its exporter orders them; raises UsageError."""
    do = "give rows as its own predict takes them; the model must be fitted, and have its library's version here"
    with failing("the model does not answer these inputs", where, source.library, do):
        if source.library == "torch":
            import torch

            with torch.no_grad():
                answer = _module(source.model)(*_torch_tensors(sample))
            return [each.numpy() for each in (answer if isinstance(answer, tuple | list) else [answer])]
        is_booster = source.library == "lightgbm" and hasattr(source.model, "num_trees")
        found = (_ask_booster if is_booster else _ask_sklearn)(source.model, sample)
        return [numpy.asarray(each.toarray() if hasattr(each, "toarray") else each) for each in found]


def _ask_sklearn(model: Any, sample: Sample) -> list[Any]:
    from sklearn import base

    if base.is_classifier(model):
        methods = ["predict", "predict_proba" if hasattr(model, "predict_proba") else "decision_function"]
    elif base.is_outlier_detector(model):
        methods = ["predict", "decision_function"]
    else:  # clusters have both: their labels, and the distances to them
        methods = [each for each in ("predict", "transform") if hasattr(model, each)]
    return [getattr(model, each)(sample.given) for each in methods]


def _ask_booster(model: Any, sample: Sample) -> list[Any]:
    answer, objective = model.predict(sample.given), model.dump_model()["objective"].split(" ")[0]
    if objective == "binary":
        answer = numpy.stack([1 - answer, answer], axis=1)
    return [answer.argmax(axis=1), answer] if objective in ("binary", "multiclass", "multiclassova") else [answer]


def ask_exported(file: Path, sample: Sample, where: str, library: str = "") -> list[Array]:
    """Return the answers of a file of ONNX; raises UsageError."""
    with failing("the exported model does not answer these inputs", where, library):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # failures are raised, too
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        return [numpy.asarray(each) for each in session.run(None, sample.tensors)]


def convert(source: Source, sample: Sample, outputs: int, file: Path, where: str) -> Sample:
    """Write a model, which has so many outputs, as ONNX; raises UsageError.

    Returns the inputs as the exported model takes them.
    """
    with failing(f"this model of {source.library} cannot be exported", where, source.library, OTHERWISE):
        if source.library == "torch":
            _from_torch(source.model, sample, outputs, file)
            return sample
        if source.library == "sklearn":
            made, sample = _from_sklearn(source.model, sample)
            names = [each.name for each in made.graph.input]  # it writes other signs than letters and digits as _
            sample = replace(sample, tensors=dict(zip(names, sample.tensors.values(), strict=True)))
        else:
            made = _from_trees(source, sample)
        made.graph.name = source.library  # not a random one: the same model is the same version in the registry
        for each in made.graph.output:  # that of LightGBM's labels is 1 without it
            each.type.tensor_type.shape.dim[0].dim_param = _ROWS
        file.write_bytes(made.SerializeToString())
        return sample


def _from_sklearn(model: Any, sample: Sample) -> tuple[Any, Sample]:
    """Return the model as ONNX, and the inputs as that takes them, in FP32 if its exporter needs one type."""
    from sklearn import pipeline, preprocessing

    def number(array: Array) -> Array:
        return array.astype(numpy.float32) if array.dtype.kind in "biu" else array

    # Imputers, say, are not exported for whole numbers among others, and most models not for several inputs.
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


def _from_trees(source: Source, sample: Sample) -> Any:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [(name, FloatTensorType([None, *array.shape[1:]])) for name, array in sample.tensors.items()]
    if source.library == "lightgbm":
        # Its exporter knows no classes True and False; the booster's are 1 and 0.
        has_bool = numpy.asarray(getattr(source.model, "classes_", 0)).dtype.kind == "b"
        model = source.model.booster_ if has_bool else source.model
        return onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=False)
    source.model.get_booster().feature_names = None  # its exporter wants f0, f1, …
    return onnxmltools.convert_xgboost(source.model, initial_types=types)


def _from_torch(model: Any, sample: Sample, outputs: int, file: Path) -> None:
    import torch

    tensors = _torch_tensors(sample, 2)  # a single row makes the exporter fix the number of rows at one
    is_script = isinstance(model, torch.jit.ScriptModule)
    options: dict[str, Any] = {"output_names": [f"OUTPUT__{at}" for at in range(outputs)]}
    options["input_names"] = list(sample.tensors)
    if is_script:  # the newer exporter does not take it
        options["dynamic_axes"] = {name: {0: _ROWS} for names in options.values() for name in names}
    elif not isinstance(model, torch.export.ExportedProgram):  # which has its own
        options["dynamic_shapes"] = tuple({0: torch.export.Dim.DYNAMIC} for _ in tensors)
    if not is_script:
        options["external_data"] = False
    torch.onnx.export(model, tensors, str(file), dynamo=not is_script, verbose=False, **options)


def _module(model: Any) -> Any:
    """Return the callable: for an exported program, its module."""
    return model.module() if hasattr(model, "graph_signature") else model.eval()


def _torch_tensors(sample: Sample, at_least: int = 1) -> tuple[Any, ...]:
    import torch

    return tuple(map(torch.from_numpy, sample.resized(max(at_least, sample.rows)).tensors.values()))
