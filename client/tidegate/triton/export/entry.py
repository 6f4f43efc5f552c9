"""Exports a model: converted, compared with the original, and only then laid down whole, with its golden request."""

import math
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...calling.tensors import Array, pack_json, type_of, values
from ...errors import TidegateError, UsageError
from ...names import RULE, is_name
from ...registry.golden import Golden
from ..entries.configure import add_tensor
from ..entries.frameworks import onnx, torch
from ..entries.frameworks.reading import Tensor, data_type
from ..entries.write import check_free, new_entry, staging
from . import builds
from .convert import Sample, ask_exported, ask_original, columns_of, convert, resized, sample_of
from .source import OTHERWISE, load

GOLDEN: Final = "golden.json"
GOLDEN_ROWS: Final = 32  # Of the sample: a golden request is asked wherever the version comes.
TARGETS: Final = ("onnx", "torchscript", "tensorrt", "tensorrt-llm")


@dataclass(frozen=True)
class Exported:
    """What was made, and the largest difference of each output from the original's; None of texts, which are equal."""

    folder: Path
    rows: int = 0
    differences: Mapping[str, float | None] | None = None  # None where nothing could be compared.
    then: str = ""  # The command that comes next.


@dataclass(frozen=True)
class Export:
    """A model, and what is to be made of it. Nothing is overwritten; the folder appears whole or not at all."""

    source: str
    folder: Path
    name: str
    to: str = "onnx"  # One of TARGETS.
    tolerance: float = 1e-4  # As that of golden requests.
    max_batch_size: int = 64
    trusted: bool = False  # Whether a pickle may be loaded, whose code then runs.
    image: str = ""  # In which a Job builds an engine,
    volume: str = ""  # CLAIM/PATH of the folder there,
    mig: str | None = None  # and the profile of its slice; a whole GPU without.

    def run(self, given: Any = None) -> Exported:
        """Make it; `given` are the inputs to compare on, by default MLflow's example. Raises TidegateError."""
        if not is_name(self.name):
            do = f"{RULE}; --name says another than the folder's"
            raise UsageError(f"{self.name!r} is no name for a model", do=do)
        if not 0 <= self.tolerance < math.inf:
            raise UsageError(f"--tolerance {self.tolerance} is no number from 0 on")
        gpu = builds.gpu_of(self.mig)
        if self.to.startswith("tensorrt") and not (self.image and all(self.volume.partition("/"))):
            what, do = f"--to {self.to} writes a Job, and nothing says of what", "say --image IMAGE --volume CLAIM/PATH"
            raise UsageError(what, do=do)
        check_free(self.folder)
        new = [each for each in self.folder.parents if not each.exists()]
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = staging(self.folder.parent, self.name)
        made = scratch / self.name
        try:
            done = self._engine(made, gpu) if self.to == "tensorrt-llm" else self._compared(scratch, made, gpu, given)
            made.chmod(0o755)
            check_free(self.folder)
            made.rename(self.folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            with suppress(OSError):  # where the folder has come, they are not empty
                for each in new:
                    each.rmdir()
        return done

    def _compared(self, scratch: Path, made: Path, gpu: str, given: Any) -> Exported:
        source = load(self.source, scratch / "fetched", trusted=self.trusted)
        given = source.example if given is None else given
        if given is None:
            raise UsageError("there are no inputs to compare on", where=self.source, do="give some: --input FILE")
        if source.library == "onnx" and self.to != "tensorrt":
            raise UsageError("it is ONNX already", where=self.source, do="`tidegate model new` makes an entry of it")
        if self.to == "tensorrt" and source.library not in ("onnx", "torch"):
            why = "it has no operators for forests, encoders and texts"
            raise UsageError(f"TensorRT takes no {source.library}", where=self.source, why=why, do="say --to onnx")
        only = "INPUT__0" if source.library == "torch" else "X"
        if source.library == "onnx":
            only = onnx.read_tensors(source.model).inputs[0].name
        sample = sample_of(source.library, given, self.source, only, columns_of(source))
        right = ask_original(source, sample, self.source)
        file, found = source.model, right  # Of ONNX itself there is no other original.
        if source.library != "onnx":
            file = scratch / (torch.SCRIPT if self.to == "torchscript" else onnx.MODEL)
            sample = convert(source, sample, right, file, self.source)
            found = ask_exported(file, source.library, sample, self.source)
        is_onnx = file.suffix == ".onnx"
        named = [each.name for each in onnx.read_tensors(file).outputs] if is_onnx else _numbered(found)
        if len(named) != len(right):
            what = f"the exported model has {len(named)} outputs, and the original {len(right)}"
            raise UsageError(what, where=self.source, do="export it by hand, then `tidegate model new`")
        pairs = zip(right, found, strict=True)  # False is 0 where the exporter has classes as numbers
        right = [one.astype(other.dtype) if one.dtype == bool else one for one, other in pairs]
        if self.max_batch_size and any(each.shape[:1] != (sample.rows,) for each in (*right, *found)):
            what = "an output has no row for each row of the inputs, so that there can be no batches"
            raise UsageError(what, where=self.source, do="say --max-batch-size 0")
        wanted, answered = (dict(zip(named, each, strict=True)) for each in (right, found))
        differences = None if source.library == "onnx" else self._differences(wanted, answered)
        for rows in (1, sample.rows + 1) if self.max_batch_size else ():
            batched = ask_exported(file, source.library, sample.resized(rows), self.source)
            others = {name: resized(array, rows) for name, array in wanted.items()}
            self._differences(others, dict(zip(named, batched, strict=True)), f" in a batch of {rows}")
        golden = self._golden(sample, wanted)
        if self.to == "tensorrt":
            then = self._plan(file, made, gpu, {name: array.shape for name, array in sample.tensors.items()})
        else:
            settings = ModelConfig(max_batch_size=self.max_batch_size)
            if self.max_batch_size > 1:
                settings.dynamic_batching.SetInParent()
            if not is_onnx:
                self._tell(settings.input, sample.tensors)
                self._tell(settings.output, answered)
            new_entry(self.name, [file], scratch, settings=settings)
            then = f"tidegate register {self._quoted()} --golden {self._quoted(GOLDEN)}"
        (made / GOLDEN).write_bytes(golden.canonical())
        return Exported(self.folder, sample.rows, differences, then)

    def _differences(
        self, right: Mapping[str, Array], found: Mapping[str, Array], when: str = ""
    ) -> dict[str, float | None]:
        """Return the largest difference of each output; raises TidegateError where one is more than it may be."""
        judge = Golden(request={}, outputs=_flat(right), tolerance=self.tolerance)
        off = judge.differences({"outputs": [{"name": name, "data": data} for name, data in _flat(found).items()]})
        most = {name: _largest(right[name], found[name]) for name in found}
        if off:
            why = "; ".join([*off, *(f"{name} is off by {each:.3g} at most" for name, each in most.items() if each)])
            do = f"where rounding explains it, say --tolerance, which golden requests keep to, too; else {OTHERWISE}"
            if when:
                do = f"say --max-batch-size 0 where answers depend on what else is in the batch; {do}"
            what = f"the exported model answers otherwise than the original{when}"
            raise TidegateError(what, where=self.source, why=why, do=do)
        return most

    def _golden(self, sample: Sample, right: Mapping[str, Array]) -> Golden:
        """Return a golden request: some rows that JSON can hold; without batches all of them are one request."""
        chosen: Any = slice(None)
        if self.max_batch_size:
            arrays = [each for each in (*sample.tensors.values(), *right.values()) if each.dtype.kind == "f"]
            finite = [numpy.isfinite(each.reshape(sample.rows, -1)).all(axis=1) for each in arrays]
            whole = numpy.flatnonzero(numpy.all([numpy.ones(sample.rows, bool), *finite], axis=0))
            chosen = whole[: min(GOLDEN_ROWS, self.max_batch_size)]
            if not len(chosen):
                why = "each row has a NaN or an infinity, in or out, which JSON has not"
                raise UsageError("no row can be a golden request", where=self.source, why=why, do="give one without")
        request = pack_json({name: array[chosen] for name, array in sample.tensors.items()})
        outputs = {name: values(array[chosen], name) for name, array in right.items()}
        return Golden(request=request, outputs=outputs, tolerance=self.tolerance)

    def _tell(self, side: Any, tensors: Mapping[str, Array]) -> None:
        """Add tensors to a configuration, of which TorchScript tells nothing."""
        for name, array in tensors.items():
            dims = array.shape[1:] if self.max_batch_size else (-1, *array.shape[1:])
            add_tensor(side, Tensor(name, data_type(type_of(array, name)), dims), dims)

    def _plan(self, file: Path, made: Path, gpu: str, sizes: Mapping[str, tuple[int, ...]]) -> str:
        made.mkdir()
        reading = onnx.read(file)
        for below, each in reading.files:  # the model, and weights that lie beside it
            (made / below).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, made / below)
        commands = builds.plan_commands(reading.inputs, self.max_batch_size, sizes)
        builds.write_build(made, self.name, commands, "TensorRT", self.image, self.volume, gpu)
        batch = f" --max-batch-size {self.max_batch_size}" + " --dynamic-batching" * (self.max_batch_size > 1)
        return f"tidegate model new {shlex.quote(self.name)} {self._quoted(builds.PLAN)}{batch}"

    def _engine(self, made: Path, gpu: str) -> Exported:
        builds.check_hugging_face(self.source)
        made.mkdir()
        commands = builds.engine_commands(Path(self.source).name, self.max_batch_size)
        builds.write_build(made, self.name, commands, "TensorRT-LLM", self.image, self.volume, gpu)
        return Exported(self.folder, then=f"tidegate model new {shlex.quote(self.name)} {self._quoted(builds.ENGINE)}")

    def _quoted(self, below: str = "") -> str:
        return shlex.quote(str(self.folder / below))


def _numbered(outputs: list[Array]) -> list[str]:
    return [f"OUTPUT__{at}" for at in range(len(outputs))]


def _flat(arrays: Mapping[str, Array]) -> dict[str, list[Any]]:
    return {name: array.reshape(-1).tolist() for name, array in arrays.items()}


def _largest(right: Array, found: Array) -> float | None:
    if {right.dtype.kind, found.dtype.kind} & set("OSU") or right.size != found.size:
        return None
    return float(
        numpy.nanmax(numpy.abs(right.reshape(-1).astype(float) - found.reshape(-1).astype(float)), initial=0.0)
    )
