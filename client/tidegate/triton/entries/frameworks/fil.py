"""Forests of trees for the FIL backend: XGBoost (JSON, UBJSON), LightGBM's text, treelite's checkpoints.

The backend's rules are in docs/model_config.md of fil_backend. Its tensors are `input__0` and `output__0`, always FP32,
and it always forms batches. From UBJSON (draft 12, as XGBoost writes it) only a few small values are read.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from ....errors import UsageError
from .reading import Reading, Tensor, bounded, config_of, unreadable

BATCH = 32768  # Largest batch in rows. The backend requires a limit, and this is its documentation's.
JSON_LIMIT = 256 << 20  # Bytes. JSON takes several times as many in memory.
_XGBOOST_CLASSIFIERS = ("binary:", "multi:")
_LIGHTGBM_CLASSIFIERS = ("binary", "multiclass", "multiclassova")
_LIGHTGBM_FIELDS = ("objective", "max_feature_idx", "num_tree_per_iteration")
_PARAMETERS = dict.fromkeys(("num_feature", "num_class", "num_target"))
_WANTED = {"learner": {"learner_model_param": _PARAMETERS, "objective": {"name": None}}}
_FORMATS = {"i": "b", "U": "B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_CONSTANTS = {"Z": None, "T": True, "F": False}
_SIZES = {kind: struct.calcsize(form) for kind, form in _FORMATS.items()} | dict.fromkeys(_CONSTANTS, 0)
_DEPTH = 64
_LONGEST = 1 << 10  # Bytes of a text that is kept. The requested values are a few words and numbers.
_TREELITE_MAJOR = 4
_TREELITE_CLASSIFIERS = (0, 2)  # kBinaryClf, kMultiClf of treelite's TaskType


@dataclass(frozen=True)
class _Forest:
    features: int
    classifier: bool
    classes: int  # 1: a regression, or a classifier of two classes


def read_xgboost_json(source: Path) -> Reading:
    """Read a file that `Booster.save_model("….json")` wrote."""
    try:
        do = "save it as UBJSON: save_model('m.ubj')"
        forest = _xgboost(json.loads(bounded(source, JSON_LIMIT, "an XGBoost model in JSON", do)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise unreadable(source, "XGBoost model in JSON", error) from None
    return _reading(source, "xgboost_json", "xgboost.json", forest)


def read_xgboost_ubjson(source: Path) -> Reading:
    """Read a file that `Booster.save_model("….ubj")` wrote."""
    try:
        with source.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
            forest = _xgboost(read_ubjson(content, _WANTED))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise unreadable(source, "XGBoost model in UBJSON", error) from None
    return _reading(source, "xgboost_ubj", "xgboost.ubj", forest)


def read_lightgbm(source: Path, limit: int = 64 << 20) -> Reading:
    """Read a file that `Booster.save_model("….txt")` wrote: the lines before the first tree. They take at most `limit`
    bytes, and grow with the number of features."""
    fields: dict[str, str] = {}
    with source.open("rb") as lines:
        while line := lines.readline(limit):
            if lines.tell() > limit:
                raise unreadable(source, "LightGBM model", f"there is no tree in its first {limit >> 20} MiB")
            key, _, value = line.decode("utf-8", "replace").strip().partition("=")
            if key == "Tree":
                break
            if key in _LIGHTGBM_FIELDS:
                fields[key] = value
    try:
        objective = fields.get("objective", "").split(" ")[0]
        features, classes = int(fields["max_feature_idx"]) + 1, int(fields["num_tree_per_iteration"])
        forest = _Forest(features, objective in _LIGHTGBM_CLASSIFIERS, classes)
    except (ValueError, KeyError) as error:
        raise unreadable(source, "LightGBM model", error) from None
    return _reading(source, "lightgbm", "model.txt", forest)


def read_treelite(source: Path) -> Reading:
    """Read the header of a checkpoint of treelite 4 (serialization format of its documentation)."""
    with source.open("rb") as opened:
        head = opened.read(64)
    try:
        major, _, _, _, _, _ = struct.unpack_from("<iiiBBQ", head)
        features, task, _, targets = struct.unpack_from("<iBBi", head, 22)
        count, classes = struct.unpack_from("<Qi", head, 32)
    except struct.error as error:
        raise unreadable(source, "checkpoint of treelite", error) from None
    if major != _TREELITE_MAJOR or not 0 <= task <= 4 or features < 1 or targets != count:
        what = "not a checkpoint of treelite 4"
        raise UsageError(what, where=source, do="write it with treelite 4 (Model.serialize)")
    if targets > 1:
        raise unreadable(source, "model that FIL serves", f"it has {targets} targets")
    forest = _Forest(features, task in _TREELITE_CLASSIFIERS, classes)
    return _reading(source, "treelite_checkpoint", "checkpoint.tl", forest)


def _xgboost(document: Mapping[str, Any]) -> _Forest:
    learner = document["learner"]
    parameters = learner["learner_model_param"]
    if int(parameters.get("num_target", "1")) > 1:
        raise ValueError(f"it has {parameters['num_target']} targets, which FIL does not support")
    classifier = str(learner["objective"]["name"]).startswith(_XGBOOST_CLASSIFIERS)
    return _Forest(int(parameters["num_feature"]), classifier, max(1, int(parameters["num_class"])))


def _reading(source: Path, kind: str, name: str, forest: _Forest) -> Reading:
    # FIL's name for it is is_classifier since 25.09, before that output_class. It ignores the other name.
    classifies = "true" if forest.classifier else "false"
    parameters = [("model_type", kind), ("is_classifier", classifies), ("output_class", classifies)]
    notes: tuple[str, ...] = ()
    if forest.classifier:
        parameters += [("predict_proba", "true"), ("threshold", "0.5")]
        do = "set predict_proba to false in config.pbtxt, and write dims: [ 1 ] for output__0"
        notes = (f"it returns probabilities. To get the class itself, {do}",)
    config = config_of("fil", parameters=parameters)
    config.max_batch_size = BATCH
    config.dynamic_batching.SetInParent()
    inputs = (Tensor("input__0", "FP32", (forest.features,)),)
    outputs = (Tensor("output__0", "FP32", (forest.classes,)),)
    return Reading(config, ((name, source),), inputs, outputs, whole_shapes=False, notes=notes)


class UbjsonError(ValueError):
    """The file is not valid Universal Binary JSON."""


def read_ubjson(content: bytes | mmap, wanted: Mapping[str, Any]) -> Any:
    """Parse a value. Keeps only wanted keys of objects, and no arrays or long texts, so it needs little memory."""
    try:
        return _Ubjson(content).value(wanted)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise UbjsonError(f"it ends early, or is damaged: {error}") from None


class _Ubjson:
    def __init__(self, content: bytes | mmap) -> None:
        self._content, self._at = content, 0

    def value(self, wanted: Mapping[str, Any], marker: str = "", depth: int = 0) -> Any:
        """Skip one value, and return the wanted part of it."""
        marker = marker or chr(self._take(1)[0])
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _FORMATS:
            return struct.unpack(_FORMATS[marker], self._take(_SIZES[marker]))[0]
        if marker == "C":
            return self._take(1).decode()
        if marker in "SH":
            return self._text()
        if marker not in "[{":
            raise UbjsonError(f"byte {self._at - 1} does not start a value")
        if depth == _DEPTH:
            raise UbjsonError("it is nested too deeply")
        return self._container("]" if marker == "[" else "}", depth + 1, wanted)

    def _container(self, closing: str, depth: int, wanted: Mapping[str, Any]) -> dict[str, Any]:
        kind, count = self._header()
        found: dict[str, Any] = {}
        if closing == "]" and count is not None and kind in _SIZES:
            self._skip(count * _SIZES[kind])
            return found
        if count is not None and count > len(self._content) - self._at:
            raise UbjsonError("it has fewer values than declared")
        while count != 0 and not (count is None and self._closes(closing)):
            name = (self._text() if closing == "}" else None) or ""
            value = self.value(wanted.get(name) or {}, kind, depth)
            if name in wanted:
                found[name] = value
            count = None if count is None else count - 1
        return found

    def _header(self) -> tuple[str, int | None]:
        kind = chr(self._take(2)[1]) if self._content[self._at] == ord("$") else ""
        if self._content[self._at] != ord("#"):
            if kind:
                raise UbjsonError("a type without a count")
            return "", None
        self._at += 1
        return kind, self._length()

    def _closes(self, closing: str) -> bool:
        while self._content[self._at] == ord("N"):  # a no-op
            self._at += 1
        if self._content[self._at] != ord(closing):
            return False
        self._at += 1
        return True

    def _length(self) -> int:
        marker = chr(self._take(1)[0])
        count = self.value({}, marker) if marker in "iUIlL" else -1
        if count < 0:
            raise UbjsonError("a length is not a number")
        return int(count)

    def _text(self) -> str | None:
        if (length := self._length()) > _LONGEST:
            self._skip(length)
            return None
        return self._take(length).decode()

    def _take(self, count: int) -> bytes:
        start = self._at
        self._skip(count)
        return self._content[start : self._at]

    def _skip(self, count: int) -> None:
        if count > len(self._content) - self._at:
            raise UbjsonError("it ends early")
        self._at += count
