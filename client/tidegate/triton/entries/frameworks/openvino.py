"""OpenVINO's intermediate representation (a `.xml` and a `.bin`), for the OpenVINO backend."""

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from ....errors import UsageError
from .reading import ANY, Reading, Tensor, bounded, config_of, unreadable

MODEL, WEIGHTS = "model.xml", "model.bin"
LIMIT = 256 << 20
_LONGEST_NUMBER = 100
"""Characters of a dimension that are kept: of more it is none."""
_TYPES = {
    "f16": "FP16", "f32": "FP32", "f64": "FP64", "bf16": "BF16", "i8": "INT8", "i16": "INT16", "i32": "INT32",
    "i64": "INT64", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "boolean": "BOOL",
    "bool": "BOOL", "fp16": "FP16", "fp32": "FP32", "fp64": "FP64", "string": "STRING",
}  # fmt: skip


@dataclass
class _Port:
    kind: str
    names: str
    dims: list[int] = field(default_factory=list)


@dataclass
class _Layers:
    """What is kept of the file while it is read: ports by layer and port, entrances, exits, and what feeds them."""

    ports: dict[tuple[str, str], _Port] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    feeds: dict[str, tuple[str, str]] = field(default_factory=dict)
    layer: str = ""
    port: _Port | None = None
    text: str = ""
    depth: list[str] = field(default_factory=list)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth.append(name)
        if self.depth == ["net", "layers", "layer"]:
            self.layer = attributes.get("id", "")
            kind = attributes.get("type")
            if kind in ("Parameter", "Result"):
                (self.parameters if kind == "Parameter" else self.results).append(self.layer)
        elif self.depth == ["net", "layers", "layer", "output", "port"]:
            self.port = _Port(attributes.get("precision", ""), attributes.get("names", ""))
            self.ports[self.layer, attributes.get("id", "")] = self.port
        elif self.depth == ["net", "edges", "edge"]:
            self.feeds[attributes.get("to-layer", "")] = (
                attributes.get("from-layer", ""), attributes.get("from-port", ""),
            )  # fmt: skip
        self.text = ""

    def end(self, name: str) -> None:
        if name == "dim" and self.port is not None and self.depth[-2:] == ["port", "dim"]:
            self.port.dims.append(max(int(self.text), ANY))
        elif name == "port":
            self.port = None
        self.depth.pop()

    def words(self, text: str) -> None:
        if self.depth[-1:] == ["dim"] and len(self.text) < _LONGEST_NUMBER:
            self.text += text


def read(source: Path) -> Reading:
    """Read the `.xml`; the `.bin` beside it comes along."""
    weights = source.with_suffix(".bin")
    if not weights.is_file():
        raise UsageError("its weights are not there", where=str(source), do=f"copy {weights.name} beside it")
    layers = _layers(source)
    only = dict(reversed(layers.ports))
    inputs = tuple(_tensor(layers.ports, (layer, only.get(layer, "")), source) for layer in layers.parameters)
    outputs = tuple(_tensor(layers.ports, layers.feeds.get(layer, ("", "")), source) for layer in layers.results)
    if not outputs:
        raise unreadable(source, "OpenVINO model", "it has no Result")
    return Reading(config_of("openvino"), ((MODEL, source), (WEIGHTS, weights)), inputs, outputs)


def _layers(source: Path) -> _Layers:
    def refuse_doctype(*_: object) -> None:
        raise ValueError("it has a DOCTYPE, which OpenVINO never writes")

    layers = _Layers()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = layers.start, layers.end
    parser.CharacterDataHandler = layers.words
    parser.StartDoctypeDeclHandler = refuse_doctype  # without one there are no entities that could expand
    try:
        parser.Parse(bounded(source, LIMIT, "an OpenVINO model's XML"), True)
    except (expat.ExpatError, ValueError) as error:
        raise unreadable(source, "OpenVINO model", error) from None
    return layers


def _tensor(ports: dict[tuple[str, str], _Port], place: tuple[str, str], source: Path) -> Tensor:
    port = ports.get(place)
    if port is None:
        raise unreadable(source, "OpenVINO model", f"nothing feeds layer {place[0] or '?'}")
    if port.kind.lower() not in _TYPES:
        raise UsageError(f"a tensor has type {port.kind!r}, which Triton does not have", where=str(source))
    # Where a tensor has several names, the backend takes the first of them in their order (get_any_name).
    name = min(port.names.split(",")) if port.names else ""
    if not name:
        raise UsageError(
            f"the tensor of layer {place[0]} has no name", where=str(source),
            do="name it before saving: model.inputs[0].get_tensor().set_names({'input'}), outputs alike",
        )  # fmt: skip
    return Tensor(name, _TYPES[port.kind.lower()], tuple(port.dims))
