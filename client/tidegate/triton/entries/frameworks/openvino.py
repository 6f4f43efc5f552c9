"""OpenVINO's intermediate representation (a `.xml` and a `.bin`), for the OpenVINO backend."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ....errors import UsageError
from .reading import ANY, Reading, Tensor, bounded, config_of, unreadable

MODEL, WEIGHTS = "model.xml", "model.bin"
LIMIT = 256 << 20
_TYPES = {
    "f16": "FP16", "f32": "FP32", "f64": "FP64", "bf16": "BF16", "i8": "INT8", "i16": "INT16", "i32": "INT32",
    "i64": "INT64", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "boolean": "BOOL",
    "bool": "BOOL", "fp16": "FP16", "fp32": "FP32", "fp64": "FP64", "string": "STRING",
}  # fmt: skip


def read(source: Path) -> Reading:
    """Read the `.xml`; the `.bin` beside it comes along."""
    weights = source.with_suffix(".bin")
    if not weights.is_file():
        raise UsageError("its weights are not there", where=source, do=f"copy {weights.name} beside it")
    ports: dict[tuple[str, str], Element] = {}
    layers: dict[str, list[str]] = {"Parameter": [], "Result": []}
    feeds: dict[str, tuple[str, str]] = {}
    try:
        for part in _parts(bounded(source, LIMIT, "an OpenVINO model's XML")):
            if part.tag == "edge":
                feeds[part.get("to-layer", "")] = part.get("from-layer", ""), part.get("from-port", "")
                continue
            name, kind = part.get("id", ""), part.get("type", "")
            ports |= {(name, port.get("id", "")): port for port in part.iterfind("output/port")}
            if kind in layers:
                layers[kind].append(name)
        first = dict(reversed(ports))
        inputs = tuple(_tensor(ports, (layer, first.get(layer, "")), source) for layer in layers["Parameter"])
        outputs = tuple(_tensor(ports, feeds.get(layer, ("", "")), source) for layer in layers["Result"])
    except (ElementTree.ParseError, ValueError) as error:
        raise unreadable(source, "OpenVINO model", error) from None
    if not outputs:
        raise unreadable(source, "OpenVINO model", "it has no Result")
    return Reading(config_of("openvino"), ((MODEL, source), (WEIGHTS, weights)), inputs, outputs)


def _parts(content: bytes) -> Iterator[Element]:
    """Yield the layers and edges of the network itself, not those of networks within a layer."""
    if b"<!DOCTYPE" in content:  # without one there are no entities that could expand
        raise ValueError("it has a DOCTYPE, which OpenVINO never writes")
    depth = 0
    for event, element in ElementTree.iterparse(BytesIO(content), ("start", "end")):
        depth += 1 if event == "start" else -1
        if event == "end" and depth == 2 and element.tag in ("layer", "edge"):
            yield element
            element.clear()


def _tensor(ports: dict[tuple[str, str], Element], place: tuple[str, str], source: Path) -> Tensor:
    port = ports.get(place)
    if port is None:
        raise unreadable(source, "OpenVINO model", f"nothing feeds layer {place[0] or '?'}")
    precision = port.get("precision", "")
    if precision.lower() not in _TYPES:
        raise UsageError(f"a tensor has type {precision!r}, which Triton does not have", where=source)
    # Where a tensor has several names, the backend takes the first of them in their order (get_any_name).
    name = min(port.get("names", "").split(","))
    if not name:
        do = "name it before saving: model.inputs[0].get_tensor().set_names({'input'}), outputs alike"
        raise UsageError(f"the tensor of layer {place[0]} has no name", where=source, do=do)
    dims = tuple(max(int(dim.text or ""), ANY) for dim in port.iterfind("dim"))
    return Tensor(name, _TYPES[precision.lower()], dims)
