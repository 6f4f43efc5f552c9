"""Converts a model by its library's own exporter, and asks both: the original, and what was made of it."""

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy

from ...calling.inputs import is_frame
from ...calling.tensors import Array
from ...errors import UsageError
from .source import LOCALE, OTHERWISE, Source, failing

OPSET: Final = {"": 17, "ai.onnx.ml": 3}  # ONNX Runtime has known them since 2022.
_INPUTS: Final = (
    "give rows of numbers (.npy), or columns by name, each with as many rows (.csv, .json, .npz); encode texts where "
    "the model takes numbers, and write sparse matrices densely (matrix.toarray())"
)
ROWS: Final = "N"  # The first dimension of every tensor, of any size.


@dataclass(frozen=True)
class Sample:
    """Inputs as the original takes them, and as the exported model does, with the same rows each."""

    given: Any
    tensors: dict[str, Array]
    rows: int

    def resized(self, rows: int) -> "Sample":
        """Return what an exported model is asked with other rows: the first of them, repeated where there are fewer."""
        return replace(self, tensors={name: resized(each, rows) for name, each in self.tensors.items()}, rows=rows)


def resized(array: Array, rows: int) -> Array:
    """Return the first rows of an array, repeated where it has fewer."""
    return numpy.resize(array, (rows, *array.shape[1:]))


def columns_of(source: Source) -> list[str]:
    """Return the columns that a model was trained with, in their order; none where it keeps no names of them."""
    model = getattr(source.model, "booster_", source.model)
    kept = model.feature_name() if hasattr(model, "feature_name") else getattr(model, "feature_names_in_", ())
    names = [str(each) for each in kept]
    unnamed = [f"Column_{at}" for at in range(len(names))]  # LightGBM's own
    return [] if names == unnamed else names


def sample_of(name: str, given: Any, where: str, only: str = "X", columns: Sequence[str] = ()) -> Sample:
    """Return inputs for models of a library; raises UsageError. `only` is the name of one that has none.

    A table's columns are taken by their names, in the order of `columns`, where there are any. They are an input each
    for scikit-learn, and one matrix for others. Numbers with fractions are FP32 for the exported model, as exporters
    want it; the original is asked with what was given.
    """
    with failing("these inputs are no tensors", where, name, _INPUTS):
        is_trees, many = name in ("xgboost", "lightgbm"), isinstance(given, Mapping) and len(given) > 1
        if (isinstance(given, list) and given and isinstance(given[0], Mapping)) or (
            many and (is_trees or name == "sklearn")
        ):
            import pandas

            given = pandas.DataFrame(given)
        if is_frame(given) and columns:
            given = _chosen(given, columns, name, where)
        if is_frame(given) and name == "sklearn":
            named = {str(column): given[column].to_numpy().reshape(-1, 1) for column in given}
        else:
            given = given.to_numpy(float if is_trees else None) if is_frame(given) else given
            by_name = given if isinstance(given, Mapping) else {only: given}
            named = {str(each): numpy.asarray(value) for each, value in by_name.items()}
            given = next(iter(named.values()))
            if is_trees or (name == "sklearn" and given.dtype.kind in "iub"):
                named = {each: array.astype(numpy.float32) for each, array in named.items()}
        tensors = {each: _cast(array) for each, array in named.items()}
    rows = {array.shape[0] if array.ndim else 0 for array in tensors.values()}
    if len(rows) != 1 or 0 in rows:
        said = ", ".join(f"{each} has {list(array.shape)}" for each, array in tensors.items())
        raise UsageError("the inputs do not all have the same rows, at least one", where=where, why=said)
    return Sample(given, tensors, rows.pop())


def _chosen(table: Any, columns: Sequence[str], name: str, where: str) -> Any:
    """Return a table's columns of these names, in their order; raises UsageError where it has not all of them.

    One of scikit-learn may answer without some, as a ColumnTransformer; where it does not, it says so when it is asked.
    """
    # LightGBM writes the blanks in names otherwise.
    there = [str(each).replace(" ", "_") if name == "lightgbm" else str(each) for each in table]
    lacking = [each for each in columns if each not in there]
    if lacking and (name != "sklearn" or len(lacking) == len(columns)):
        listed = [textwrap.shorten(", ".join(each), 400, placeholder=" …") for each in (lacking, columns, there)]
        why = f"it was trained with {listed[1]}; they have {listed[2]}"
        what = f"the inputs lack columns of the model: {listed[0]}"
        raise UsageError(what, where=where, why=why, do="name them as they were when the model was trained")
    return table.iloc[:, [there.index(each) for each in columns if each in there]]


def _cast(array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        return array.astype(str).astype(object)
    return array.astype(numpy.float32) if array.dtype == numpy.float64 else array


def ask_original(source: Source, sample: Sample, where: str) -> list[Array]:
    """Return what the original answers, output by output as its exporter orders them; raises UsageError."""
    do = "give rows as its own predict takes them; the model must be fitted, and have its library's version here"
    with failing("the model does not answer these inputs", where, source.library, do):
        if source.library == "onnx":
            return _run_onnx(source.model, sample)
        if source.library == "torch":
            return _run_torch(source.model, sample)
        if source.library == "lightgbm" and hasattr(source.model, "num_trees"):
            found = _ask_booster(source.model, sample)
        else:
            found = _ask_sklearn(source.model, sample)
        return [numpy.asarray(each.toarray() if hasattr(each, "toarray") else each) for each in found]


def ask_exported(file: Path, library: str, sample: Sample, where: str) -> list[Array]:
    """Return what a file of ONNX or TorchScript answers, made of a library's model; raises UsageError."""
    with failing("the exported model does not answer these inputs", where, library):
        if file.suffix == ".onnx":
            return _run_onnx(file, sample)
        import torch

        return _run_torch(torch.jit.load(str(file), map_location="cpu"), sample)


def _ask_sklearn(model: Any, sample: Sample) -> list[Any]:
    from sklearn import base

    if base.is_classifier(model):
        methods = ["predict", "predict_proba" if hasattr(model, "predict_proba") else "decision_function"]
    elif base.is_outlier_detector(model):
        methods = ["predict", "decision_function"]
    else:  # clusters have both: their labels, and how far it is to them
        methods = [each for each in ("predict", "transform") if hasattr(model, each)]
    found = [getattr(model, each)(sample.given) for each in methods]
    is_split = isinstance(found[-1], list)  # probabilities of several targets, which need not have as many classes
    return [*found[:-1], *found[-1]] if is_split else found


def _ask_booster(model: Any, sample: Sample) -> list[Any]:
    answer, objective = model.predict(sample.given), model.dump_model()["objective"].split(" ")[0]
    if objective == "binary":
        answer = numpy.stack([1 - answer, answer], axis=1)
    return [answer.argmax(axis=1), answer] if objective in ("binary", "multiclass", "multiclassova") else [answer]


def _run_onnx(file: Path, sample: Sample) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is raised too
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return [numpy.asarray(each) for each in session.run(None, sample.tensors)]


def _run_torch(model: Any, sample: Sample) -> list[Array]:
    import torch

    with torch.no_grad():
        answer = _module(model)(*_torch_tensors(sample))
    return [each.numpy() for each in (answer if isinstance(answer, tuple | list) else [answer])]


def convert(source: Source, sample: Sample, right: Sequence[Array], file: Path, where: str) -> Sample:
    """Write a model as ONNX, or as TorchScript, by the file's name; raises UsageError where that cannot be.

    `right` is what the original answers. Returns the inputs as the exported model takes them.
    """
    if file.suffix != ".onnx" and source.library != "torch":
        what = f"TorchScript is made of PyTorch only, and this is {source.library}"
        raise UsageError(what, where=where, do="say --to onnx")
    with failing(f"this model of {source.library} cannot be exported", where, source.library, OTHERWISE):
        if source.library == "torch":
            _from_torch(source.model, sample, len(right), file)
            return sample
        if source.library == "sklearn":
            made, sample = _from_sklearn(source.model, sample)
            names = [each.name for each in made.graph.input]  # it writes other signs than letters and digits as _
            sample = replace(sample, tensors=dict(zip(names, sample.tensors.values(), strict=True)))
            _split(made.graph, right)
        else:
            made = _from_trees(source, sample)
        made.graph.name = source.library  # not a random one: the same model is the same version in the registry
        for each in made.graph.output:  # that of LightGBM's labels is 1 without it
            each.type.tensor_type.shape.dim[0].dim_param = ROWS
        file.write_bytes(made.SerializeToString())
        return sample


def _from_sklearn(model: Any, sample: Sample) -> tuple[Any, Sample]:
    """Return the model as ONNX, and the inputs as it takes them: its exporter does not take all that models do."""
    from sklearn import pipeline, preprocessing

    def number(array: Array) -> Array:
        return array.astype(numpy.float32) if array.dtype.kind in "biu" else array

    # Imputers, say, are not exported for whole numbers beside others, and most models not for several inputs.
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
    made = skl2onnx.to_onnx(model, initial_types=types, options=options, target_opset=OPSET)
    for each in made.graph.node:
        if each.op_type == "StringNormalizer" and not any(said.name == "locale" for said in each.attribute):
            each.attribute.append(helper.make_attribute("locale", LOCALE))
    return made


def _split(graph: Any, right: Sequence[Array]) -> None:
    """Make an output for each target of a last one that has them all: servers have no sequences of tensors."""
    from onnx import TensorProto, helper

    if (targets := len(right) - len(graph.output) + 1) < 2:
        return
    every = graph.output.pop()
    takes = "SequenceAt" if every.type.HasField("sequence_type") else "Gather"
    for at, array in enumerate(right[-targets:]):
        place, name = f"{every.name}_place_{at}", f"{every.name}_{at}"
        graph.initializer.append(helper.make_tensor(place, TensorProto.INT64, [], [at]))
        graph.node.append(helper.make_node(takes, [every.name, place], [name]))
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, *array.shape[1:]]))


def _from_trees(source: Source, sample: Sample) -> Any:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [(name, FloatTensorType([None, *array.shape[1:]])) for name, array in sample.tensors.items()]
    if source.library == "lightgbm":
        # Its exporter knows no classes that are True and False, which are 1 and 0 then.
        has_bool = numpy.asarray(getattr(source.model, "classes_", 0)).dtype.kind == "b"
        model = source.model.booster_ if has_bool else source.model
        return onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=False)
    source.model.get_booster().feature_names = None  # its exporter wants f0, f1, …
    return onnxmltools.convert_xgboost(source.model, initial_types=types)


def _from_torch(model: Any, sample: Sample, outputs: int, file: Path) -> None:
    import torch

    tensors = _torch_tensors(sample, 2)  # of a single row it takes it that there is no other
    is_script = isinstance(model, torch.jit.ScriptModule)
    if file.suffix != ".onnx":
        (model if is_script else torch.jit.trace(_module(model), tensors)).save(str(file))
        return
    options: dict[str, Any] = {"output_names": [f"OUTPUT__{at}" for at in range(outputs)]}
    options["input_names"] = list(sample.tensors)
    if is_script:  # the newer exporter does not take it
        options["dynamic_axes"] = {name: {0: ROWS} for names in options.values() for name in names}
    elif not isinstance(model, torch.export.ExportedProgram):  # which has its own
        options["dynamic_shapes"] = tuple({0: torch.export.Dim.DYNAMIC} for _ in tensors)
    if not is_script:
        options["external_data"] = False
    torch.onnx.export(model, tensors, str(file), dynamo=not is_script, verbose=False, **options)


def _module(model: Any) -> Any:
    """Return what is called: of an exported program, its module."""
    return model.module() if hasattr(model, "graph_signature") else model.eval()


def _torch_tensors(sample: Sample, at_least: int = 1) -> tuple[Any, ...]:
    import torch

    return tuple(map(torch.from_numpy, sample.resized(max(at_least, sample.rows)).tensors.values()))
