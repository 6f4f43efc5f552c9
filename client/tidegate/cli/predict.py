"""`tidegate predict`: calls a model, as a model endpoint or any other client does."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .output import Json, answering, note, print_json, print_table
from .status import Plane

if TYPE_CHECKING:
    from ..calling.model import Model
    from ..calling.tensors import Answer
    from ..status.proxies import KnownProxy

_SHOWN = 8
"""Values of an output that a table has."""
_LONGEST = 200
"""Characters of a text that it has."""


def predict(
    model: Annotated[str, typer.Argument(help="A model, or a model and a version: fraud, fraud@3.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Inputs: a .json, .npy, .npz or .csv file; - is JSON from stdin.")
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="An input, as NAME=VALUE with JSON; may be repeated.")
    ] = None,
    zeros: Annotated[bool, typer.Option("--zeros", help="Send zeros: does it answer at all?")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print every answer as it comes, one a line, as JSON.")
    ] = False,
    environment: Annotated[
        str | None, typer.Option("--environment", "-e", help="The environment; else DOMINO_INFERENCE_PROXY says where.")
    ] = None,
    plane: Plane = None,
    proxy: Annotated[str | None, typer.Option("--proxy", help="Address of the inference proxy.")] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="Inference server, where several have a model of that name.")
    ] = None,
    route: Annotated[
        str, typer.Option("--route", help="v2: binary tensors; predict: JSON, as Domino's reference has it.")
    ] = "v2",
    sticky: Annotated[
        str | None, typer.Option("--sticky", help="Calls with the same word get the same version.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.01, max=999999, help="Seconds to wait, all tries together.")
    ] = 60.0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the outputs to a .npz or .json file.")] = None,
    json: Json = False,
) -> None:
    """Call a model, and show what it answers and which version did."""
    with answering():
        from ..calling.model import ROUTES, Model
        from ..status.proxies import proxy_of

        name, _, version = model.partition("@")
        if route not in ROUTES:
            raise UsageError(f"{route!r} is no route", do="there are v2 and predict")
        found = proxy_of(name, environment, plane, proxy)
        if route == "predict" and server is None:
            server = _server(name, found)
        with found.client(timeout) as client:
            called = Model(client, name, server=server, version=version or None, route=ROUTES[route])
            given = _given(called, data, inputs or [], zeros)
            params = {"sticky": sticky, "deadline": timeout}
            if stream:
                _stream(called, given, params)
                return
            began = time.monotonic()
            answer = called.ask(given, params)
            _show(answer, time.monotonic() - began, out, json)


def _server(model: str, proxy: "KnownProxy") -> str:
    """Return the only server that has the model, for the route whose requests must name it."""
    having = [] if proxy.facts is None else [each.server for each in proxy.facts.models if each.name == model]
    if len(having) != 1:
        known = f"; it is on {', '.join(having)}" if having else ""
        raise UsageError("--route predict needs --server: its requests name the inference server", do=f"name it{known}")
    return having[0]


def _given(model: "Model", data: str | None, words: list[str], zeros: bool) -> Any:
    from ..calling import files

    if sum((data is not None, bool(words), zeros)) != 1:
        raise UsageError("inputs are given by one of --data, --input and --zeros")
    if data is not None:
        return files.read_inputs(data)
    if words:
        return files.read_words(words)
    signature = model.signature()
    if signature is None:
        model.proxy.whoami()  # a credential that is wrong is refused here, and is not a rule that is missing
        do = "ask for an access rule with the action inspect, or give inputs"
        raise UsageError(f"it is not known what {model.name} takes", do=do)
    return files.zeros(signature)


def _stream(model: "Model", given: Any, params: dict[str, Any]) -> None:
    from json import dumps

    for answer in model.predict_stream(given, params):
        found = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in answer.items()}
        print(dumps(found, ensure_ascii=False), flush=True)


def _show(answer: "Answer", seconds: float, out: Path | None, json: bool) -> None:
    from ..calling.files import plain, shown, write_outputs

    if out is not None:
        write_outputs(answer, out)
    if json:
        said = {"model": answer.model, "version": answer.version, "seconds": round(seconds, 6)}
        print_json(said | ({} if out else {"outputs": plain(answer)}))
        return
    rows = []
    for name, said in plain(answer).items():
        values = ", ".join(_short(value) for value in shown(answer.outputs[name], _SHOWN))
        more = ", …" if len(said["data"]) > _SHOWN else ""
        rows.append((name, said["datatype"], "×".join(map(str, said["shape"])), values + more))
    which = f", version {answer.version}" if answer.version else ""
    print_table(("OUTPUT", "TYPE", "SHAPE", "VALUES"), rows, f"{answer.model}{which}, {seconds * 1000:.1f} ms")
    if out is not None:
        note(f"written to {out}")


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    # A text is the model's, and may hold what a terminal takes for an order.
    return "".join(each if each.isprintable() else "�" for each in str(value)[:_LONGEST])
