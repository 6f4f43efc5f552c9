"""OpenVINO's intermediate representation (a `.xml` and a `.bin`) for the OpenVINO backend."""

from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import ParseError, XMLParser

from ....errors import UsageError
from .reading import ANY, Reading, Tensor, bounded, config_of, unreadable

MODEL, WEIGHTS = "model.xml", "model.bin"
_LONGEST_NUMBER = 100  # Characters of a dimension that are kept. A longer one is invalid.
_LAYER, _EDGE = ["net", "layers", "layer"], ["net", "edges", "edge"]
_PORT = [*_LAYER, "output", "port"]
_DIM = [*_PORT, "dim"]
_TYPES = {
    "f16": "FP16", "f32": "FP32", "f64": "FP64", "bf16": "BF16", "i8": "INT8", "i16": "INT16", "i32": "INT32",
    "i64": "INT64", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "boolean": "BOOL",
    "bool": "BOOL", "fp16": "FP16", "fp32": "FP32", "fp64": "FP64", "string": "STRING",
}  # fmt: skip


@dataclass
class _Port:
    precision: str
    names: str
    dims: list[int]


class _Network:
    """The parts of a file that are needed, of the network itself and not of networks within a layer."""

    def __init__(self) -> None:
        self.ports: dict[tuple[str, str], _Port] = {}
        self.layers: dict[str, list[str]] = {"Parameter": [], "Result": []}
        self.feeds: dict[str, tuple[str, str]] = {}
        self._path: list[str] = []
        self._layer = self._text = ""

    def doctype(self, *_: object) -> None:
        raise ValueError("it has a DOCTYPE, which OpenVINO never writes")  # prevents the expansion of entities

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._path.append(tag)
        self._text = ""
        if self._path == _LAYER:
            self._layer = attributes.get("id", "")
            if (kind := attributes.get("type")) in self.layers:
                self.layers[kind].append(self._layer)
        elif self._path == _PORT:
            port = _Port(attributes.get("precision", ""), attributes.get("names", ""), [])
            self.ports[self._layer, attributes.get("id", "")] = self._port = port
        elif self._path == _EDGE:
            source = attributes.get("from-layer", ""), attributes.get("from-port", "")
            self.feeds[attributes.get("to-layer", "")] = source

    def data(self, text: str) -> None:
        if self._path == _DIM and len(self._text) < _LONGEST_NUMBER:
            self._text += text

    def end(self, _tag: str) -> None:
        if self._path == _DIM:
            self._port.dims.append(max(int(self._text), ANY))
        self._path.pop()


def read(source: Path, limit: int = 256 << 20) -> Reading:
    """Read the `.xml` and include the `.bin` next to it."""
    weights = source.with_suffix(".bin")
    if not weights.is_file():
        raise UsageError("its weights are missing", where=source, do=f"copy {weights.name} next to it")
    found = _Network()
    parser = XMLParser(target=found)
    try:
        parser.feed(bounded(source, limit, "an OpenVINO model's XML"))
        parser.close()
    except (ParseError, ValueError, LookupError) as error:
        raise unreadable(source, "OpenVINO model", error) from None
    first = dict(reversed(found.ports))
    inputs = tuple(_tensor(found.ports, (layer, first.get(layer, "")), source) for layer in found.layers["Parameter"])
    outputs = tuple(_tensor(found.ports, found.feeds.get(layer, ("", "")), source) for layer in found.layers["Result"])
    if not outputs:
        raise unreadable(source, "OpenVINO model", "it has no Result")
    return Reading(config_of("openvino"), ((MODEL, source), (WEIGHTS, weights)), inputs, outputs)


def _tensor(ports: dict[tuple[str, str], _Port], place: tuple[str, str], source: Path) -> Tensor:
    port = ports.get(place)
    if port is None:
        raise unreadable(source, "OpenVINO model", f"layer {place[0] or '?'} has no input")
    if port.precision.lower() not in _TYPES:
        raise UsageError(f"a tensor has type {port.precision!r}, which Triton does not support", where=source)
    # If a tensor has several names, the backend uses the first one in sorted order (get_any_name).
    name = min(port.names.split(","))
    if not name:
        do = "name it before saving: model.inputs[0].get_tensor().set_names({'input'}), outputs alike"
        raise UsageError(f"the tensor of layer {place[0]} has no name", where=source, do=do)
    return Tensor(name, _TYPES[port.precision.lower()], tuple(port.dims))
